"""Measure and kill the child processes of a zygote, by /proc and process file descriptors."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED: turns a process number into the number of its CPU-time clock


@dataclass(frozen=True)
class CpuTimes:
    """Seconds that the children computed and seconds that they waited for a processor; how many can compute at once."""

    computed_s: float
    waited_s: float
    threads: int


class ChildMonitor:
    """The children of one process.

    Args:
        nested: whether children may have children of their own, in one process group each (compilers).
    """

    def __init__(self, parent: int, *, nested: bool) -> None:
        self.parent = parent
        self.nested = nested
        self._waited_ns: dict[tuple[int, str], int] = {}  # by process and thread, as last seen

    def reset(self) -> None:
        """Forget the times of earlier children."""
        self._waited_ns.clear()

    def times(self) -> CpuTimes:
        """Measure all children. Times that the kernel does not tell count as 0."""
        computed_ns = 0
        threads = 0
        processes = self.children()
        for process in processes:  # grows within the loop if children are nested
            try:
                if self.nested:
                    processes += children_by_list(process)
                for thread in os.listdir(f"/proc/{process}/task"):
                    threads += 1
                    with open(f"/proc/{process}/task/{thread}/schedstat") as file:
                        self._waited_ns[process, thread] = int(file.read().split()[1])
                computed_ns += time.clock_gettime_ns((~process << 3) | _PROCESS_CLOCK)
                with open(f"/proc/{process}/stat") as file:  # CPU time of its children that have ended
                    ended_ticks = file.read().rpartition(")")[2].split()[13:15]
                computed_ns += sum(map(int, ended_ticks)) * (1_000_000_000 // _TICKS_PER_S)
            except (OSError, ValueError, IndexError):
                continue
        waited_ns = sum(self._waited_ns.values())
        return CpuTimes(computed_ns / 1e9, waited_ns / 1e9, min(max(threads, 1), os.cpu_count() or 1))

    def children(self) -> list[int]:
        try:
            return children_by_list(self.parent)
        except FileNotFoundError:
            return children_by_search(self.parent)  # not every kernel is built with that file
        except (OSError, ValueError):
            return []

    def kill_children(self) -> None:
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


def children_by_list(parent: int) -> list[int]:
    with open(f"/proc/{parent}/task/{parent}/children") as file:
        return [int(child) for child in file.read().split()]


def children_by_search(parent: int) -> list[int]:
    children = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if name.isdigit():
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == parent:
                        children.append(int(name))
    return children


def reap(process: int, options: int) -> int | None:
    """Return the wait status of a child that has ended, else None. A child that is already reaped gives 0."""
    try:
        ended, status = os.waitpid(process, options)
    except ChildProcessError:
        return 0
    return status if ended else None
