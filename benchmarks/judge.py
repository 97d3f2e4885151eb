"""Measure the judge against the fastest that this machine can start processes.

    python -m benchmarks.judge                 # some minutes on two cores
    python -m benchmarks.judge --quick         # a tenth of the work: checks that it runs, not its speed

Rates are runs per second of CPU time over all processes that take part, so they hardly depend on the number of cores.
The floor is a process that ends at once: a fork of an interpreter with the same modules, or an empty static program.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rlvr import console
from rlvr.sandbox import compiler_cache, python_modules, zygote_client
from rlvr.sandbox.compiler import Compiler
from rlvr.sandbox.languages import LANGUAGES
from rlvr.verifiers.code import Limits, Submission, close, detect_capabilities, executor_count, judge_many

HEADER = "#include <bits/stdc++.h>\n"
SUM = "import sys\ndata = sys.stdin.read().split()\nprint(sum(map(int, data)))\n"
SUM_CPP = HEADER + "using namespace std;\nint main() { long long a, s = 0; while (cin >> a) s += a; cout << s; }\n"
INPUT, OUTPUT = "1 2 3 4 5\n", "15\n"
REPEATS = 3  # of each measurement; the best counts

FORKS = f"""
import sys
sys.path.insert(0, {str(zygote_client.GUEST)!r})
import _socket, contextlib, ctypes, gc, importlib, json, os, resource, signal
import confinement, program, protocol
for name in {python_modules.BASE!r}: importlib.import_module(name)
gc.collect(); gc.freeze(); gc.disable()
started = sum(os.times()[:4])
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
print(int(sys.argv[1]) / (sum(os.times()[:4]) - started))
"""
# A small process starts the programs, like the judge's launcher: forking a large one costs more.
SPAWNS = r"""
#include <spawn.h>
#include <sys/wait.h>
#include <cstdlib>
int main(int count, char **words) {
  char *const none[] = {nullptr}, *const program[] = {words[1], nullptr};
  for (int left = atoi(words[2]); left; --left) {
    pid_t child;
    posix_spawn(&child, words[1], nullptr, nullptr, program, none);
    waitpid(child, nullptr, 0);
  }
}
"""


def total_cpu_s() -> float:
    """Return the CPU seconds of this process, of children that have ended, and of running children."""
    total = 0.0
    for usage in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(usage)
        total += used.ru_utime + used.ru_stime
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def rate(action: Callable[[], object], runs: int, uncounted_s: float = 0.0) -> float:
    """Return runs per second of CPU time, without `uncounted_s` of each action."""
    best = 0.0
    for _ in range(REPEATS):
        started = total_cpu_s()
        action()
        best = max(best, runs / (total_cpu_s() - started - uncounted_s))
    return best


def bare_fork(runs: int) -> float:
    command = [sys.executable, "-S", "-s", "-P", "-B", "-c", FORKS, str(runs)]
    return max(float(subprocess.check_output(command, text=True)) for _ in range(REPEATS))


def empty_static(runs: int, folder: Path) -> float:
    for name, source in (("empty", "int main() {}\n"), ("spawner", SPAWNS)):
        (folder / f"{name}.cpp").write_text(source)
        subprocess.run(["g++", "-O2", "-static", "-o", name, f"{name}.cpp"], cwd=folder, check=True)
    return rate(lambda: subprocess.check_call([folder / "spawner", folder / "empty", str(runs)]), runs)


def new_interpreter(runs: int, folder: Path) -> float:
    program = folder / "sum.py"
    program.write_text(SUM)

    def action() -> None:
        for _ in range(runs):
            command = [sys.executable, "-I", "-S", "-E", str(program)]
            assert subprocess.check_output(command, input=INPUT, text=True) == OUTPUT

    return rate(action, runs)


def judged(language: str, program: str, runs: int, expected: str = OUTPUT) -> float:
    """Judge programs of 20 tests each, or one C++ program with all tests, whose compilation is not counted."""
    programs, comment = (runs // 20, "#") if language == "python" else (1, "//")
    tests = [{"input": INPUT, "output": expected}] * (runs // programs)
    (first,) = judge_many([Submission(program, language, tests[:1])])

    def action() -> None:
        marks = (f"{comment}{time.monotonic_ns()}{number}" for number in range(programs))
        judgements = judge_many([Submission(program + mark, language, tests) for mark in marks])
        assert all(judgement.score == 1 for judgement in judgements), judgements[0].feedback

    return rate(action, runs, first.compile_s if language == "cpp" else 0.0)


def compiling_s(source: str) -> float:
    """Return the CPU seconds of compiling a program."""
    language = LANGUAGES["cpp"]
    compiler_cache.precompiled_header(language)
    times = []
    with contextlib.closing(Compiler(detect_capabilities(), allow_weak_sandbox=False)) as compiler:
        for _ in range(REPEATS):
            compiled = compiler.compile(language, source.encode(), Limits())
            assert compiled.program is not None, compiled.output
            os.close(compiled.program)
            times.append(compiled.cpu_s)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    runs = 400 if parser.parse_args().quick else 4000
    console.info(f"{detect_capabilities().describe()}; {executor_count()} executors; Python {sys.version.split()[0]}\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = {
            "Python": {
                "fork and wait: the floor": bare_fork(runs),
                "judge, an empty program": judged("python", "pass\n", runs, ""),
                "judge, a sum": judged("python", SUM, runs),
                "python -I -S -E, not confined": new_interpreter(runs // 20, folder),
            },
            "C++": {
                "posix_spawn and wait: the floor": empty_static(runs, folder),
                "judge, an empty program": judged("cpp", "int main() {}\n", runs, ""),
                "judge, a sum": judged("cpp", SUM_CPP, runs),
            },
        }
    for title, rates in tables.items():
        rows = [[label, f"{value:,.0f}"] for label, value in rates.items()]
        console.info(console.table([title, "per CPU second"], rows) + "\n")
    # A statement before the header keeps the compiler from using the precompiled one.
    with_header, without = compiling_s(SUM_CPP), compiling_s(SUM_CPP.replace(HEADER, f";\n{HEADER}"))
    console.info(f"Compiling the sum in C++: {with_header:.2f} s of CPU time; {without:.2f} s without the header")
    close()


if __name__ == "__main__":
    main()
