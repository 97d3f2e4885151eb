"""Compilers on a busy processor: waiting for the processor does not count as idle time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

JUDGE_PROGRAM = """
import sys
from rlvr.sandbox import compiler
from rlvr.verifiers.code import judge

compiler._IDLE_S = 3.0
judgement = judge(sys.stdin.read(), language="cpp", tests=[{"input": "", "output": ""}])
print(judgement.verdicts, judgement.compile_output)
"""
# Half a second of CPU time in the compiler proper, then in the assembler.
PROGRAM = r"""
constexpr int f(int n) { int s = 0; for (int i = 0; i < n; i++) s ^= i; return s; }
ASSERTS
asm(".pushsection .text\n.rept 1000000\nnop\n.endr\n.popsection");
int main() {}
""".replace("ASSERTS", "\n".join(f"static_assert(f({200_000 + number}) >= 0);" for number in range(5)))


@pytest.mark.slow
def test_a_program_compiles_on_a_busy_processor() -> None:
    processors = os.sched_getaffinity(0)
    busy = []
    try:
        os.sched_setaffinity(0, {min(processors)})  # child processes inherit it
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
        process = subprocess.run(
            [sys.executable, "-c", JUDGE_PROGRAM], input=PROGRAM, capture_output=True, text=True, timeout=300
        )
    finally:
        os.sched_setaffinity(0, processors)
        for loop in busy:
            loop.kill()
            loop.wait()
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("['AC']"), process.stdout
