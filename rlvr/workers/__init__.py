"""Killable worker processes behind a fork server."""
