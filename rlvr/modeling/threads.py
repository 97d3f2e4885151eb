"""Choose how many CPU threads torch computes with.

By default torch starts a thread a core of the host. That is more than a container may use, and more than a tiny model
is worth: for each operation the threads wait for one another.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# With two cores and two threads, generating and training are faster than with one from a hidden size of 256 on, and
# slower at 64 and 128.
MIN_HIDDEN_SIZE = 256
CONTROL_GROUPS = Path("/sys/fs/cgroup")


def set_threads(config: PretrainedConfig) -> str:
    """Set the number of torch's threads for a model on CPUs, unless OMP_NUM_THREADS is set; return it in words."""
    import torch

    if "OMP_NUM_THREADS" in os.environ:
        return f"{torch.get_num_threads()} (OMP_NUM_THREADS)"
    threads, why = available_cores(), "the cores that this process may use"
    if config.get_text_config().hidden_size < MIN_HIDDEN_SIZE:
        threads, why = 1, "a small model"
    torch.set_num_threads(threads)
    return f"{threads} ({why})"


def available_cores() -> int:
    """Cores for this process: its affinity and its control group's quota, shared by the ranks of this host."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, int(min(len(os.sched_getaffinity(0)), quota()) / ranks))


def quota(groups: Path = CONTROL_GROUPS, membership: Path = Path("/proc/self/cgroup")) -> float:
    """Cores that the control group and its parents may use, by version 1 or 2; infinite without a limit."""
    return min(_quotas(groups, membership), default=math.inf)


def _quotas(groups: Path, membership: Path) -> Iterator[float]:
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = groups / "cpu" if controllers else groups
        group = root / path.strip("/")  # absent in a container, which sees its own group as the root
        for folder in (group, *group.parents[: len(group.parts) - len(root.parts)]):
            try:
                if controllers:
                    limit, period = (folder / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
                    values = [limit.read_text(), period.read_text()]
                else:
                    values = (folder / "cpu.max").read_text().split()
                yield _cores(*values)
            except OSError:  # the root group of a host has no such file
                continue


def _cores(limit: str, period: str) -> float:
    return math.inf if limit.strip() in ("max", "-1") else int(limit) / int(period)
