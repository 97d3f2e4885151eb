"""Watch the programs of one zygote and kill those that exceed a limit.

This process is not confined and runs no program. It shares no interpreter lock with the judge, so it looks in time
whatever the judge's threads do. The zygote reports programs that still run at the first look (protocol.py).
"""

from __future__ import annotations

import _socket
import math
import os
import select
import signal
import sys
import time
from contextlib import suppress

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import protocol  # type: ignore[import-not-found]

_MIN_TIMES_S = 0.02  # between two looks at the times
_COMPILER_TIMES_S = 0.5
_KILL_S = 0.2  # between two attempts to kill
_MAX_DELAY_S = 0.5  # of a look, on a machine that is only busy
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED: turns a process number into the number of its CPU-time clock


def main() -> None:
    nested, zygote = sys.argv[1] == "compile", int(sys.argv[2])
    reports = _socket.socket(fileno=0)
    reports.setblocking(False)
    poller = select.poll()
    poller.register(reports, select.POLLIN)
    poller.register(os.pidfd_open(zygote), select.POLLIN)
    with suppress(
        OSError
    ):  # without the right to, it waits its turn beside other processes (docs/verifiers.md#sandbox)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    reports.send(b"ready")
    while poller.poll() and (report := _receive(reports)):
        run = _Run(report, nested)
        while not poller.poll(1000 * run.next_check_s):
            run.check()
        if not _receive(reports):
            return run.kill()
        reports.send(bytes([protocol.STOPPED.index(run.stopped)]))


def _receive(reports: _socket.socket) -> bytes:
    """Return a waiting message; nothing if the zygote has ended."""
    try:
        return reports.recv(protocol.REQUEST.size)
    except OSError:
        return b""


class _Run:
    """A running program and its limits.

    Args:
        nested: whether it may have children, in one process group (compilers).
    """

    def __init__(self, report: bytes, nested: bool) -> None:
        request = protocol.REQUEST.unpack(report)
        cpu_ns = request[2]
        self._memory_bytes, idle_ns, wall_ns, first_look_ms, self._program = request[7:]
        self._time_s, self._idle_s, self._wall_s = cpu_ns / 1e9, idle_ns / 1e9, wall_ns / 1e9
        self.stopped = ""  # the limit for which it was killed
        self._nested = nested
        # The waiting times of a compiler's processes vanish with them, so they are read while these run.
        self._max_times_s = _COMPILER_TIMES_S if nested else math.inf
        self._started = time.monotonic() - first_look_ms / 1000
        self._times_due = self._started + min(self._time_s, self._idle_s, self._max_times_s)
        self._waited_ns: dict[tuple[int, str], int] = {}  # by process and thread, as last seen
        self.next_check_s = 0.0
        self._next_check = time.monotonic()

    def check(self) -> None:
        """Kill the program if it exceeds a limit; set `next_check_s`."""
        now = time.monotonic()
        # While the machine was paused, the program was not idle.
        self._started += max(0.0, now - self._next_check - _MAX_DELAY_S)
        resident = self._resident_bytes()
        if not self.stopped and resident > self._memory_bytes:
            self.stopped = "memory"
        if not self.stopped and now >= self._times_due:
            self._check_times(now)
        if self.stopped:
            self.kill()
            self.next_check_s = _KILL_S
        else:
            self.next_check_s = min(protocol.next_look_s(self._memory_bytes, resident), self._times_due - now)
        self._next_check = now + self.next_check_s

    def _check_times(self, now: float) -> None:
        wall_s = now - self._started
        computed_s, waited_s, threads = self._times()
        idle_s = wall_s - computed_s - waited_s
        if computed_s >= self._time_s:
            self.stopped = "cpu"
        elif idle_s >= self._idle_s or wall_s >= self._wall_s:
            self.stopped = "idle"
        left_s = min((self._time_s - computed_s) / threads, self._idle_s - idle_s)
        self._times_due = now + min(max(left_s, _MIN_TIMES_S), self._max_times_s)

    def _times(self) -> tuple[float, float, int]:
        """Return the seconds that all processes computed, those that they waited for a processor, and their threads.

        Times that the kernel does not tell count as 0. No more threads count than can compute at once.
        """
        computed_ns = threads = 0
        for process in self._processes():
            with suppress(OSError, ValueError, IndexError):
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
            with suppress(OSError, ValueError):
                if resident == 0:  # a main thread that has ended has no memory, while other threads may go on
                    resident = max(_resident_pages(f"{process}/task/{thread}") for thread in _threads(process))
            pages += resident
        return pages * _PAGE_SIZE

    def _processes(self) -> list[int]:
        processes = [self._program]
        for process in processes if self._nested else ():  # the list grows within the loop
            with suppress(OSError, ValueError):
                processes += map(int, _read(f"/proc/{process}/task/{process}/children").split())
        return processes

    def kill(self) -> None:
        # The zygote reaps it only after this process has answered, so its number belongs to no other process.
        with suppress(ProcessLookupError):
            (os.killpg if self._nested else os.kill)(self._program, signal.SIGKILL)


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


with suppress(BrokenPipeError):  # the zygote has ended, and with it its programs
    main()
