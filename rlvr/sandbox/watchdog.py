"""Kill a zygote's children that exceed a limit, by /proc and process file descriptors."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time

from rlvr.sandbox.limits import Limits

# A program may grow by a quarter of its memory limit and 32 MB between two looks. They are so frequent that it would
# have to fill memory faster than this, in bytes per second.
_MAX_GROWTH = 8e9
# A program that waits for a processor is not idle. It is still stopped after this many times its wall time.
_MAX_WALL_FACTOR = 12
_MIN_TIMES_S = 0.02  # between two looks at the times
_COMPILER_TIMES_S = 0.5
_KILL_S = 0.2  # between two attempts to kill
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED: turns a process number into the number of its CPU-time clock


class Watchdog:
    """Watch the children of one zygote.

    Args:
        nested: whether children may have children of their own, in one process group each (compilers).
    """

    def __init__(self, zygote: int, *, nested: bool) -> None:
        self.zygote = zygote
        self.nested = nested
        # The waiting times of a compiler's processes vanish with them, so they are read while these run.
        self._max_times_s = _COMPILER_TIMES_S if nested else math.inf
        self.start(Limits())

    def start(self, limits: Limits) -> None:
        """Begin a run. Call `check` after `next_check_s` seconds."""
        self.stopped = ""  # the limit for which the program was killed: "memory", "cpu", "idle"
        self.interrupted = False
        self._limits = limits
        self._memory_bytes = limits.memory_mb * (1 << 20)
        self._started = time.monotonic()
        self._times_due = self._started + min(limits.time_s, limits.idle_s, self._max_times_s)
        self._killed: float | None = None
        self._program: list[int] = []
        self._waited_ns: dict[tuple[int, str], int] = {}  # by process and thread, as last seen
        self._schedule(self._started, resident=0)

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def killed_s(self) -> float:
        """Seconds since the program was first killed; 0 if it was not."""
        return time.monotonic() - self._killed if self._killed is not None else 0.0

    def check(self) -> None:
        """Kill the program if it exceeds a limit."""
        now = time.monotonic()
        resident = self._resident_bytes()
        if not self.stopped and resident > self._memory_bytes:
            self.stopped = "memory"
        if not self.stopped and now >= self._times_due:
            self._check_times(now)
        if self.stopped or self.interrupted:
            self._killed = self._killed or now
            self.kill()
            self.next_check_s = _KILL_S
        else:
            self._schedule(now, resident)

    def _schedule(self, now: float, resident: int) -> None:
        growth = 1.25 * self._memory_bytes + (32 << 20) - resident
        self.next_check_s = min(growth / _MAX_GROWTH, self._times_due - now)

    def _check_times(self, now: float) -> None:
        limits, wall_s = self._limits, now - self._started
        computed_s, waited_s, threads = self._times()
        idle_s = wall_s - computed_s - waited_s
        if computed_s >= limits.time_s:
            self.stopped = "cpu"
        elif idle_s >= limits.idle_s or wall_s >= _MAX_WALL_FACTOR * (limits.idle_s + limits.time_s):
            self.stopped = "idle"
        left_s = min((limits.time_s - computed_s) / threads, limits.idle_s - idle_s)
        self._times_due = now + min(max(left_s, _MIN_TIMES_S), self._max_times_s)

    def _times(self) -> tuple[float, float, int]:
        """Return the seconds that all children computed, those that they waited for a processor, and their threads.

        Times that the kernel does not tell count as 0. No more threads count than can compute at once.
        """
        computed_ns = threads = 0
        for process in self._processes():
            with contextlib.suppress(OSError, ValueError, IndexError):
                for thread in _threads(process):
                    threads += 1
                    self._waited_ns[process, thread] = int(_read(f"/proc/{process}/task/{thread}/schedstat").split()[1])
                computed_ns += time.clock_gettime_ns((~process << 3) | _PROCESS_CLOCK)
                # CPU time of its children that have ended.
                ended_ticks = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()[13:15]
                computed_ns += sum(map(int, ended_ticks)) * (1_000_000_000 // _TICKS_PER_S)
        waited_ns = sum(self._waited_ns.values())
        return computed_ns / 1e9, waited_ns / 1e9, min(max(threads, 1), os.cpu_count() or 1)

    def _resident_bytes(self) -> int:
        pages = 0
        for process in self._processes():
            resident = _resident_pages(str(process))
            with contextlib.suppress(OSError, ValueError):
                if resident == 0:  # a main thread that has ended has no memory, while other threads may go on
                    resident = max(_resident_pages(f"{process}/task/{thread}") for thread in _threads(process))
            pages += resident
        return pages * _PAGE_SIZE

    def _processes(self) -> list[int]:
        self._program = self._program or self.children()  # a run has one; it may not be forked yet
        processes = list(self._program)
        for process in processes if self.nested else ():  # the list grows within the loop
            with contextlib.suppress(OSError, ValueError):
                processes += _listed_children(process)
        return processes

    def children(self) -> list[int]:
        try:
            return _listed_children(self.zygote)
        except FileNotFoundError:
            return children_by_search(self.zygote)  # not every kernel is built with that file
        except (OSError, ValueError):
            return []

    def interrupt(self) -> None:
        """Kill the running program; call it from another thread."""
        self.interrupted = True
        self.kill()

    def kill(self) -> None:
        """Kill the children."""
        for child in self.children():
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(child)
                try:
                    # The number may meanwhile belong to another process, unless it is still a child.
                    if child in self.children():
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                        if self.nested:
                            os.killpg(child, signal.SIGKILL)
                finally:
                    os.close(descriptor)


def _listed_children(parent: int) -> list[int]:
    return [int(child) for child in _read(f"/proc/{parent}/task/{parent}/children").split()]


def children_by_search(parent: int) -> list[int]:
    children = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if name.isdigit() and int(_read(f"/proc/{name}/stat").rpartition(b")")[2].split()[1]) == parent:
                children.append(int(name))
    return children


def _threads(process: int) -> list[str]:
    return os.listdir(f"/proc/{process}/task")


def _resident_pages(task: str) -> int:
    try:
        return int(_read(f"/proc/{task}/statm").split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def reap(process: int, options: int) -> int | None:
    """Return the wait status of a child that has ended, else None. A child that is already reaped gives 0."""
    try:
        ended, status = os.waitpid(process, options)
    except ChildProcessError:
        return 0
    return status if ended else None
