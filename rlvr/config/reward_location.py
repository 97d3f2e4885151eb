"""Where rewards run: the values of `where` in a recipe, such as `http://host:port`, `ray` or `ray://head:10001`.

`BACKENDS` is the table of all forms. The backends themselves are above this layer (rlvr/scoring/backends).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

RAY = "ray"
RAY_PORT = 10001  # where the head of a Ray cluster listens for clients outside of it

# For each form of `where` (the part before a colon): "module:class" of its `rlvr.scoring.backends.base.RewardBackend`.
BACKENDS = {
    "local": "rlvr.scoring.backends.local:LocalBackend",
    "trainer": "rlvr.scoring.backends.local:TrainerBackend",
    "http": "rlvr.scoring.backends.http_backend:HttpRewardBackend",
    "https": "rlvr.scoring.backends.http_backend:HttpRewardBackend",
    RAY: "rlvr.scoring.backends.ray_backend:RayRewardBackend",
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


class InvalidAddress(ValueError):
    """What is wrong with a `where`, as a predicate."""


def read_where(value: Any) -> str | None:
    """Return a `where` of servers or Ray in its normal form (with commas); None if it names neither.

    Raises:
        InvalidAddress: it names servers or Ray, but can't be used.
    """
    scheme = value.strip().partition(":")[0] if isinstance(value, str) else ""
    if scheme in BACKENDS.keys() - _BUILT_IN or value == RAY:
        return str(value)  # a backend that was added reads its own address
    if scheme == RAY:
        example = f"write ray (the cluster at $RAY_ADDRESS, or the one on this machine) or ray://head:{RAY_PORT}"
        return _read_address(value, {RAY: RAY_PORT}, example, "RAY_AUTH_TOKEN")
    if isinstance(value, str) and "://" in value:
        parts: list[Any] = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, list) and value:
        parts = value
    else:
        return None
    ports = {"http": 80, "https": 443}
    servers = [_read_address(part, ports, "write http://host:port", "GRPO_REWARDS_KEY") for part in parts]
    for address in servers:
        if servers.count(address) > 1:
            raise InvalidAddress(f"names {address} twice")
    return ",".join(servers)


def _read_address(part: Any, ports: Mapping[str, int], example: str, key: str) -> str:
    """Read one address of the schemes and default ports in `ports`; `key` is the variable of its secret."""
    if not isinstance(part, str):
        raise InvalidAddress(f"has the entry {part!r:.80}, but should name servers: {example}")
    address = f"has the address {_without_secrets(part)!r:.80}"
    try:
        url = urlsplit(part.strip())
        host, port = url.hostname, url.port
    except ValueError as error:
        cause = f" ({error})" if "@" not in part else ""  # the error may quote a password
        raise InvalidAddress(f"{address}{cause}: {example}") from None
    path = url.path.rstrip("/")
    if url.username is not None or url.password is not None:
        raise InvalidAddress(f"holds a user or a password, but a recipe must hold no secret. Set {key}")
    if url.scheme not in ports or not host or "," in part or (url.scheme == RAY and path):
        raise InvalidAddress(f"{address}: {example}")
    if url.query or url.fragment:
        raise InvalidAddress(f"{address}: {example}, and nothing behind it. Set {key} for a key")
    shown = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{shown}:{port if port is not None else ports[url.scheme]}{path}"


def _without_secrets(address: str) -> str:
    """An address for messages: without user, password, query and fragment, which may hold secrets."""
    return re.split("[?#]", re.sub(r"(?<=://).*@", "…@", address, flags=re.DOTALL))[0]
