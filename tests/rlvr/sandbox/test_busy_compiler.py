"""A compiler that waits for a processor is not taken for one that waits for what never comes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

JUDGED = """
import sys
from rlvr.verifiers.code import compiling, judge

compiling._COMPILER_IDLE_S = 0.5
judgement = judge(sys.stdin.read(), language="cpp", tests=[{"input": "", "output": ""}])
print(judgement.verdicts, judgement.compile_output)
"""
# The compiler proper is at work for half a second of CPU time, and then the assembler.
PROGRAM = r"""
constexpr int f(int n) { int s = 0; for (int i = 0; i < n; i++) s ^= i; return s; }
ASSERTS
asm(".pushsection .text\n.rept 1000000\nnop\n.endr\n.popsection");
int main() {}
""".replace("ASSERTS", "\n".join(f"static_assert(f({200_000 + number}) >= 0);" for number in range(5)))


@pytest.mark.slow
def test_a_program_compiles_on_a_busy_processor_however_long_the_compilers_parts_wait() -> None:
    processors = os.sched_getaffinity(0)
    busy = []
    try:
        os.sched_setaffinity(0, {min(processors)})  # what is started from here stays there
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
        judged = subprocess.run(
            [sys.executable, "-c", JUDGED], input=PROGRAM, capture_output=True, text=True, timeout=300, check=True
        )
    finally:
        os.sched_setaffinity(0, processors)
        for process in busy:
            process.kill()
            process.wait()
    assert judged.stdout.startswith("['AC']"), judged.stdout
