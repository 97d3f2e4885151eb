"""Workers of one nursery (rlvr/workers/fork_server.py) share a number of places at which something is done, such as
processors.

Each says in a page of memory that they share how many it could use, and sees what that leaves it: nobody waits for
anybody, and whoever is killed is struck off by the nursery that replaces him.
"""

from __future__ import annotations

import mmap
import os

MOST = 256  # workers; those beyond them count for nobody
_LARGEST = (1 << 16) - 1


class CpuShare:
    """Made before the workers are forked; each of them joins, and says what it wants whenever that changes."""

    def __init__(self) -> None:
        self._wanted = memoryview(mmap.mmap(-1, 2 * MOST)).cast("H")
        self._own: int | None = None

    def join(self, worker: int) -> None:
        """In a worker: it is this one."""
        self._own = worker if worker < MOST else None

    def forget(self) -> None:
        """In a process that was forked from a worker: it is none."""
        self._own = None

    def leave(self, worker: int) -> None:
        """This worker is gone."""
        if worker < MOST:
            self._wanted[worker] = 0

    def say(self, wanted: int) -> None:
        """How many places this worker could use. Nothing where it is no worker."""
        if self._own is not None:
            self._wanted[self._own] = min(wanted, _LARGEST)

    def share(self, of: int) -> int:
        """How many of so many places it may use, at least one; all of them where it is no worker.

        Those who want less than an equal share leave the rest to the others (max-min fairness; Bertsekas and Gallager,
        Data Networks, chapter 6). Shares are rounded up, so that no place is left to nobody.
        """
        if self._own is None:
            return of
        wanting = sorted(filter(None, self._wanted.tolist()))
        left = of
        for others, wanted in zip(range(len(wanting), 0, -1), wanting, strict=True):
            equal = -(-left // others)
            if wanted >= equal:
                return max(1, equal)
            left -= wanted
        return of  # there are enough for all


judging = CpuShare()  # programs at once
os.register_at_fork(after_in_child=judging.forget)
