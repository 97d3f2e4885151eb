"""Share the processors among the workers of one fork server.

Each worker writes its demand into a page of shared memory and reads from the others' demand what is left for it.
There are no locks: no worker waits for another one, and the fork server clears the entry of a worker that it replaces.
"""

from __future__ import annotations

import mmap
import os

MAX_WORKERS = 256  # workers beyond these are not counted
_MAX_DEMAND = (1 << 16) - 1


class CpuShare:
    """Demand of each worker; created before the workers are forked."""

    def __init__(self) -> None:
        self._demand = memoryview(mmap.mmap(-1, 2 * MAX_WORKERS)).cast("H")
        self._own: int | None = None

    def join(self, worker: int) -> None:
        """Register this process as a worker."""
        self._own = worker if worker < MAX_WORKERS else None

    def detach(self) -> None:
        """Unregister this process, which a worker has forked; the worker's demand stays."""
        self._own = None

    def clear(self, worker: int) -> None:
        """Remove the demand of a worker that has ended."""
        if worker < MAX_WORKERS:
            self._demand[worker] = 0

    def set_demand(self, demand: int) -> None:
        """Set how many processors this worker could use. Does nothing outside workers."""
        if self._own is not None:
            self._demand[self._own] = min(demand, _MAX_DEMAND)

    def share_of(self, total: int) -> int:
        """How many of `total` processors this worker may use: at least one, and all of them outside workers.

        Workers that demand less than an equal share leave the rest to the others (max-min fairness; Bertsekas and
        Gallager, Data Networks, chapter 6). Shares are rounded up, so that no processor stays idle.
        """
        if self._own is None:
            return total
        demands = sorted(filter(None, self._demand.tolist()))
        left = total
        for workers, demand in zip(range(len(demands), 0, -1), demands, strict=True):
            equal = -(-left // workers)
            if demand >= equal:
                return max(1, equal)
            left -= demand
        return total  # enough for all


judge_cpu_share = CpuShare()  # programs that are judged at the same time
os.register_at_fork(after_in_child=judge_cpu_share.detach)
