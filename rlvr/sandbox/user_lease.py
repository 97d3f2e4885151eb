"""Lease user numbers to zygotes, so that no two on a machine run programs as the same user."""

from __future__ import annotations

import socket

USERS = range(0x6B00_0000, 0x6B00_0000 + 4096)
SMALL_USERS = range(60_000, 64_096)  # for containers that map only the first 65,536 users


def lease_user(small: bool) -> tuple[int, socket.socket] | None:
    """Lease a user number that no other judge on this machine uses. Returns None if all are taken.

    An abstract socket's name is the lease: the kernel releases it with the process, and it needs no file.
    """
    for user in SMALL_USERS if small else USERS:
        lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lease.bind(f"\0grpo-recipes-judge-user-{user}")
        except OSError:
            lease.close()
            continue
        return user, lease
    return None
