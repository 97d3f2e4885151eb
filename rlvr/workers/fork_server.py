"""Start, use and end the fork server of a worker pool (rlvr/workers/pool.py).

The fork server is a process of its own: it imports the function once, then forks workers (fork_server_main.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rlvr.workers.messages import receive, receive_exactly, send

START_S = 120.0  # timeout of the fork server's imports; machines can be very busy
CLOSE_S = 2.0  # timeout of ending all workers and what they have started
INT32 = struct.Struct("!i")
POOL_CLOSED = "the worker pool was closed"

# The variables that Python needs. Workers that do not inherit the caller's environment get no others.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "VIRTUAL_ENV", "PYTHONHASHSEED")

_PROGRAM = (
    "import json, sys; config = json.loads(sys.argv.pop()); sys.path[:] = config.pop('path'); "
    "from rlvr.workers.fork_server_main import fork_workers, serve_items; serve_items(*fork_workers(**config))"
)


class WorkerError(Exception):
    """The workers themselves fail: they do not start, or the fork server ended.

    Attributes:
        kind: short stable slug, such as "pool-closed".
    """

    def __init__(self, message: str, kind: str = "workers-unavailable") -> None:
        super().__init__(message)
        self.kind = kind


class StartError(WorkerError):
    """The workers do not start, and a retry would not help: an import fails, or takes too long."""

    def __init__(self, message: str, kind: str = "start-failed") -> None:
        super().__init__(message, kind)


@dataclass(frozen=True)
class WorkerSpec:
    """What the workers of a pool run, and in which environment.

    Attributes:
        function: "module:function", called with one item.
        init_payload: if not None, the fork server calls that function once with this payload; the result is the
            function that is called with items.
        memory_mb: address space of a worker; None: no limit.
        inherit_env: for code of the user: workers inherit the caller's environment (without its GPUs, and with one
            thread for linear algebra), and print to its standard error.
        folder: working directory.
    """

    function: str
    init_payload: bytes | None = None
    memory_mb: int | None = None
    inherit_env: bool = False
    folder: str = "/"


class ForkServer:
    """The fork server's process, and the channel to it. It imports in the background: see `wait`.

    Raises:
        WorkerError: no process can be started.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.lock = threading.Lock()
        self.channel, remote = socket.socketpair()
        self.workers: dict[int, socket.socket] = {}
        self._ready = False
        self._closed = False
        config = {
            "path": _import_path(),
            "descriptor": remote.fileno(),
            "function": spec.function,
            "memory_mb": spec.memory_mb,
            "inherit_env": spec.inherit_env,
        }
        try:
            with remote, _open_output(spec) as output:
                # With -P nothing is imported from the working directory before the caller's sys.path is set.
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, json.dumps(config)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=_environment(spec),
                    pass_fds=(remote.fileno(),),
                    cwd=spec.folder,
                    start_new_session=True,
                )
            send(self.channel, spec.init_payload)
        except OSError as error:
            self.channel.close()
            raise WorkerError(f"The workers for {spec.function} do not start: {error}") from error

    def wait(self, timeout_s: float) -> None:
        """Wait until the fork server has made its imports.

        Raises:
            StartError: it does not start; with its error.
            WorkerError: it was closed meanwhile.
        """
        with self.lock:
            if self._ready:
                return
            with contextlib.suppress(OSError):  # closed
                self.channel.settimeout(timeout_s)
            reply = receive(self.channel)
            if reply == "ready":
                self._ready = True
                with contextlib.suppress(OSError):
                    self.channel.settimeout(START_S)
                return
        if self._closed:
            raise WorkerError(POOL_CLOSED, "pool-closed")
        timed_out = self.process.poll() is None
        self.close()
        if isinstance(reply, dict):
            raise StartError(str(reply.get("failed")))
        code = self.process.returncode
        ended = describe_status(-code if code < 0 else code << 8)
        reason = f"not ready after {timeout_s:g} s" if timed_out else f"the process ended while importing ({ended})"
        kind = "start-timeout" if timed_out else "start-failed"
        raise StartError(f"The workers for {self.spec.function} do not start: {reason}", kind)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def replace_worker(self, number: int) -> tuple[socket.socket, int | None]:
        """Start a worker under this number; the one that had the number is killed.

        Returns:
            the channel to the worker, and the wait status of the previous one if it had ended before.
        """
        ours, theirs = socket.socketpair()
        with self.lock, theirs:
            try:
                socket.send_fds(self.channel, [INT32.pack(number)], [theirs.fileno()])
                reply = receive_exactly(self.channel, INT32.size)
            except OSError:
                reply = None
            if reply is None:
                ours.close()
                raise WorkerError("the fork server has ended", "fork-server-ended")
            self.workers[number] = ours
        ours.settimeout(START_S)  # for a worker that was stopped by SIGSTOP
        status = INT32.unpack(reply)[0]
        return ours, None if status < 0 else status

    def close(self) -> None:
        """End the fork server, its workers, and what they have started."""
        self._closed = True
        for channel in (self.channel, *self.workers.values()):
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)  # wakes threads that wait for it; close() would not
        self.workers.clear()
        self.channel.close()
        if self._ready:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(CLOSE_S)
        self.process.kill()  # its workers end with it (PR_SET_PDEATHSIG)
        self.process.wait()

    def close_after_fork(self) -> None:
        """In a forked child: close the parent's descriptors."""
        self.channel.close()
        for channel in self.workers.values():
            channel.close()


def describe_status(status: int | None) -> str:
    """Describe a wait status (os.waitpid)."""
    if status is None:
        return "unknown wait status"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return f"{name}, as when memory runs out" if number == signal.SIGKILL else name
    return f"exit status {os.waitstatus_to_exitcode(status)}"


def _import_path() -> list[str]:
    project = str(Path(__file__).resolve().parents[2])
    entries = [os.path.abspath(entry) for entry in sys.path]  # "" is the working directory
    return entries if project in entries else [*entries, project]


def _open_output(spec: WorkerSpec) -> BinaryIO:
    if spec.inherit_env:
        with contextlib.suppress(OSError):  # it is closed
            return open(os.dup(2), "wb")
    return open(os.devnull, "wb")


def _environment(spec: WorkerSpec) -> dict[str, str]:
    if not spec.inherit_env:
        kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # With one hash seed, sets of strings have the same order in every worker: so do rewards that depend on it.
    return {"PYTHONHASHSEED": "0", **os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
