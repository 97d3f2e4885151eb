"""Run one untrusted program, confined."""
