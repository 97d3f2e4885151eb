"""Schedule judging tasks on executor threads: callers take turns, so a small batch does not wait for a large one.

Each executor has a thread and warm processes of its own and does one task at a time. Several workers of a server may
judge at once: the kernel then shares the processors, and limits are of processor time.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

from rlvr.errors import InputError
from rlvr.sandbox.capabilities import detect_capabilities
from rlvr.verifiers.code.executor import Executor

JudgeTask = Callable[[Executor, "JudgeJob"], None]


class JudgeClosed(RuntimeError):
    """The judge was closed while it had work."""


class JudgeJob:
    """One caller's batch: its waiting tasks and the number of unfinished ones."""

    def __init__(self, scheduler: JudgeScheduler, tasks: Sequence[JudgeTask]) -> None:
        self.scheduler = scheduler
        self.waiting = deque(tasks)
        self.unfinished = len(tasks)
        self.cancelled = False
        self.error: BaseException | None = None
        self.done = threading.Event()

    def add(self, *tasks: JudgeTask) -> None:
        """Add tasks; call it from a running one."""
        with self.scheduler.changed:
            self.waiting.extend(tasks)
            self.unfinished += len(tasks)
            self.scheduler.changed.notify_all()


class JudgeScheduler:
    """Executors, each with its thread, and the jobs whose tasks they run in turns."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition(threading.RLock())
        self.jobs: deque[JudgeJob] = deque()
        self.executors: list[Executor] = []
        self.threads: list[threading.Thread] = []
        self.closed = False

    def run(self, tasks: Sequence[JudgeTask], executors: int) -> None:
        """Run tasks, and those that they add, on so many executors; return when all are done.

        Raises:
            BaseException: whatever a task raised, such as SandboxUnavailable.
        """
        if not tasks:
            return
        job = JudgeJob(self, tasks)
        try:
            with self.changed:
                self.jobs.append(job)
                self.changed.notify_all()
            self._start_executors(executors)
            while not job.done.wait(1.0):
                pass
        except BaseException:
            self._cancel(job)
            raise
        finally:
            with self.changed:
                if job in self.jobs:
                    self.jobs.remove(job)
        if job.error is not None:
            raise job.error

    def _start_executors(self, count: int) -> None:
        with self.changed:
            if self.closed:
                raise JudgeClosed("the judge was closed while it was about to start")
            for _ in range(len(self.threads), min(self.size, count)):
                executor = Executor(detect_capabilities())
                thread = threading.Thread(target=self._work, args=(executor,), name="judge", daemon=True)
                thread.start()  # it waits for the lock
                self.executors.append(executor)
                self.threads.append(thread)

    def _work(self, executor: Executor) -> None:
        while True:
            with self.changed:
                while not self.closed and not any(job.waiting for job in self.jobs):
                    self.changed.wait()
                if self.closed:
                    return
                while not self.jobs[0].waiting:
                    self.jobs.rotate(-1)
                job = self.jobs[0]
                task = job.waiting.popleft()
                self.jobs.rotate(-1)
            try:
                if not job.cancelled:
                    task(executor, job)
            except BaseException as error:  # raised again in the caller's thread; this thread continues
                job.error = job.error or error
                job.cancelled = True
            self._finish(job)

    def _finish(self, job: JudgeJob, tasks: int = 1) -> None:
        with self.changed:
            job.unfinished -= tasks
            if job.unfinished == 0:
                job.done.set()

    def _cancel(self, job: JudgeJob) -> None:
        """Kill what runs for a caller that no longer waits (Ctrl-C), and wait for the tasks to end."""
        with self.changed:
            job.cancelled = True
            self._finish(job, len(job.waiting))
            job.waiting.clear()
            for executor in self.executors:
                executor.interrupt()
        job.done.wait(10.0)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            for job in self.jobs:  # of other threads, which would otherwise wait forever
                job.error = job.error or JudgeClosed("the judge was closed while it was at work")
                job.cancelled = True
                job.waiting.clear()
                job.done.set()
            for executor in self.executors:
                executor.interrupt()
            self.changed.notify_all()
        for thread in self.threads:
            thread.join(10.0)
        for executor in self.executors:
            executor.close()


_scheduler: JudgeScheduler | None = None
_lock = threading.Lock()


def get_scheduler() -> JudgeScheduler:
    """Return this process's scheduler; the first call makes it."""
    global _scheduler
    with _lock:
        if _scheduler is None:
            _scheduler = JudgeScheduler(executor_count())
        return _scheduler


def executor_count() -> int:
    """Return how many programs run at once: GRPO_JUDGE_SLOTS, else the processors, divided among a launcher's ranks.

    Raises:
        InputError: GRPO_JUDGE_SLOTS is no positive number.
    """
    setting = os.environ.get("GRPO_JUDGE_SLOTS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    if setting:
        raise InputError(
            f"GRPO_JUDGE_SLOTS is {setting!r}. Set it to a number from 1 on, or unset it.",
            kind="invalid-environment",
            key="GRPO_JUDGE_SLOTS",
        )
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, len(os.sched_getaffinity(0)) // (int(ranks) if ranks.isdigit() and int(ranks) else 1))


def close() -> None:
    """End the judge's threads and processes. The next call starts new ones."""
    global _scheduler
    with _lock:
        scheduler, _scheduler = _scheduler, None
    if scheduler is not None:
        scheduler.close()


def _after_fork() -> None:
    """Close the parent's descriptors in a forked child: open control sockets would keep its zygotes alive."""
    global _scheduler, _lock
    for executor in _scheduler.executors if _scheduler is not None else ():
        executor.close()
    _scheduler, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close)
