"""Where rewards run: the values of `where` in a recipe, such as `http://host:port`, `ray` or `ray://head:10001`.

`BACKENDS` is the table of all forms. The backends themselves are above this layer (rlvr/scoring/backends).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

SCHEMES = ("http", "https")
RAY = "ray"
_PATHS = ("/score", "/get_reward")  # paths that people copy with the address
RAY_PORT = 10001  # where the head of a Ray cluster listens for clients outside of it

# For each form of `where` (the part before a colon): "module:class" of its `rlvr.scoring.backends.base.RewardBackend`.
BACKENDS = {
    "local": "rlvr.scoring.backends.local:LocalBackend",
    "trainer": "rlvr.scoring.backends.local:TrainerBackend",
    "http": "rlvr.scoring.backends.http.backend:HttpRewardBackend",
    "https": "rlvr.scoring.backends.http.backend:HttpRewardBackend",
    RAY: "rlvr.scoring.backends.ray_cluster.backend:RayRewardBackend",
}
_BUILT_IN = frozenset(BACKENDS)


def is_remote(where: str | None) -> bool:
    """Whether a reward runs on reward servers or on Ray."""
    return where is not None and ("://" in where or where == RAY)


def is_on_ray(where: str | None) -> bool:
    """Whether a reward runs on a Ray cluster."""
    return where is not None and where.partition(":")[0] == RAY


def addresses(where: str) -> list[str]:
    """Split `where` into the addresses of the servers."""
    return where.split(",")


def read_where(value: Any) -> tuple[str | None, str | None]:
    """Return a `where` of servers or Ray in its normal form (with commas), and what is wrong with it.

    Both are None if it names neither servers nor Ray.
    """
    if isinstance(value, str) and value.partition(":")[0] in BACKENDS.keys() - _BUILT_IN:
        return value, None  # a backend that was added reads its own address
    if isinstance(value, str) and is_on_ray(value.strip()):
        return _read_ray(value.strip())
    parts: Sequence[Any]
    if isinstance(value, str) and "://" in value:
        parts = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, list) and value:
        parts = value
    else:
        return None, None
    normalised: list[str] = []
    for part in parts:
        address, fault = _read_address(part)
        if fault is not None:
            return None, fault
        assert address is not None
        if address in normalised:
            return None, f"names {address} twice"
        normalised.append(address)
    return ",".join(normalised), None


def _read_ray(value: str) -> tuple[str | None, str | None]:
    example = f"write ray (the cluster of $RAY_ADDRESS, else one on this machine) or ray://head:{RAY_PORT}"
    if value == RAY:
        return value, None
    try:
        url = urlsplit(value)
        host, port = url.hostname, url.port
    except ValueError as error:
        return None, f"has the address {value!r:.80} ({error}): {example}"
    if url.username is not None or url.password is not None:
        return None, "holds a user or a password, but a recipe must hold no secret. Set RAY_AUTH_TOKEN"
    rest = url.path.rstrip("/") or url.query or url.fragment
    if url.scheme != RAY or not host or rest or any(character in host for character in ", "):
        return None, f"has the address {value!r:.80}: {example}"
    return f"{RAY}://{f'[{host}]' if ':' in host else host}:{port if port is not None else RAY_PORT}", None


def _read_address(part: Any) -> tuple[str | None, str | None]:
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
        return None, "holds a user or a password, but a recipe must hold no secret. Set GRPO_REWARDS_KEY"
    if url.query or url.fragment:
        return None, f"has the address {part!r:.80}: {example}, and nothing behind it"
    if url.path.rstrip("/").endswith(_PATHS):
        return None, f"has the address {part!r:.80}, but a client adds the path itself: {example}"
    shown = f"[{host}]" if ":" in host else host
    port = port if port is not None else 443 if url.scheme == "https" else 80
    return f"{url.scheme}://{shown}:{port}{url.path.rstrip('/')}", None
