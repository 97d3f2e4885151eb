"""Call a function in worker processes that can be killed, with a timeout for each item and one for the batch.

For work that may never end, such as algebra on text that a model wrote, or a reward function:

    pool = WorkerPool("rlvr.verifiers.math.symbolic:handle_request", processes=2)
    results = pool.map([["readable", "2^{10}"]], timeout_s=2.0)

A fork server (fork_server.py) imports the function's module once and forks the workers, so that a killed worker is
replaced within milliseconds. It is a new process and not a fork of the caller. So it starts from any thread, from a
daemonic process and under a launcher, and holds none of the caller's memory. By default it gets none of the caller's
environment except what Python needs. Fork server and workers end with the caller, however that ends; they ignore
SIGINT and SIGTERM.

Items travel as JSON, or as bytes that the function decodes. Results are JSON: the caller unpickles nothing.
"""

from __future__ import annotations

import atexit
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, Literal

from rlvr.workers.fork_server import (
    POOL_CLOSED,
    START_S,
    ForkServer,
    StartError,
    WorkerError,
    WorkerSpec,
    describe_status,
)
from rlvr.workers.messages import encode, receive

__all__ = ["OUT_OF_TIME", "StartError", "Status", "TaskResult", "WorkerError", "WorkerPool"]

OUT_OF_TIME = "the time for this batch ran out"
CANCELLED = "the call was cancelled"
_CANCEL_S = 0.2  # in which a cancelled call ends

Status = Literal["done", "raised", "timeout", "crashed", "unavailable"]


_NEVER = threading.Event()  # of calls that nobody cancels


@dataclass(frozen=True)
class TaskResult:
    """The result of one item.

    Attributes:
        status: "done"; "timeout": killed after the item's timeout; "crashed": two fresh workers in a row died on it,
            or it ran out of memory; "raised": the function raised; "unavailable": not started, or not finished,
            because the batch timed out or there were no workers. Only "unavailable" says nothing about the item.
        value: the function's result, if done.
        why: the cause of any other status.
    """

    status: Status
    value: Any = None
    why: str = ""


class WorkerPool:
    """Killable workers that call one function with one item at a time.

    Usable from any thread. A forked child of the owner gets workers of its own at its first call.

    Args:
        function: "module:function"; takes an item and returns a value that JSON can represent.
        processes: number of workers.
        memory_mb: address space of a worker, beyond which Python raises MemoryError in it; None: no limit. There is
            none with `inherit_env`: compilers and programs are children of such workers.
        init_payload, inherit_env: see `rlvr.workers.fork_server.WorkerSpec`.
        folder: working directory of workers that inherit the environment; None: the current one.
        start_s: timeout of the fork server's imports.
    """

    def __init__(
        self,
        function: str,
        *,
        processes: int = 1,
        memory_mb: int | None = 4096,
        init_payload: bytes | None = None,
        inherit_env: bool = False,
        folder: str | None = None,
        start_s: float = START_S,
    ) -> None:
        folder = (folder or os.getcwd()) if inherit_env else "/"
        self.spec = WorkerSpec(function, init_payload, None if inherit_env else memory_mb, inherit_env, folder)
        self.processes = processes
        self.start_s = start_s
        self._closed = False
        self._reset()
        _pools.append(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._fork_server: ForkServer | None = None
        self._free: deque[_Worker] = deque()
        self._queue: deque[_WorkerRequest] = deque()

    def map(
        self,
        items: Sequence[Any],
        *,
        timeout_s: float,
        batch_timeout_s: float | None = None,
        max_workers: int | None = None,
        count_waiting: bool = False,
        cancelled: threading.Event = _NEVER,
    ) -> list[TaskResult]:
        """Call the function with each item; results are in the order of the items.

        Args:
            items: values that JSON can represent, or bytes.
            timeout_s: wall time of an item, after which its worker is killed. Starting workers does not count.
            batch_timeout_s: wall time of all items; unfinished ones are "unavailable".
            max_workers: number of workers to use. With 1, successive calls get the same worker while it lives.
            count_waiting: start the batch's timeout now, not when a worker is free.
            cancelled: set from any thread when nothing waits for the results any more.
        """
        timeout = math.inf if batch_timeout_s is None else batch_timeout_s
        deadline = time.monotonic() + timeout
        count = min(max_workers or self.processes, len(items))
        try:
            workers = self._acquire(count, cancelled, deadline if count_waiting else math.inf)
        except WorkerError as error:
            return [TaskResult("unavailable", why=str(error))] * len(items)
        end = deadline if count_waiting else time.monotonic() + timeout
        batch, why = _Batch(len(items), workers, timeout_s), OUT_OF_TIME
        try:
            while (batch.queue or batch.running) and time.monotonic() < end and not cancelled.is_set():
                while batch.idle and batch.queue:
                    worker, index = batch.idle.pop(), batch.queue.popleft()
                    try:
                        for part in encode(items[index]):
                            worker.channel.sendall(part)
                    except OSError:
                        batch.replace_dead(worker, index)
                    else:
                        batch.running[worker] = index, time.monotonic() + timeout_s
                if batch.running:
                    wake = min(end, *(deadline for _, deadline in batch.running.values()))
                    channels = [worker.channel for worker in batch.running]
                    batch.collect(connection.wait(channels, min(max(0.0, wake - time.monotonic()), _CANCEL_S)))
            batch.kill()
        except WorkerError as error:
            why = f"the workers failed: {error}"
            self._discard(workers[0].fork_server)
        finally:
            for worker in batch.running:
                worker.disconnect()
            self._release(workers)
        why = CANCELLED if cancelled.is_set() else why
        return [result or TaskResult("unavailable", why=why) for result in batch.results]

    def launch(self) -> None:
        """Start the fork server without waiting for it. If it fails, the first call reports it."""
        with self._lock:
            self._ensure_fork_server()

    def start(self, workers: int | None = None) -> None:
        """Start all workers, or this many, so that the first call does not wait for them.

        Raises:
            WorkerError: they do not start; with their output.
        """
        self._release(self._acquire(workers or self.processes))

    def load(self) -> tuple[int, int]:
        """The number of busy workers, and of calls that wait for a worker."""
        with self._lock:
            return (self.processes - len(self._free) if self.started else 0), len(self._queue)

    @property
    def started(self) -> bool:
        """Whether there are workers, or they are starting."""
        return self._fork_server is not None

    def close(self) -> None:
        """End all processes, for good: calls in progress and later ones are "unavailable"."""
        with self._lock:
            self._closed = True
            fork_server = self._fork_server
        if fork_server is not None:
            self._discard(fork_server)

    def _ensure_fork_server(self) -> ForkServer:
        """The fork server; started if there is none or it has ended. The thread holds the lock.

        Raises:
            WorkerError: it can't be started, or the pool is closed.
        """
        if self._closed:
            raise WorkerError(POOL_CLOSED, "pool-closed")
        if self._fork_server is not None and not self._fork_server.is_alive():
            self._fork_server.close()
            self._detach()
        if self._fork_server is None:
            self._fork_server = ForkServer(self.spec)
            self._free = deque(_Worker(self._fork_server, number) for number in range(self.processes))
        return self._fork_server

    def _detach(self) -> None:
        """Forget the fork server; calls that wait for its workers get none. The thread holds the lock."""
        self._fork_server = None
        self._free.clear()
        while self._queue:
            self._queue.popleft().ready.set()

    def _discard(self, fork_server: ForkServer) -> None:
        """Close a fork server; the next call starts another one."""
        with self._lock:
            if self._fork_server is fork_server:
                self._detach()
        fork_server.close()

    def _acquire(self, count: int, cancelled: threading.Event = _NEVER, deadline: float = math.inf) -> list[_Worker]:
        """Take between 1 and `count` free workers; none if all are busy until the deadline, or the call is cancelled.

        Threads are served in the order of their calls. One thread is woken for a free worker, not all.
        """
        with self._lock:
            fork_server = self._ensure_fork_server()
        request = _WorkerRequest(max(count, 1))
        try:
            fork_server.wait(self.start_s)
            with self._lock:
                if self._fork_server is not fork_server:
                    raise WorkerError(POOL_CLOSED, "pool-closed")
                self._queue.append(request)
                self._assign_workers()
            try:
                while not request.ready.is_set() and not cancelled.is_set() and time.monotonic() < deadline:
                    request.ready.wait(min(_CANCEL_S, max(deadline - time.monotonic(), 0.0)))
            finally:
                with self._lock:
                    if not request.ready.is_set():
                        self._queue.remove(request)
            if request.ready.is_set() and not request.workers:
                raise WorkerError(POOL_CLOSED, "pool-closed")
            for worker in request.workers:
                if not worker.is_running:
                    worker.restart()
        except WorkerError:
            self._discard(fork_server)
            raise
        return request.workers

    def _assign_workers(self) -> None:
        """Give free workers to the calls in their order. The thread holds the lock."""
        while self._free and self._queue:
            request = self._queue.popleft()
            request.workers = [self._free.popleft() for _ in range(min(request.count, len(self._free)))]
            request.ready.set()

    def _release(self, workers: Sequence[_Worker]) -> None:
        with self._lock:
            # In front, so that the next call gets the workers that were used last, with their caches.
            self._free.extendleft(worker for worker in reversed(workers) if worker.fork_server is self._fork_server)
            self._assign_workers()


class _WorkerRequest:
    """A thread that waits for workers. `ready` is set when it has them, or will get none."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.workers: list[_Worker] = []
        self.ready = threading.Event()


class _Worker:
    """A numbered worker of a fork server; it has a process after `restart`."""

    def __init__(self, fork_server: ForkServer, number: int) -> None:
        self.fork_server = fork_server
        self.number = number
        self.is_running = False
        self.channel: socket.socket

    def restart(self) -> int | None:
        """Replace the process; return the wait status of the previous one."""
        self.disconnect()
        self.channel, status = self.fork_server.replace_worker(self.number)
        self.is_running = True
        return status

    def disconnect(self) -> None:
        if self.is_running:
            self.channel.close()
        self.is_running = False


class _Batch:
    """The items of one `map` call. `running` has the index and the deadline of the item that a worker computes."""

    def __init__(self, items: int, workers: Sequence[_Worker], timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.results: list[TaskResult | None] = [None] * items
        self.queue = deque(range(items))
        self.retried: set[int] = set()
        self.idle = list(reversed(workers))
        self.running: dict[_Worker, tuple[int, float]] = {}

    def collect(self, ready: Sequence[object]) -> None:
        """Take the results of workers whose channel is ready, and replace those that died or ran out of time.

        Raises:
            WorkerError: a worker can't be replaced.
        """
        now = time.monotonic()
        for worker, (index, deadline) in list(self.running.items()):
            if worker.channel in ready:
                del self.running[worker]
                reply = receive(worker.channel)
                if reply is None:
                    self.replace_dead(worker, index)
                    continue
                self.results[index] = TaskResult(*reply)
            elif now >= deadline:
                del self.running[worker]
                self.results[index] = TaskResult("timeout", why=f"not done after {self.timeout_s:g} s")
                worker.restart()
            else:
                continue
            self.idle.append(worker)

    def replace_dead(self, worker: _Worker, index: int) -> None:
        """Retry an item once after a worker died on it: the first death may have another cause."""
        status = worker.restart()
        self.idle.append(worker)
        if index in self.retried:
            self.results[index] = TaskResult("crashed", why=f"two workers died over it ({describe_status(status)})")
            return
        self.retried.add(index)
        self.queue.appendleft(index)

    def kill(self) -> None:
        """End the computations that are still running."""
        while self.running:
            self.running.popitem()[0].restart()


# ----------------------------------------------------------------------------------------------------------------------

_pools: list[WorkerPool] = []


def _after_fork() -> None:
    """In a forked child: drop the parent's workers. Their open sockets would keep them alive."""
    for pool in _pools:
        if pool._fork_server is not None:
            pool._fork_server.close_after_fork()
        pool._reset()


def _at_exit() -> None:
    for pool in _pools:
        pool.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
