"""Backends that call reward functions: local workers, HTTP servers, a Ray cluster."""
