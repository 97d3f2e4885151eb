"""Environments: tools and several turns, played in worker processes (docs/environments.md)."""
