"""Processes of our own Python that can be killed: started once, a deadline an item, a budget a batch.

For work that cannot be trusted to end, such as algebra on a text that a model wrote, or a reward function:

    pool = WorkerPool("rlvr.verifiers.math.symbolic:equivalent", processes=2)
    outcomes = pool.map([["2^{10}", "1024"]], deadline_s=2.0)

A nursery process (rlvr/workers/fork_server.py) imports the function's module once and forks a worker for each place, so
that a worker that was killed is replaced within milliseconds. The nursery is a program of its own (not a fork of the
caller), so it starts from any thread, from a daemonic process of a process pool and under a launcher, and holds none of
the caller's memory. Unless workers are to be like their caller, it gets none of its environment but what Python needs
to run. Nursery and workers end with the caller, however that ends, and SIGINT and SIGTERM leave them cold until then.

Items travel as JSON, or as bytes that the function takes apart. Results are JSON: nothing that a worker says is
executed here.
"""

from __future__ import annotations

import atexit
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlvr.workers.fork_server import START_S, ForkServer, StartError, WorkerError, WorkerSpec, ending, receive, send

__all__ = ["OUT_OF_TIME", "TaskResult", "StartError", "WorkerError", "WorkerPool"]

OUT_OF_TIME = "the time for this batch ran out"
_GONE = "the workers' nursery is gone"


@dataclass(frozen=True)
class TaskResult:
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
    """Killable workers around one function of one value.

    Usable from any thread; a process that was forked from the owner gets workers of its own at its first call.

    Args:
        function: "module:function"; it takes an item and returns something JSON can carry.
        processes: how many workers at once.
        memory_mb: address space of a worker, beyond which Python raises MemoryError in it; None for no limit.
        made_with, like_caller, folder: see `rlvr.workers.fork_server.WorkerSpec`.
        start_s: how long a call waits for the nursery's imports.
    """

    def __init__(
        self,
        function: str,
        *,
        processes: int = 1,
        memory_mb: int | None = 4096,
        init_payload: bytes | None = None,
        inherit_env: bool = False,
        folder: str = "/",
        start_s: float = START_S,
    ) -> None:
        self.plan = WorkerSpec(function, init_payload, memory_mb, inherit_env, folder)
        self.processes = processes
        self.start_s = start_s
        self._lock = threading.Lock()
        self._forget()
        _pools.append(self)

    def _forget(self) -> None:
        self._nursery: ForkServer | None = None
        self._free: deque[_Worker] = deque()
        self._line: deque[_WorkerRequest] = deque()

    def map(
        self,
        items: Sequence[Any],
        *,
        deadline_s: float,
        budget_s: float | None = None,
        at_most: int | None = None,
        waiting_counts: bool = False,
    ) -> list[TaskResult]:
        """The function of each item, in the items' order.

        Args:
            items: values that JSON can carry, or bytes.
            deadline_s: seconds of wall time an item, after which its worker is killed. The time in which workers
                start is not counted.
            budget_s: seconds for all of them from the first item on; what is not done by then is "unserved".
            at_most: how many workers to use. A single one is the same as before, if that one lives.
            waiting_counts: whether the budget begins at once, and not when other threads have left a worker free.
        """
        outcomes: list[TaskResult | None] = [None] * len(items)
        waiting = deque(range(len(items)))
        begun = time.monotonic()
        patience = budget_s if waiting_counts else None
        try:
            workers = self._take(min(self.processes if at_most is None else at_most, len(items)), patience)
        except WorkerError as error:
            return [TaskResult("unserved", why=str(error))] * len(items)
        end = (begun if waiting_counts else time.monotonic()) + budget_s if budget_s is not None else None
        again: set[int] = set()
        busy: dict[int, tuple[_Worker, int, float]] = {}
        idle = list(reversed(workers))
        why = OUT_OF_TIME
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or busy:
                    now = time.monotonic()
                    if end is not None and now >= end:
                        break
                    while idle and waiting:
                        worker, index = idle.pop(), waiting.popleft()
                        if not worker.send(items[index]):
                            ended = worker.renew()
                            idle.append(worker)
                            outcomes[index] = _died(index, again, waiting, ended)
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
                            reply = worker.receive()
                            if reply is None:
                                outcomes[index] = _died(index, again, waiting, worker.renew())
                            else:
                                outcomes[index] = TaskResult(*reply)
                            del busy[place]
                            idle.append(worker)
                        elif now >= until:
                            selector.unregister(worker.socket)
                            outcomes[index] = TaskResult("late", why=f"not done after {deadline_s:g} s")
                            worker.renew()
                            del busy[place]
                            idle.append(worker)
                for worker, _, _ in busy.values():
                    worker.renew()  # ends what it is at
                busy.clear()
            except WorkerError as error:
                why = f"the workers failed: {error}"
                self._fail(workers[0].nursery)
            finally:
                for worker, _, _ in busy.values():
                    worker.leave()
                self._give_back(workers)
        return [outcome or TaskResult("unserved", why=why) for outcome in outcomes]

    def launch(self) -> None:
        """Begins to start the workers, and does not wait for them. If that fails, the first call says so."""
        with self._lock:
            self._hire()

    def start(self, workers: int | None = None) -> None:
        """Starts the workers now (or so many of them), so that the first call does not wait for them.

        Raises:
            WorkerError: they do not start; with what they printed.
        """
        self._give_back(self._take(self.processes if workers is None else workers))

    def load(self) -> tuple[int, int]:
        """How many workers are at work, and how many calls wait for one."""
        with self._lock:
            return (self.processes - len(self._free) if self._nursery is not None else 0), len(self._line)

    @property
    def started(self) -> bool:
        """Whether there are workers, or some are about to be."""
        return self._nursery is not None

    def close(self) -> None:
        """Ends all processes; the next call starts new ones."""
        with self._lock:
            nursery = self._dismiss()
        if nursery is not None:
            nursery.close()

    def _hire(self) -> ForkServer:
        """The nursery, a new one if there is none that lives. The lock is held."""
        if self._nursery is not None and not self._nursery.alive():
            self._nursery.close()
            self._dismiss()
        if self._nursery is None:
            self._nursery = ForkServer(self.plan)
            self._free = deque(_Worker(self._nursery, place) for place in range(self.processes))
        return self._nursery

    def _dismiss(self) -> ForkServer | None:
        nursery, self._nursery = self._nursery, None
        self._free.clear()
        while self._line:
            self._line.popleft().come.set()
        return nursery

    def _take(self, wanted: int, patience: float | None = None) -> list[_Worker]:
        """At least one and at most `wanted` free workers; waits so many seconds while other threads have them all.

        Threads wait in line, and only the one whose turn has come is woken: all of them would go for the same worker.
        """
        with self._lock:
            nursery = self._hire()
        turn = _WorkerRequest(max(wanted, 1))
        try:
            nursery.wait(self.start_s)
            with self._lock:
                if self._nursery is not nursery:
                    raise WorkerError(_GONE)
                self._line.append(turn)
                self._hand_out()
            try:
                turn.come.wait(patience)
            finally:
                with self._lock:
                    late = not turn.come.is_set()
                    if late:
                        self._line.remove(turn)
            if late:
                return []
            if not turn.workers:
                raise WorkerError(_GONE)
            for worker in turn.workers:
                if worker.broken:
                    worker.renew()
        except WorkerError:
            self._fail(nursery)
            raise
        return turn.workers

    def _hand_out(self) -> None:
        """Free workers go to those who are first in line. The lock is held."""
        while self._free and self._line:
            turn = self._line.popleft()
            turn.workers = [self._free.popleft() for _ in range(min(turn.wanted, len(self._free)))]
            turn.come.set()

    def _give_back(self, workers: Sequence[_Worker]) -> None:
        with self._lock:
            # In front: whoever comes next gets the ones that have worked, with what they keep in memory.
            self._free.extendleft(worker for worker in reversed(workers) if worker.nursery is self._nursery)
            self._hand_out()

    def _fail(self, nursery: ForkServer) -> None:
        """This nursery is no more: the next call starts another."""
        with self._lock:
            if self._nursery is nursery:
                self._dismiss()
        nursery.close()


class _WorkerRequest:
    """A thread in line for workers: `come` is set when it has them, or when there will be none."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.workers: list[_Worker] = []
        self.come = threading.Event()


class _Worker:
    """A place among the workers, and the line to whoever has it at present; nobody has until `renew`."""

    def __init__(self, nursery: ForkServer, place: int) -> None:
        self.nursery = nursery
        self.place = place
        self.broken = True
        self.socket: socket.socket

    def renew(self) -> int | None:
        """A fresh worker for this place; returns how the one before had ended."""
        self.leave()
        self.socket, ended = self.nursery.worker(self.place)
        self.broken = False
        return ended

    def leave(self) -> None:
        if not self.broken:
            self.socket.close()
        self.broken = True

    def send(self, item: Any) -> bool:
        try:
            send(self.socket, item)
        except OSError:
            return False
        return True

    def receive(self) -> Any:
        return receive(self.socket)


def _died(index: int, again: set[int], waiting: deque[int], ended: int | None) -> TaskResult | None:
    """A worker died over an item: once may be anybody's fault, twice running is the item's."""
    if index in again:
        return TaskResult("crashed", why=f"two workers died over it ({ending(ended)})")
    again.add(index)
    waiting.appendleft(index)
    return None


# ----------------------------------------------------------------------------------------------------------------------

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
