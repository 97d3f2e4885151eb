"""The process that forks workers (rlvr/workers/pool.py), the line to it, and what both sides say on it.

A message is a length, a mark and a text: JSON, or bytes as they are. Bytes go to workers only, so that nothing that a
worker says is executed here.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.workers import cpu_share

START_S = 120.0  # for the nursery's imports, on a machine as busy as a machine can be
CLOSE_S = 2.0  # for the nursery to end its workers, and all that they have started
MAX_MESSAGE = 64 * 1024 * 1024  # from a worker

# What a Python process needs from the environment. Nothing else of it reaches a worker that is not the caller's like.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "VIRTUAL_ENV", "PYTHONHASHSEED")


class WorkerError(Exception):
    """The workers themselves are at fault: they do not start, or fail on everything."""


class StartError(WorkerError):
    """They do not start, and would not the next time: what they import fails, or takes too long."""


@dataclass(frozen=True)
class WorkerSpec:
    """What a nursery is for.

    Attributes:
        function: "module:function", of one item.
        made_with: if not None, that function is called with it once in the nursery, and what it returns is the
            function of the items.
        memory_mb: address space of a worker; None: as much as there is.
        like_caller: for code that the user has written. Workers are given the caller's environment (without its GPUs,
            and with one thread for algebra), its folder, and its standard error for all that they print.
        folder: where workers work that are the caller's like.
    """

    function: str
    init_payload: bytes | None = None
    memory_mb: int | None = None
    inherit_env: bool = False
    folder: str = "/"


# ----------------------------------------------------------------------------------------------------------------------
# Messages

_HEADER = struct.Struct("!?Q")
_NUMBER = struct.Struct("!i")


def send(line: socket.socket, value: Any) -> None:
    raw = isinstance(value, bytes)
    _send_data(line, value if raw else json.dumps(value).encode(), raw=raw)


def _send_data(line: socket.socket, data: bytes, *, raw: bool) -> None:
    if len(data) < 1 << 16:
        line.sendall(_HEADER.pack(raw, len(data)) + data)
    else:
        line.sendall(_HEADER.pack(raw, len(data)))
        line.sendall(data)


def receive(line: socket.socket, most: int | None = MAX_MESSAGE) -> Any:
    """One message, None where the other side is gone: at most so many bytes of JSON, or (None) whatever comes."""
    try:
        header = _exactly(line, _HEADER.size)
        if header is None:
            return None
        raw, size = _HEADER.unpack(header)
        if most is not None and (raw or size > most):
            return None
        data = _exactly(line, size)
        if raw or not data:
            return data
        return json.loads(data)
    except (OSError, ValueError):
        return None


def _exactly(line: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        count = line.recv_into(view[got:])
        if not count:
            return None
        got += count
    return bytes(data)


# ----------------------------------------------------------------------------------------------------------------------
# The caller's side

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); descriptor = int(sys.argv.pop()); "
    "from rlvr.workers.fork_server import serve_forks; serve_forks(descriptor)"
)


class ForkServer:
    """The process that forks the workers, and the line to it. It imports while its maker goes on: see `wait`.

    Raises:
        WorkerError: no process can be started.
    """

    def __init__(self, plan: WorkerSpec) -> None:
        self.plan = plan
        self.lock = threading.Lock()
        self.line, theirs = socket.socketpair()
        self.workers: dict[int, socket.socket] = {}
        self._ready = False
        self._closed = False
        loud = _standard_error() if plan.inherit_env else None
        try:
            with theirs:
                # With -P nothing is imported from the folder it starts in before the caller's own path is set.
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), json.dumps(_import_path())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL if loud is None else loud,
                    stderr=loud if plan.inherit_env and loud is not None else subprocess.PIPE,
                    env=_environment(plan), pass_fds=(theirs.fileno(),), cwd=plan.folder if plan.inherit_env else "/",
                    start_new_session=True,
                )  # fmt: skip
            send(self.line, {"function": plan.function, "memory_mb": plan.memory_mb, "loud": plan.inherit_env})
            send(self.line, plan.init_payload if plan.init_payload is not None else None)
        except OSError as error:
            self.line.close()
            raise WorkerError(f"The workers for {plan.function} do not start: {error}") from error
        finally:
            if loud is not None:
                os.close(loud)

    def wait(self, seconds: float) -> None:
        """Until it has made its imports.

        Raises:
            StartError: it does not start; with what it says, or printed.
            WorkerError: it was closed meanwhile.
        """
        with self.lock:
            if self._ready:
                return
            with contextlib.suppress(OSError):  # it was closed
                self.line.settimeout(seconds)
            said = receive(self.line)
            if said == "ready":
                self._ready = True
                with contextlib.suppress(OSError):
                    self.line.settimeout(START_S)
                if self.process.stderr:
                    self.process.stderr.close()
                return
        if self._closed:
            raise WorkerError("the workers were closed")
        late = self.process.poll() is None and said is None
        self.process.kill()
        printed = self.process.stderr.read().decode(errors="replace") if self.process.stderr else ""
        self.close()
        if isinstance(said, dict):
            raise StartError(str(said.get("failed")))
        reason = printed[-2000:].strip()
        if not reason:
            ended = f"the process ended while it imported ({ending(_status(self.process.returncode))})"
            reason = f"not ready after {seconds:g} s" if late else ended
        raise StartError(f"The workers for {self.plan.function} do not start:\n{reason}")

    def alive(self) -> bool:
        return self.process.poll() is None

    def worker(self, place: int) -> tuple[socket.socket, int | None]:
        """A fresh worker for a place; the one that had it is killed, and how it had ended before that is returned."""
        ours, theirs = socket.socketpair()
        with self.lock, theirs:
            try:
                socket.send_fds(self.line, [_NUMBER.pack(place)], [theirs.fileno()])
                told = _exactly(self.line, _NUMBER.size)
            except OSError as error:
                ours.close()
                raise WorkerError(f"the workers' nursery is gone ({error})") from error
            if told is None:
                ours.close()
                raise WorkerError("the workers' nursery is gone")
            self.workers[place] = ours
        ours.settimeout(START_S)  # for a worker that was stopped: neither alive nor dead
        status = _NUMBER.unpack(told)[0]
        return ours, None if status < 0 else status

    def close(self) -> None:
        """Ends the nursery, the workers, and what they have started."""
        self._closed = True
        for line in (self.line, *self.workers.values()):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)  # wakes threads that wait for it, as closing would not
        self.workers.clear()
        self.line.close()
        if self._ready:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(CLOSE_S)
        self.process.kill()  # its workers go with it (PR_SET_PDEATHSIG)
        self.process.wait()

    def abandon(self) -> None:
        """In a forked child: closes what is its parent's."""
        self.line.close()
        for line in self.workers.values():
            line.close()


def ending(status: int | None) -> str:
    """What waitpid says of a process, in words."""
    if status is None:
        return "it is not known how"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return f"{name}, as when there is no more memory" if number == signal.SIGKILL else name
    return f"exit status {os.waitstatus_to_exitcode(status)}"


def _status(returncode: int) -> int:
    return -returncode if returncode < 0 else returncode << 8


def _import_path() -> list[str]:
    project = str(Path(__file__).resolve().parents[2])
    found = [os.path.abspath(entry) for entry in sys.path]  # "" is the working directory
    return found if project in found else [*found, project]


def _environment(plan: WorkerSpec) -> dict[str, str]:
    if not plan.inherit_env:
        kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # The order of a set of words is then the same in every worker, so that rewards that depend on it are, too.
    return {"PYTHONHASHSEED": "0", **os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def _standard_error() -> int | None:
    try:
        return os.dup(2)
    except OSError:
        return None


# ----------------------------------------------------------------------------------------------------------------------
# The other side


def serve_forks(descriptor: int) -> None:
    """The nursery's program: imports the function, then forks a worker for every socket that it is handed."""
    line = socket.socket(fileno=descriptor)
    ignore_signals()
    # What workers start is not to inherit that: a function may well end its own processes by SIGTERM.
    os.register_at_fork(after_in_child=_mind_signals)
    plan, init_payload = receive(line, None), receive(line, None)
    if plan is None:
        return
    if plan["loud"]:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        function = _found(plan["function"], init_payload)
    except Exception as error:
        if not plan["loud"]:
            raise
        with contextlib.suppress(OSError):  # the caller is gone
            send(line, {"failed": _said(error)})
        os._exit(1)
    try:
        send(line, "ready")
    except OSError:
        os._exit(0)
    # What has been imported stays: no worker's collector is to walk through it, and to copy its pages by that.
    gc.freeze()
    children: dict[int, int] = {}
    while True:
        try:
            number, descriptors, _, _ = socket.recv_fds(line, _NUMBER.size, 1)
        except OSError:
            break
        if not number:
            break
        place = _NUMBER.unpack(number)[0]
        status = _end(children.pop(place)) if place in children else -1
        cpu_share.judging.leave(place)
        child = os.fork()
        if child == 0:
            line.close()
            cpu_share.judging.join(place)
            try:
                _work(socket.socket(fileno=descriptors[0]), function, plan["memory_mb"])
            finally:
                os._exit(0)
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        children[place] = child
        os.close(descriptors[0])
        with contextlib.suppress(OSError):
            line.sendall(_NUMBER.pack(status))
    for child in children.values():
        _end(child)
    os._exit(0)


def _found(name: str, init_payload: bytes | None) -> Callable[[Any], Any]:
    module, _, function_name = name.partition(":")
    function: Callable[[Any], Any] = getattr(importlib.import_module(module), function_name)
    return function if init_payload is None else function(init_payload)


def _said(error: Exception) -> str:
    from rlvr.errors import InputError

    return str(error) if isinstance(error, InputError) else "".join(traceback.format_exception(error)).rstrip()


def _end(child: int) -> int:
    """Kills a worker and what it has started; returns how it ended, which may have been before."""
    for kill in (os.killpg, os.kill):  # it has not been waited for, so the number is still its own
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    try:
        return os.waitpid(child, 0)[1]
    except ChildProcessError:
        return -1


def _work(line: socket.socket, function: Callable[[Any], Any], memory_mb: int | None) -> None:
    """A worker's life: an item in, an outcome out, until the caller is gone."""
    _end_with_parent()
    ignore_signals()
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # a group of its own, by which all that it starts can be ended with it
    import resource

    if memory_mb is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        item = receive(line, None)
        if item is None:
            return
        try:
            reply = ("done", function(item), "")
        except MemoryError:
            reply = ("crashed", None, "it ran out of memory")
        except Exception as error:  # whatever the function raises is an outcome: this process is there to take it
            reply = ("failed", None, f"{type(error).__name__}: {str(error)[:200]}")
        data = json.dumps(reply).encode()
        if len(data) > MAX_MESSAGE:
            data = json.dumps(("failed", None, f"its result is longer than {MAX_MESSAGE >> 20} MB")).encode()
        _send_data(line, data, raw=False)


_SIGNALS: Mapping[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


def ignore_signals() -> None:
    """Launchers signal everybody: it is for the caller to say when work ends. Programs that are executed mind them."""
    for number in _SIGNALS:
        signal.signal(number, _unmoved)


def _mind_signals() -> None:
    for number, handler in _SIGNALS.items():
        if signal.getsignal(number) is _unmoved:
            signal.signal(number, handler)


def _unmoved(number: int, frame: object) -> None:
    pass


def _end_with_parent() -> None:
    """Has the kernel kill this process when its parent goes, even in the middle of a computation (Linux)."""
    import ctypes

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
