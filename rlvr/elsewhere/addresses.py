"""Where rewards run, as a recipe says it: `http://host:port`, or several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

SCHEMES = ("http", "https")


def is_elsewhere(where: str | None) -> bool:
    """Whether a reward runs on reward servers."""
    return where is not None and "://" in where


def addresses(where: str) -> list[str]:
    """The servers' addresses."""
    return where.split(",")


def read_where(value: Any) -> tuple[str | None, str | None]:
    """A recipe's `where` that names servers, in its one spelling (with commas), and what is wrong with it.

    Both are None if it names none: then it is another kind of place, or a mistake.
    """
    parts: Sequence[Any]
    if isinstance(value, str) and "://" in value:
        parts = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, list) and value:
        parts = value
    else:
        return None, None
    found: list[str] = []
    for part in parts:
        address, fault = _read(part)
        if fault is not None:
            return None, fault
        assert address is not None
        if address in found:
            return None, f"names {address} twice"
        found.append(address)
    return ",".join(found), None


def _read(part: Any) -> tuple[str | None, str | None]:
    example = "write http://host:port"
    if not isinstance(part, str):
        return None, f"has the entry {part!r:.80}, but should name servers: {example}"
    if any(character.isspace() or not character.isprintable() for character in part):
        return None, f"has a space in {part!r:.80}: separate several servers by commas"
    try:
        url = urlsplit(part.strip())
        host, port = url.hostname, url.port
    except ValueError as error:
        return None, f"has the address {part!r:.80} ({error}): {example}"
    if url.scheme not in SCHEMES or not host or "," in part:
        return None, f"has the address {part!r:.80}: {example}"
    if url.username is not None or url.password is not None:
        return None, "holds a user or a password: no secret belongs into a recipe; set GRPO_REWARDS_KEY"
    if url.query or url.fragment:
        return None, f"has the address {part!r:.80}: {example}, and nothing behind it"
    shown = f"[{host}]" if ":" in host else host
    port = port if port is not None else 443 if url.scheme == "https" else 80
    return f"{url.scheme}://{shown}:{port}{url.path.rstrip('/')}", None
