"""Find locks of killed builds of DeepSpeed, and skip what it need not compile.

DeepSpeed's Adam for the CPU (`cpu_adam`, for zero2_offload) is C++ that is compiled at the first start and kept in a
folder of PyTorch. A killed build leaves a file `lock` there, for which every later run waits forever, silently.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rlvr.errors import Problem

# A lock that no local process holds open is stale, unless the folder is shared and another machine builds. A build
# takes two minutes.
STALE_LOCK_S = 600.0


def stale_locks() -> Iterator[Problem]:
    """Find locks that a build would wait for forever."""
    for lock in (folder / "lock" for folder in _build_folders()):
        if _is_stale(lock):
            message = (
                f"{lock} is left over from a killed build of DeepSpeed's cpu_adam, and every run would wait for it "
                f"forever. Delete it: rm {lock}"
            )
            yield Problem(message, "stale-lock", path=str(lock))


def _build_folders() -> list[Path]:
    """PyTorch's build folders of the extension, for all versions of Python and CUDA."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    if root:
        return [Path(root) / "cpu_adam"]
    from torch.utils.cpp_extension import get_default_build_root

    return sorted(Path(get_default_build_root()).glob("*/cpu_adam"))


def _is_stale(lock: Path) -> bool:
    """Whether no process builds under this lock any more: PyTorch holds it open while it builds."""
    if not lock.is_file() or time.time() - lock.stat().st_mtime < STALE_LOCK_S:
        return False
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if os.readlink(descriptor) == str(lock.resolve()):
                return False
    return True


def skip_shared_memory_kernel() -> None:
    """Keep DeepSpeed on CPUs from compiling an all-reduce that only inference uses.

    It would take 25 to 45 seconds, a compiler and ninja. DeepSpeed then uses gloo, as it does for training anyway.
    DeepSpeed itself reads `__compatible_ops__` (deepspeed/comm/torch.py).
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
