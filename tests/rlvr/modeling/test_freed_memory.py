"""On CPUs, the memory of a freed tensor stays with the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="glibc only")

PROGRAM = """
import resource
from rlvr.modeling.freed_memory import keep_freed_memory
print(keep_freed_memory())
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(1 << 25)
before = faults()
for _ in range(10):
    bytearray(1 << 25)
print(faults() - before)
"""


@pytest.mark.parametrize(
    ("variables", "is_kept", "why"),
    [
        ({}, True, "the default"),
        ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False, "variables of the user win"),
    ],
)
def test_freed_memory_is_used_again_without_page_faults(variables: dict[str, str], is_kept: bool, why: str) -> None:
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    assert kept == str(is_kept), why
    assert (int(faults) < 1000) == is_kept, why
