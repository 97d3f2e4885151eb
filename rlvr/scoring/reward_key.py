"""The key that a reward server and its clients share.

Without another one, a server makes a key and keeps it in a file of its user, where clients on the same machine find it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

VARIABLE = "GRPO_REWARDS_KEY"


def default_file() -> Path:
    """The file of the key that a server makes."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "grpo-recipes" / "reward-server.key"


def client_key(address: str) -> str | None:
    """The key for a server: GRPO_REWARDS_KEY, or for a server on this machine the one that it made; None: no key."""
    if key := os.environ.get(VARIABLE, "").strip():
        return key
    if is_loopback(urlsplit(address).hostname or ""):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return default_file().read_text(encoding="utf-8").strip() or None
    return None


@lru_cache(maxsize=64)  # a server without a key asks for every request
def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
