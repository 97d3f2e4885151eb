"""Join a Ray cluster: the one that a recipe or RAY_ADDRESS names, or one that this process starts.

The processes of one launcher on this machine use one cluster. The process that holds the lock of a file has started it,
and has written its address into that file. If that process ends, its cluster ends with it, and the kernel releases the
lock; another process then starts a cluster. Such a cluster has a random token, no dashboard and no usage statistics.
Its files are in a folder that is removed with it.
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

OBJECT_STORE_BYTES = 1 << 30  # of a cluster that is started here; more spills to the disk
PROBE_TIMEOUT_S = 2.0
_NAME = f"grpo-recipes-{os.geteuid()}-ray-"


class Refused(Exception):
    """There is a cluster that this process can't join, and waiting would not help."""


class Unreachable(Exception):
    """There is no cluster, or not yet."""


class Cluster:
    """The cluster of this process.

    Args:
        where: of the recipe.
        run: identifies the run; its processes use one cluster.
    """

    def __init__(self, where: str, run: str) -> None:
        self.where = where
        self.run = run
        self.joined = False
        self._lock: int | None = None  # descriptor of the locked file, if this process has started the cluster
        self._scratch: Scratch | None = None

    def join(self, end: float) -> None:
        """Join the cluster, unless this process has joined.

        Args:
            end: by `time.monotonic`.

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
            # Retries take a second each. By default, Ray reports a wrong token only after twenty. Read on import.
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
            _init(address=address)
        self.joined = True

    @property
    def is_own(self) -> bool:
        """Whether this process has started the cluster."""
        return self._lock is not None

    def leave(self) -> None:
        """Leave the cluster, and end it if this process has started it."""
        import ray

        with contextlib.suppress(Exception):
            ray.shutdown()
        self.joined = False
        self._release()

    def _release(self) -> None:
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
                content = os.read(descriptor, 1 << 16)
                os.close(descriptor)
                if content.endswith(b"\n"):  # completely written
                    settings = json.loads(content)
                    os.environ.update(settings["environment"])
                    _init(address=settings["address"])
                    return
            else:
                if _is_at(descriptor, self._file()):
                    self._start(descriptor)
                    return
                os.close(descriptor)  # the former holder has removed the file meanwhile
            if time.monotonic() >= end:
                raise Unreachable("another process of this run is starting one")
            time.sleep(0.1)

    def _start(self, descriptor: int) -> None:
        self._lock = descriptor
        _sweep(Path(self._file()).parent)
        os.ftruncate(descriptor, 0)
        self._scratch = Scratch("ray", Path("/tmp"))  # Ray's socket paths leave no room for a longer folder
        environment = {"RAY_TMPDIR": str(self._scratch.path)}
        if os.environ.get("RAY_AUTH_MODE", "token") == "token":
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update(environment)
        try:
            address_info = _init(
                address="local",
                num_cpus=len(os.sched_getaffinity(0)),
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
            )
        except BaseException:
            self._release()
            raise
        settings = {"address": address_info["address"], "environment": environment}
        os.write(descriptor, json.dumps(settings).encode() + b"\n")

    def _file(self) -> str:
        return str(Path(tempfile.gettempdir()) / f"{_NAME}{self.run}")


def _is_at(descriptor: int, path: str) -> bool:
    try:
        at_path = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    opened = os.fstat(descriptor)
    return (at_path.st_ino, at_path.st_dev, opened.st_uid) == (opened.st_ino, opened.st_dev, os.geteuid())


def _sweep(folder: Path) -> None:
    """Remove the files of processes that were killed: their locks are free."""
    for path in folder.glob(f"{_NAME}*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file.fileno(), str(path)):
                path.unlink()


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


def _init(address: str, **more: Any) -> dict[str, Any]:
    """Call `ray.init`, and return the address information.

    Raises:
        Unreachable, Refused
    """
    import logging

    import ray

    with _captured_stderr() as captured:
        try:
            context = ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **more)
        except Exception as error:  # Ray raises errors of any type
            with contextlib.suppress(Exception):
                ray.shutdown()
            cause = " ".join(str(error).split())[:600] or type(error).__name__
            if "ersion mismatch" in cause:
                raise Refused(_version_mismatch(address, cause)) from error
            if "AuthToken" in captured() or type(error).__name__ == "AuthenticationError":
                raise Refused(
                    f"The Ray cluster at {address} requires its token: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
                ) from error
            raise Unreachable(f"{address}: {cause}") from error
    address_info = getattr(context, "address_info", None)  # a client has none
    return dict(address_info) if address_info is not None else {}


def _version_mismatch(address: str, message: str) -> str:
    """The fix for a cluster with other versions, from Ray's message."""
    versions = re.findall(r"Ray: (\S+) Python: (\S+)", message)
    if len(versions) != 2:
        return f"The Ray cluster at {address} has other versions than this process: {message}"
    (ray, python), (own_ray, own_python) = versions
    fix = f"pip install 'ray=={ray}' here" if python == own_python else f"run this with Python {python}"
    return (
        f"The Ray cluster at {address} has Ray {ray} and Python {python}, but this process has Ray {own_ray} and "
        f"Python {own_python}. They must be the same: {fix}, or start the cluster with the versions of this process."
    )


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
