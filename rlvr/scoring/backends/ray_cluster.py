"""Join a Ray cluster: the one that a recipe or RAY_ADDRESS names, or else the one of this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from rlvr.config.reward_location import RAY

PROBE_TIMEOUT_S = 2.0


class Refused(Exception):
    """There is a cluster that this process can't join, and waiting would not help."""


class Unreachable(Exception):
    """There is no cluster, or not yet."""


def join(where: str) -> None:
    """Join the cluster of `where` in a recipe.

    Raises:
        Unreachable, Refused
    """
    address = where if where != RAY else os.environ.get("RAY_ADDRESS") or "auto"
    if address == "local":
        raise Refused("RAY_ADDRESS is local: each process would start a cluster. Unset it after `ray start --head`.")
    _probe(address)
    # Retries take a second each. By default, Ray reports a wrong token only after twenty. Read on import.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
    _init(address)


def _probe(address: str) -> None:
    """Check that an address accepts connections: Ray itself would take a minute to report it.

    Raises:
        Unreachable: it does not.
    """
    url = urlsplit(address if "://" in address else f"//{address}")
    try:
        if url.hostname is not None and url.port is not None:
            socket.create_connection((url.hostname, url.port), PROBE_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        raise Unreachable(f"{address}: {cause or error}") from error


def _init(address: str) -> None:
    """Call `ray.init`.

    Raises:
        Unreachable, Refused
    """
    import ray  # reads its settings from the environment, which are complete only now

    with _captured_stderr() as captured:
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # Ray raises errors of any type
            with contextlib.suppress(Exception):
                ray.shutdown()
            cause = " ".join(str(error).split())[:600] or type(error).__name__
            if "ersion mismatch" in cause:
                what = f"The Ray cluster at {address} has other versions than this process. They must be the same"
                raise Refused(f"{what}: {cause}") from error
            if "AuthToken" in captured() or type(error).__name__ == "AuthenticationError":
                raise Refused(
                    f"The Ray cluster at {address} requires its token: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
                ) from error
            raise Unreachable(f"{address}: {cause}") from error


@contextlib.contextmanager
def _captured_stderr() -> Iterator[Callable[[], str]]:
    """Capture standard error: Ray's core only prints why the cluster refused it."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")
        finally:
            os.dup2(before, 2)
            os.close(before)
