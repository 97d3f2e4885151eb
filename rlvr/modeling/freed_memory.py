"""Keep the memory of freed tensors for the next ones, on CPUs.

glibc gives a freed tensor of some megabytes back to the kernel, which clears every page again for the next tensor.
docs/benchmarks.md has the times.
"""

from __future__ import annotations

import ctypes
import os

# Of malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 2**31 - 1  # mallopt takes an int


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory, unless its own variables are set; return whether it does."""
    if "CS_GNU_LIBC_VERSION" not in os.confstr_names:  # macOS, musl
        return False
    if {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"} & os.environ.keys():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(parameter, LARGEST) == 1 for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD))
