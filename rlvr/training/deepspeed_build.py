"""What DeepSpeed compiles when it is first used, whether that can work here, and what is better not compiled.

DeepSpeed's Adam for the CPU (`cpu_adam`, for zero2_offload) is C++ that is compiled at the first start and kept in a
folder of PyTorch's. A compiler that is missing fails after the model was loaded; a build that was killed leaves a file
`lock` there, and every later run waits for it for ever, without a word.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

PARTS = ("cpu_adam",)

# A lock that no process here holds open is left over, unless the folder is shared and another machine builds: a build
# takes two minutes, so after this long nobody does.
LEFT_OVER_S = 600.0


def faults(*, on_cpu: bool) -> list[str]:
    """What stands in the way of compiling, or of waiting for a compilation: a sentence each."""
    found = []
    for part in PARTS:
        for folder in folders(part):
            lock = folder / "lock"
            if left_over(lock):
                found.append(
                    f"{lock} is left over from a build of DeepSpeed's {part} that was killed, and every run would wait "
                    f"for it for ever. Delete it: rm {lock}"
                )
        if not any((folder / f"{part}.so").is_file() for folder in folders(part)):
            found += [f"zero2_offload: DeepSpeed must compile its {part}, and {what}" for what in _missing(on_cpu)]
    return found


def _missing(on_cpu: bool) -> list[str]:
    compiler = os.environ.get("CXX", "c++")
    missing = []
    if shutil.which(compiler) is None:
        missing.append(f"there is no compiler {compiler} here: install g++, or use accelerate_configs/zero2.yaml.")
    if shutil.which("ninja") is None:
        missing.append("there is no ninja on the PATH: pip install ninja (and activate the environment that it is in).")
    if not on_cpu:
        from torch.utils.cpp_extension import CUDA_HOME

        if CUDA_HOME is None:
            missing.append("there is no CUDA toolkit (nvcc) here: install it, or use accelerate_configs/zero2.yaml.")
    return missing


def folders(part: str) -> list[Path]:
    """Where PyTorch keeps, or would keep, what was compiled of this name, for whichever version of Python and CUDA."""
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    if named:
        return [Path(named) / part]
    from torch.utils.cpp_extension import get_default_build_root

    return sorted(Path(get_default_build_root()).glob(f"*/{part}"))


def left_over(lock: Path) -> bool:
    """Whether this is the lock of a build that nobody makes any more."""
    try:
        age = time.time() - lock.stat().st_mtime
    except OSError:  # not there, or gone this moment
        return False
    return age > LEFT_OVER_S and not _is_open(lock)


def _is_open(path: Path) -> bool:
    """Whether a process that we may look into has the file open, as PyTorch has for as long as it builds."""
    real = str(path.resolve())
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(descriptor) == real:
                return True
        except OSError:
            continue
    return False


def spare_shared_memory() -> None:
    """Keeps DeepSpeed on CPUs from compiling an all-reduce that is used for inference only, never in training.

    It would take 25 to 45 seconds, a compiler and ninja. DeepSpeed then sends everything through gloo, as it does for
    training anyway. `__compatible_ops__` is what DeepSpeed itself asks (deepspeed/comm/torch.py).
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
