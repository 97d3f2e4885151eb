"""The judge's threads, and whose work they do: callers take turns, so that a small batch does not wait for a large one.

Each slot is a thread with warm processes of its own, and does one thing at a time. Where several workers of a server
judge at once, each uses its share of the slots (rlvr/workers/cpu_share.py): more programs than processors would only
drive one another out of the caches.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable

from rlvr.errors import InputError
from rlvr.sandbox.capabilities import detect_capabilities
from rlvr.verifiers.code.executor import Executor
from rlvr.workers.cpu_share import judge_cpu_share

JudgeTask = Callable[[Executor], None]
_LOOK_S = 0.1  # after which a slot beyond the share looks whether others are done


class JudgeJob:
    """One caller's batch: its waiting pieces of work, and how many are unfinished."""

    def __init__(self, pool: JudgeScheduler) -> None:
        self.pool = pool
        self.waiting: deque[JudgeTask] = deque()
        self.unfinished = 1  # for the filling itself, so that it is not done before it has begun
        self.filled = False
        self.cancelled = False
        self.error: BaseException | None = None
        self.done = threading.Event()

    def add(self, unit: JudgeTask) -> None:
        with self.pool.changed:
            self.waiting.append(unit)
            self.unfinished += 1
            self.pool.say()
            self.pool.changed.notify()


class JudgeScheduler:
    """The slots, each with its thread, and the callers whose work they do in turns.

    Args:
        size: slots.
        shared: whether other workers of the same server judge on the same processors.
    """

    def __init__(self, size: int, *, shared: bool = False) -> None:
        self.size = size
        self.shared = shared
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.room = threading.Condition(lock)  # where slots beyond the share wait
        self.calls: deque[JudgeJob] = deque()
        self.slots: list[Executor] = []
        self.threads: list[threading.Thread] = []
        self.closed = False
        self._share = size

    def run(self, begin: Callable[[JudgeJob], None], pieces: int) -> None:
        """Has a caller's work done; returns when it is.

        Args:
            begin: puts pieces of work into the call; these may put more.
            pieces: how many there may be at once.

        Raises:
            BaseException: whatever a piece of work raised that is no verdict (SandboxUnavailable, a defect here).
        """
        call = JudgeJob(self)
        with self.changed:
            self.calls.append(call)
        try:
            self._start(pieces)
            begin(call)
            with self.changed:
                self._fill(call)
            while not call.done.wait(1.0):
                pass
        except BaseException:
            self._cancel(call)
            raise
        finally:
            with self.changed:
                if call in self.calls:
                    self.calls.remove(call)
                self.say()
        if call.error is not None:
            raise call.error

    def say(self) -> None:
        """Tells other workers how many slots this one could use now. The lock is held."""
        if self.shared:
            judge_cpu_share.set_demand(max(0, min(self.size, sum(call.unfinished for call in self.calls))))

    def _start(self, pieces: int) -> None:
        with self.changed:
            if self.closed:
                raise RuntimeError("the judge was closed while it was about to start")
            for place in range(len(self.threads), min(self.size, max(pieces, 1))):
                slot = Executor(detect_capabilities())
                thread = threading.Thread(target=self._work, args=(slot, place), name="judge", daemon=True)
                thread.start()  # it waits for the lock; where none can be started, the place is free for the next
                self.slots.append(slot)
                self.threads.append(thread)

    def _work(self, slot: Executor, place: int) -> None:
        while True:
            with self.changed:
                if not self._await(place):
                    return
                while not self.calls[0].waiting:
                    self.calls.rotate(-1)
                call = self.calls[0]
                unit = call.waiting.popleft()
                self.calls.rotate(-1)
            try:
                if not call.cancelled:
                    unit(slot)
            except BaseException as error:  # to be raised where the caller waits; this thread goes on
                call.error = call.error or error
                call.cancelled = True
            self._finish(call)

    def _await(self, place: int) -> bool:
        """Until there is work for the slot in this place; False: there will be none. The lock is held."""
        while not self.closed:
            if not any(call.waiting for call in self.calls):
                self.changed.wait()
                continue
            before, self._share = self._share, judge_cpu_share.share_of(self.size) if self.shared else self.size
            if self._share > before:
                self.room.notify_all()
            if place < self._share:
                return True
            self.changed.notify()  # whoever may do what this one was woken for
            self.room.wait(_LOOK_S if place == self._share else None)  # the first of them looks for all
        return False

    def _fill(self, call: JudgeJob) -> None:
        """No more work comes from outside the call. The lock is held."""
        if not call.filled:
            call.filled = True
            self._finish(call)

    def _finish(self, call: JudgeJob, pieces: int = 1) -> None:
        with self.changed:
            call.unfinished -= pieces
            self.say()
            if call.unfinished == 0:
                call.done.set()

    def _cancel(self, call: JudgeJob) -> None:
        """Ends what runs for a caller that no longer waits (Ctrl-C), and waits for that."""
        with self.changed:
            call.cancelled = True
            self._fill(call)
            self._finish(call, len(call.waiting))
            call.waiting.clear()
            for slot in self.slots:
                slot.interrupt()
        call.done.wait(10.0)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            for call in self.calls:  # of other threads, which would wait for ever
                call.error = call.error or RuntimeError("the judge was closed while it was at work")
                call.cancelled = True
                call.waiting.clear()
                call.done.set()
            for slot in self.slots:
                slot.interrupt()
            self.changed.notify_all()
            self.room.notify_all()
        for thread in self.threads:
            thread.join(10.0)
        for slot in self.slots:
            slot.close()

    def forget(self) -> None:
        """In a forked child: the parent's processes are not ours, and holding their lines would keep them alive."""
        for slot in self.slots:
            slot.close()


_the_pool: JudgeScheduler | None = None
_pool_lock = threading.Lock()


def pool() -> JudgeScheduler:
    """This process's, made at the first call."""
    global _the_pool
    with _pool_lock:
        if _the_pool is None:
            _the_pool = JudgeScheduler(slots(), shared=not os.environ.get("GRPO_JUDGE_SLOTS"))
        return _the_pool


def slots() -> int:
    """How many programs run at once: the processors of this machine, shared among the processes of a launcher."""
    chosen = os.environ.get("GRPO_JUDGE_SLOTS", "")
    if chosen:
        if not chosen.isdigit() or int(chosen) < 1:
            raise InputError(f"GRPO_JUDGE_SLOTS is {chosen!r}, but should be a number from 1 on.")
        return int(chosen)
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, len(os.sched_getaffinity(0)) // (int(ranks) if ranks.isdigit() and int(ranks) else 1))


def close() -> None:
    """Ends the judge's threads and processes; the next call starts new ones."""
    global _the_pool
    with _pool_lock:
        pool, _the_pool = _the_pool, None
    if pool is not None:
        pool.close()


def _after_fork() -> None:
    global _the_pool, _pool_lock
    pool, _the_pool = _the_pool, None
    _pool_lock = threading.Lock()
    if pool is not None:
        pool.forget()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close)
