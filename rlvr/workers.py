"""Processes of our own Python that can be killed: started once, a deadline an item, a budget a batch.

For work that cannot be trusted to end, such as algebra on a text that a model wrote:

    pool = WorkerPool("rlvr.answers.symbolic:equivalent", processes=2)
    outcomes = pool.map([["2^{10}", "1024"]], deadline_s=2.0)

A nursery process imports the function's module once and forks a worker for each place, so that a worker that was killed
is replaced within milliseconds. The nursery is a program of its own (not a fork of the caller), so it starts from any
thread, from a daemonic process of a process pool and under a launcher, holds none of the caller's memory, and gets none
of its environment but what Python needs to run. Nursery and workers end with the caller, however that ends.

Items and results travel as JSON: nothing that a worker says is executed here.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

START_S = 120.0  # for the nursery's imports, on a machine as busy as a machine can be
MAX_MESSAGE = 64 * 1024 * 1024

# What a Python process needs from the environment. Nothing else of it reaches a worker: no token, no proxy.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "VIRTUAL_ENV", "PYTHONHASHSEED")


class WorkerError(Exception):
    """The workers themselves are at fault: they do not start, or fail on everything."""


@dataclass(frozen=True)
class Outcome:
    """What became of one item.

    Attributes:
        status: "done"; "late": killed at its deadline; "crashed": it took down two fresh workers one after the other,
            or ran out of its memory; "failed": the function raised; "unserved": not begun, or not ended, because the
            batch's budget ran out or workers could not be had. The first four are the item's own doing, the last one
            is ours.
        value: what the function returned, if done.
        why: a few words on anything but "done".
    """

    status: Literal["done", "late", "crashed", "failed", "unserved"]
    value: Any = None
    why: str = ""


class WorkerPool:
    """Killable workers around one function of one JSON value.

    Usable from any thread; a process that was forked from the owner gets workers of its own at its first call.

    Args:
        function: "module:function"; it takes an item and returns something JSON can carry.
        processes: how many workers at once.
        memory_mb: address space of a worker, beyond which Python raises MemoryError in it.
    """

    def __init__(self, function: str, *, processes: int = 1, memory_mb: int = 4096) -> None:
        self.function = function
        self.processes = processes
        self.memory_mb = memory_mb
        self._lock = threading.Lock()
        self._forget()
        _pools.append(self)

    def _forget(self) -> None:
        self._nursery: _Nursery | None = None
        self._free: deque[_Worker] = deque()
        self._out = 0
        self._available = threading.Condition(self._lock)

    def map(self, items: Sequence[Any], *, deadline_s: float, budget_s: float | None = None) -> list[Outcome]:
        """The function of each item, in the items' order.

        Args:
            deadline_s: seconds of wall time an item, after which its worker is killed. The time in which workers
                start is not counted.
            budget_s: seconds for all of them from the first item on; what is not done by then is "unserved".
        """
        outcomes: list[Outcome | None] = [None] * len(items)
        waiting = deque(range(len(items)))
        try:
            workers = self._take(min(self.processes, len(items)))
        except WorkerError as error:
            return [Outcome("unserved", why=str(error))] * len(items)
        end = time.monotonic() + budget_s if budget_s is not None else None
        again: set[int] = set()
        busy: dict[int, tuple[_Worker, int, float]] = {}
        idle = list(workers)
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or busy:
                    now = time.monotonic()
                    if end is not None and now >= end:
                        break
                    while idle and waiting:
                        worker, index = idle.pop(), waiting.popleft()
                        if not worker.send(items[index]):
                            worker.renew()
                            idle.append(worker)
                            outcomes[index] = _died(index, again, waiting)
                            continue
                        selector.register(worker.socket, selectors.EVENT_READ)
                        busy[worker.place] = (worker, index, time.monotonic() + deadline_s)
                    if not busy:
                        continue
                    limit = min([until for _, _, until in busy.values()] + ([end] if end is not None else []))
                    ready = {key.fileobj for key, _ in selector.select(max(0.0, limit - time.monotonic()))}
                    now = time.monotonic()
                    for place, (worker, index, until) in list(busy.items()):
                        if worker.socket in ready:
                            selector.unregister(worker.socket)
                            del busy[place]
                            reply = worker.receive()
                            if reply is None:
                                outcomes[index] = _died(index, again, waiting)
                                worker.renew()
                            else:
                                outcomes[index] = Outcome(*reply)
                            idle.append(worker)
                        elif now >= until:
                            selector.unregister(worker.socket)
                            del busy[place]
                            outcomes[index] = Outcome("late", why=f"not done after {deadline_s:g} s")
                            worker.renew()
                            idle.append(worker)
            except WorkerError as error:
                waiting.clear()
                self._fail(error)
            finally:
                for worker, _, _ in busy.values():
                    worker.broken = True
                self._give_back(workers)
        unserved = Outcome("unserved", why="the workers failed" if end is None else "the time for this batch ran out")
        return [outcome or unserved for outcome in outcomes]

    def start(self) -> None:
        """Starts the workers now, so that the first call does not wait for them.

        Raises:
            WorkerError: they do not start; with what they printed.
        """
        self._give_back(self._take(self.processes))

    def close(self) -> None:
        """Ends all processes; the next call starts new ones."""
        with self._lock:
            nursery, self._nursery = self._nursery, None
            self._free.clear()
        if nursery is not None:
            nursery.close()

    def _take(self, wanted: int) -> list[_Worker]:
        """At least one and at most `wanted` free workers; waits while other threads have them all."""
        with self._lock:
            if self._nursery is not None and not self._nursery.alive():
                self._nursery.close()
                self._nursery = None
                self._free.clear()
            if self._nursery is None:
                self._nursery = _Nursery(self.function, self.memory_mb)
                self._free = deque(_Worker(self._nursery, place) for place in range(self.processes))
                self._out = 0
            while not self._free:
                self._available.wait()
            taken = [self._free.popleft() for _ in range(min(max(wanted, 1), len(self._free)))]
            self._out += len(taken)
        try:
            for worker in taken:
                if worker.broken:
                    worker.renew()
        except WorkerError:
            self._give_back(taken)
            raise
        return taken

    def _give_back(self, workers: Sequence[_Worker]) -> None:
        with self._lock:
            for worker in workers:
                if worker.nursery is self._nursery:
                    self._free.append(worker)
            self._available.notify_all()

    def _fail(self, error: WorkerError) -> None:
        """The nursery is no more: the next call starts another."""
        with self._lock:
            if self._nursery is not None:
                self._nursery.close()
            self._nursery = None
            self._free.clear()


def _died(index: int, again: set[int], waiting: deque[int]) -> Outcome | None:
    """A worker died over an item: once may be anybody's fault, twice running is the item's."""
    if index in again:
        return Outcome("crashed", why="two workers died over it")
    again.add(index)
    waiting.appendleft(index)
    return None


# ----------------------------------------------------------------------------------------------------------------------
# The caller's side

_HEADER = struct.Struct("!I")
_pools: list[WorkerPool] = []


def _after_fork() -> None:
    """In a forked child: the parent's workers are not ours, and holding their sockets would keep them alive."""
    for pool in _pools:
        if pool._nursery is not None:
            pool._nursery.abandon()
        pool._lock = threading.Lock()
        pool._forget()


def _at_exit() -> None:
    for pool in _pools:
        pool.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


class _Nursery:
    """The process that forks the workers, and the line to it."""

    def __init__(self, function: str, memory_mb: int) -> None:
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        project = str(Path(__file__).resolve().parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join([project, *(path for path in sys.path if path)])
        environment.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from rlvr.workers import _nurse; _nurse()", str(theirs.fileno()), function,
                 str(memory_mb)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment,
                pass_fds=(theirs.fileno(),), cwd="/", start_new_session=True,
            )  # fmt: skip
        self.line = ours
        self.lock = threading.Lock()
        self.workers: dict[int, socket.socket] = {}
        ours.settimeout(START_S)
        if _receive(ours) != "ready":
            self.process.kill()
            printed = self.process.stderr.read().decode(errors="replace") if self.process.stderr else ""
            self.close()
            raise WorkerError(f"The workers for {function} do not start:\n{printed[-2000:].strip()}")
        if self.process.stderr:
            self.process.stderr.close()

    def alive(self) -> bool:
        return self.process.poll() is None

    def worker(self, place: int) -> socket.socket:
        """A fresh worker for a place; the one that had it is killed."""
        ours, theirs = socket.socketpair()
        with self.lock, theirs:
            try:
                socket.send_fds(self.line, [_HEADER.pack(place)], [theirs.fileno()])
                told = self.line.recv(1)
            except OSError as error:
                ours.close()
                raise WorkerError(f"the workers' nursery is gone ({error})") from error
            if told != b"k":
                ours.close()
                raise WorkerError("the workers' nursery is gone")
        self.workers[place] = ours
        return ours

    def close(self) -> None:
        self.abandon()
        self.process.kill()  # its workers go with it (PR_SET_PDEATHSIG)
        self.process.wait()

    def abandon(self) -> None:
        self.line.close()
        for line in self.workers.values():
            line.close()


class _Worker:
    """A place among the workers, and the line to whoever has it at present."""

    def __init__(self, nursery: _Nursery, place: int) -> None:
        self.nursery = nursery
        self.place = place
        self.socket = nursery.worker(place)
        self.broken = False

    def renew(self) -> None:
        self.socket.close()
        self.socket = self.nursery.worker(self.place)
        self.broken = False

    def send(self, item: Any) -> bool:
        try:
            _send(self.socket, item)
        except OSError:
            return False
        return True

    def receive(self) -> Any:
        return _receive(self.socket)


def _send(line: socket.socket, value: Any) -> None:
    data = json.dumps(value).encode()
    line.sendall(_HEADER.pack(len(data)) + data)


def _receive(line: socket.socket) -> Any:
    """One message; None where the other side is gone."""
    try:
        header = _exactly(line, _HEADER.size)
        size = _HEADER.unpack(header)[0] if header else 0
        data = _exactly(line, size) if 0 < size <= MAX_MESSAGE else None
        return json.loads(data) if data else None
    except (OSError, ValueError):
        return None


def _exactly(line: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = line.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


# ----------------------------------------------------------------------------------------------------------------------
# The other side


def _nurse() -> None:
    """The nursery's program: imports the function, then forks a worker for every socket that it is handed."""
    descriptor, name, memory_mb = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    line = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller to deal with
    module, _, function_name = name.partition(":")
    function = getattr(importlib.import_module(module), function_name)
    _send(line, "ready")
    children: dict[int, int] = {}
    while True:
        header, descriptors, _, _ = socket.recv_fds(line, _HEADER.size, 1)
        if not header:
            break
        place = _HEADER.unpack(header)[0]
        if place in children:
            os.kill(children[place], signal.SIGKILL)  # not reaped before this line, so the number is still its own
            os.waitpid(children.pop(place), 0)
        child = os.fork()
        if child == 0:
            line.close()
            try:
                _work(socket.socket(fileno=descriptors[0]), function, memory_mb)
            finally:
                os._exit(0)
        children[place] = child
        os.close(descriptors[0])
        line.sendall(b"k")
    for child in children.values():
        os.kill(child, signal.SIGKILL)


def _work(line: socket.socket, function: Callable[[Any], Any], memory_mb: int) -> None:
    """A worker's life: an item in, an outcome out, until the caller is gone."""
    _end_with_parent()
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        item = _receive(line)
        if item is None:
            return
        try:
            reply = ("done", function(item), "")
        except MemoryError:
            reply = ("crashed", None, "it ran out of memory")
        except Exception as error:  # whatever the function raises is an outcome: this process is there to take it
            reply = ("failed", None, f"{type(error).__name__}: {str(error)[:200]}")
        _send(line, reply)


def _end_with_parent() -> None:
    """Has the kernel kill this process when its parent goes, even in the middle of a computation (Linux)."""
    import ctypes

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
