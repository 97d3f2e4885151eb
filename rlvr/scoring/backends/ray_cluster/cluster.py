"""A process becomes part of a Ray cluster: of the one that a recipe or RAY_ADDRESS names, or of one that it starts.

The processes of one launcher on this machine use one cluster: whoever holds the lock of a file has started it, and
has written into that file where it is. The kernel opens the lock when that process is gone, and its cluster goes with
it; then another one takes its place. Such a cluster has a token that nobody else knows, no dashboard and no usage
statistics, and what it writes goes to a folder that is removed with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlvr.config.reward_location import RAY
from rlvr.sandbox.directories import Scratch

MEMORY = 1 << 30  # of the object store of a cluster that is started here; it spills to the disk beyond
PROBE_S = 2.0
_NAME = f"grpo-recipes-{os.geteuid()}-ray-"


class Refused(Exception):
    """There is a cluster, but not for this process; and there would not be the next time."""


class Unreachable(Exception):
    """There is no cluster, or not yet."""


class Cluster:
    """The cluster that this process is part of, from `join` on.

    Args:
        where: of the recipe.
        run: the same for processes that are to use one cluster.
    """

    def __init__(self, where: str, run: str) -> None:
        self.where = where
        self.run = run
        self.joined = False
        self._lock: int | None = None  # of the file, held by who has started the cluster
        self._scratch: Scratch | None = None

    def join(self, end: float) -> None:
        """Becomes part of the cluster; at once if it already is.

        Args:
            end: by `time.monotonic`, when nobody waits any more.

        Raises:
            Unreachable, Refused
        """
        if self.joined:
            return
        address = self.where if self.where != RAY else os.environ.get("RAY_ADDRESS", "")
        if address in ("", "local"):
            self._join_own(end)
        else:
            _probe(address)
            # A second each, read when Ray is imported: it would be told a wrong token twenty times before it says so.
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
            _init(address=address)
        self.joined = True

    @property
    def is_own(self) -> bool:
        """Whether this process has started it."""
        return self._lock is not None

    def leave(self) -> None:
        """Ends the cluster if it was started here."""
        import ray

        with contextlib.suppress(Exception):
            ray.shutdown()
        self.joined = False
        self._let_go()

    def _let_go(self) -> None:
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.discard()
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._file())
            os.close(lock)

    def _join_own(self, end: float) -> None:
        while True:
            descriptor = os.open(self._file(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                told = os.read(descriptor, 1 << 16)
                os.close(descriptor)
                if told.endswith(b"\n"):  # whole
                    os.environ.update(json.loads(told)["environment"])
                    _init(address=json.loads(told)["address"])
                    return
            else:
                if _is_at(descriptor, self._file()):
                    self._start(descriptor)
                    return
                os.close(descriptor)  # whoever had it has removed it meanwhile
            if time.monotonic() >= end:
                raise Unreachable("another process of this run is about to start one")
            time.sleep(0.1)

    def _start(self, descriptor: int) -> None:
        self._lock = descriptor
        _sweep(Path(self._file()).parent)
        os.ftruncate(descriptor, 0)
        self._scratch = Scratch("ray", Path("/tmp"))  # the names of Ray's sockets leave no room for a longer one
        environment = {"RAY_TMPDIR": str(self._scratch.path)}
        if os.environ.get("RAY_AUTH_MODE", "token") == "token":
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update(environment)
        try:
            found = _init(
                address="local", num_cpus=len(os.sched_getaffinity(0)), num_gpus=0, include_dashboard=False,
                object_store_memory=MEMORY,
            )  # fmt: skip
        except BaseException:
            self._let_go()
            raise
        told = {"address": found["address"], "environment": environment}
        os.write(descriptor, json.dumps(told).encode() + b"\n")

    def _file(self) -> str:
        return str(Path(tempfile.gettempdir()) / f"{_NAME}{self.run}")


def _is_at(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    ours = os.fstat(descriptor)
    return (there.st_ino, there.st_dev, ours.st_uid) == (ours.st_ino, ours.st_dev, os.geteuid())


def _sweep(folder: Path) -> None:
    """Removes the files of processes that were killed: nobody holds their locks."""
    for path in folder.glob(f"{_NAME}*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file.fileno(), str(path)):
                path.unlink()


def _probe(address: str) -> None:
    """Whether anybody listens there: Ray itself would take a minute to say so.

    Raises:
        Unreachable: nobody does.
    """
    url = urlsplit(address if "://" in address else f"//{address}")
    try:
        if url.hostname is not None and url.port is not None:
            socket.create_connection((url.hostname, url.port), PROBE_S).close()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise Unreachable(f"{address}: {said or error}") from error


def _init(address: str, **more: Any) -> dict[str, Any]:
    """Connects, and starts what is asked for.

    Raises:
        Unreachable, Refused
    """
    import logging

    import ray

    with _what_is_printed() as printed:
        try:
            context = ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **more)
        except Exception as error:  # Ray raises what it likes
            with contextlib.suppress(Exception):
                ray.shutdown()
            said = " ".join(str(error).split())[:600] or type(error).__name__
            if "ersion mismatch" in said:
                raise Refused(_other_versions(address, said)) from error
            if "AuthToken" in printed() or type(error).__name__ == "AuthenticationError":
                raise Refused(
                    f"The Ray cluster at {address} wants its token: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
                ) from error
            raise Unreachable(f"{address}: {said}") from error
    found = getattr(context, "address_info", None)  # a client has none
    return dict(found) if found is not None else {}


def _other_versions(address: str, said: str) -> str:
    """What is to be done about a cluster of other versions, from the words of Ray."""
    runs = re.findall(r"Ray: (\S+) Python: (\S+)", said)
    if len(runs) != 2:
        return f"The Ray cluster at {address} has other versions than this process: {said}"
    there, here = runs
    # Whichever is easier to change; Python itself can't be installed by pip.
    mend = f"pip install 'ray=={there[0]}' here" if there[1] == here[1] else f"run this with Python {there[1]}"
    return (
        f"The Ray cluster at {address} has Ray {there[0]} and Python {there[1]}, but this process Ray {here[0]} and "
        f"Python {here[1]}. They have to be the same: {mend}, or start the cluster with the versions of here."
    )


@contextlib.contextmanager
def _what_is_printed() -> Iterator[Callable[[], str]]:
    """Ray's core only prints why it was turned away: what is printed meanwhile, to be asked for."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")
        finally:
            os.dup2(before, 2)
            os.close(before)
