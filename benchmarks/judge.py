"""Measure the judge against this machine's floor and against common ways to run a model's programs.

    python -m benchmarks.judge                 # about six minutes on two cores
    python -m benchmarks.judge --quick         # a tenth of the work: checks that it runs, not its speed

Rates are runs per second of CPU time over all processes that take part, so they hardly depend on the number of cores.
The alternatives, written for this comparison; none of them confines programs:

- bare fork: `os.fork` and `os.waitpid` of an interpreter with the same modules; the child ends at once: the floor;
- python -I -S -E and python: a new interpreter per test by `subprocess.run`, without and with site-packages;
- guarded fork: a process per program by `multiprocessing`, which disables functions of `os` and runs all tests inside;
- one script: a new interpreter per program, with a script that runs all tests inside.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rlvr.sandbox import (
    compiler_cache,
    python_modules,
    zygote_client,
)
from rlvr.sandbox.compiler import Compiler
from rlvr.sandbox.languages import LANGUAGES
from rlvr.verifiers.code import Limits, Submission, close, detect_capabilities, executor_count, judge_many

SUM = "import sys\ndata = sys.stdin.read().split()\nprint(sum(map(int, data)))\n"
SUM_CPP = "#include <bits/stdc++.h>\nusing namespace std;\nint main() { long long a, s = 0; while (cin >> a) s += a; cout << s; }\n"  # noqa: E501
INPUT, OUTPUT = "1 2 3 4 5\n", "15\n"


# ----------------------------------------------------------------------------------------------------------------------
# Measurement


def total_cpu_s() -> float:
    """Return the CPU seconds of this process, of children that have ended, and of running children."""
    total = 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    for usage in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(usage)
        total += used.ru_utime + used.ru_stime
    for child in _children(os.getpid()):
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / ticks
    return total


def _children(process: int) -> list[int]:
    children = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            children += [int(child) for child in (task / "children").read_text().split()]
    return children


def rate(action: Callable[[], int], repeats: int = 3) -> float:
    """Return the best of several measurements, in runs per second of CPU time."""
    best = 0.0
    for _ in range(repeats):
        started = total_cpu_s()
        runs = action()
        best = max(best, runs / max(total_cpu_s() - started, 1e-9))
    return best


# ----------------------------------------------------------------------------------------------------------------------
# The judge and the alternatives


def bare_fork(runs: int) -> float:
    """Fork in a new interpreter with the modules of a zygote; return runs per second of CPU time."""
    code = f"""
import sys
sys.path.insert(0, {str(zygote_client.GUEST)!r})
import _socket, contextlib, ctypes, gc, importlib, json, os, resource, signal
import confinement, program, protocol
for name in {python_modules.BASE!r}: importlib.import_module(name)
gc.collect(); gc.freeze(); gc.disable()
best = 0
for _ in range(3):
    started = sum(os.times()[:4])
    for _ in range({runs}):
        child = os.fork()
        if child == 0: os._exit(0)
        os.waitpid(child, 0)
    best = max(best, {runs} / (sum(os.times()[:4]) - started))
print(best)
"""
    process = subprocess.run(
        [sys.executable, "-S", "-s", "-P", "-B", "-c", code], capture_output=True, text=True, check=True
    )
    return float(process.stdout)


def judged(language: str, program: str, runs: int, expected: str = OUTPUT) -> Callable[[], int]:
    tests = [{"input": INPUT, "output": expected}] * 20

    def action() -> int:
        programs = range(runs // 20)
        comment = "#" if language == "python" else "//"
        if language == "cpp":
            programs = range(1)
        copies = tests * (runs // 20 // len(programs))
        submissions = [
            Submission(f"{program}{comment}{time.monotonic_ns()}{number}", language, copies) for number in programs
        ]
        judgements = judge_many(submissions)
        assert all(judgement.score == 1 for judgement in judgements), judgements[0].feedback
        return sum(len(judgement.verdicts) for judgement in judgements)

    return action


def new_interpreter(command: list[str], runs: int) -> Callable[[], int]:
    def action() -> int:
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(SUM)
            file.flush()
            for _ in range(runs):
                process = subprocess.run([*command, file.name], input=INPUT, capture_output=True, text=True, timeout=30)
                assert process.stdout.strip() == OUTPUT.strip()
        return runs

    return action


def _guarded(program: str, tests: list[tuple[str, str]], results: list[bool]) -> None:
    for name in ("kill", "system", "fork", "remove", "rmdir", "rename", "chmod", "chown"):
        setattr(os, name, None)
    for stdin, expected in tests:
        out = io.StringIO()
        sys.stdin = io.StringIO(stdin)
        with contextlib.redirect_stdout(out):
            exec(program, {"__name__": "__main__"})
        results.append(out.getvalue().strip() == expected.strip())


def guarded_fork(runs: int) -> Callable[[], int]:
    context = multiprocessing.get_context("fork")

    def action() -> int:
        for _ in range(runs // 20):
            with context.Manager() as manager:
                results = manager.list()
                child = context.Process(target=_guarded, args=(SUM, [(INPUT, OUTPUT)] * 20, results))
                child.start()
                child.join(30)
                assert list(results) == [True] * 20
        return runs

    return action


def one_script(runs: int) -> Callable[[], int]:
    script = f"""
import io, sys, contextlib
program = {SUM!r}
for given, expected in [({INPUT!r}, {OUTPUT!r})] * 20:
    out = io.StringIO(); sys.stdin = io.StringIO(given)
    with contextlib.redirect_stdout(out): exec(program, {{"__name__": "__main__"}})
    assert out.getvalue().strip() == expected.strip()
"""

    def action() -> int:
        for _ in range(runs // 20):
            subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
        return runs

    return action


def empty_static(runs: int) -> Callable[[], int]:
    folder = tempfile.mkdtemp()
    source, program = Path(folder) / "empty.cpp", Path(folder) / "empty"
    source.write_text("int main() {}\n")
    subprocess.run(["g++", "-O2", "-static", "-o", str(program), str(source)], check=True)
    # Spawned from a small process, like the judge's launcher: forking a large one costs more.
    spawner, text = Path(folder) / "spawner", Path(folder) / "spawner.cpp"
    text.write_text(
        "#include <spawn.h>\n#include <sys/wait.h>\n#include <cstdlib>\nint main(int c, char **v) {\n"
        "  char *const none[] = {nullptr}; char *const words[] = {v[1], nullptr};\n"
        "  for (int i = atoi(v[2]); i; --i) { pid_t p; posix_spawn(&p, v[1], nullptr, nullptr, words, none); waitpid(p, nullptr, 0); }\n"  # noqa: E501
        "}\n"
    )
    subprocess.run(["g++", "-O2", "-static", "-o", str(spawner), str(text)], check=True)

    def action() -> int:
        subprocess.run([str(spawner), str(program), str(runs)], check=True)
        return runs

    return action


# ----------------------------------------------------------------------------------------------------------------------
# The report


def table(rows: list[tuple[str, float]], of: float) -> None:
    for name, value in rows:
        print(f"  {name:<44} {value:>9,.0f} per CPU second   {value / of:>6.2f} x the floor")


def python_runs(runs: int) -> None:
    print("\nPython, one test per run")
    floor = bare_fork(runs)
    rows = [("bare fork (the floor)", floor)]
    judged("python", SUM, 200)()
    rows.append(("judge, an empty program, 20 tests", rate(judged("python", "pass", runs, ""))))
    rows.append(("judge, a sum, 20 tests per program", rate(judged("python", SUM, runs))))
    rows.append(("python -I -S -E", rate(new_interpreter([sys.executable, "-I", "-S", "-E"], runs // 20))))
    rows.append(("python, full environment", rate(new_interpreter([sys.executable], runs // 40))))
    rows.append(("guarded fork, 20 tests per process", rate(guarded_fork(runs // 4))))
    rows.append(("one script, 20 tests per interpreter", rate(one_script(runs // 4))))
    table(rows, floor)


def cpp_runs(runs: int) -> None:
    print("\nC++, one test per run (compiled once)")
    floor = rate(empty_static(runs))
    rows = [("posix_spawn of an empty static program (floor)", floor)]
    for name, program, expected in (("an empty program", "int main() {}", ""), ("a sum", SUM_CPP, OUTPUT)):
        action = judged("cpp", program, runs, expected)
        test = {"input": INPUT, "output": expected}
        compile_s = judge_many([Submission(program, "cpp", [test])])[0].compile_s
        best = 0.0
        for _ in range(3):
            started = total_cpu_s()
            runs_done = action()
            best = max(best, runs_done / (total_cpu_s() - started - compile_s))
        rows.append((f"judge, {name}", best))
    table(rows, floor)


def compiling_times(repeats: int) -> None:
    print("\nCompiling a contest program (seconds of CPU time, best)")
    language = LANGUAGES["cpp"]
    compiler_cache.precompiled_header(language)
    compiler = Compiler(detect_capabilities(), allow_weak_sandbox=False)
    with contextlib.closing(compiler):
        best = {}
        for name, source in (
            ("judge, header precompiled", SUM_CPP),
            ("without", SUM_CPP.replace("#include <bits/stdc++.h>", ";\n#include <bits/stdc++.h>")),
        ):
            times = []
            for _ in range(repeats):
                compiled = compiler.compile(language, source.encode(), Limits())
                assert compiled.program is not None, compiled.output
                os.close(compiled.program)
                times.append(compiled.cpu_s)
            best[name] = min(times)
    for name, seconds in best.items():
        print(f"  {name:<44} {seconds:>9.2f}")
    fast, slow = best.values()
    print(f"  {'times faster':<44} {slow / fast:>9.1f}")


def hanging(programs: int) -> None:
    print(f"\n{programs} programs x 20 tests, one in ten hangs (0.5 s per test)")
    limits = Limits(time_s=0.5, wall_s=1.0)
    tests = [{"input": INPUT, "output": OUTPUT}] * 20
    hang = "while True: pass\n"
    submissions = [
        Submission((hang if mark % 10 == 0 else SUM) + f"#{mark}", "python", tests, limits=limits)
        for mark in range(programs)
    ]
    # The least time: half a second per timeout, and the other programs at the rate measured now.
    started = time.perf_counter()
    judge_many([submission for mark, submission in enumerate(submissions) if mark % 10])
    honest = time.perf_counter() - started
    for max_timeouts in (1, None):
        least = (programs // 10) * (max_timeouts or 20) * 0.5 / executor_count() + honest
        started = time.perf_counter()
        judgements = judge_many([replace(submission, max_timeouts=max_timeouts) for submission in submissions])
        taken = time.perf_counter() - started
        assert all(j.score == (0 if mark % 10 == 0 else 1) for mark, j in enumerate(judgements))
        print(f"  max_timeouts={max_timeouts}")
        print(f"    arithmetic of the limits over {executor_count()} cores        {least:>7.1f} s")
        print(f"    measured                                     {taken:>7.1f} s   {taken / least - 1:+.1%}")


def growth(tests: int) -> None:
    print(f"\n{tests:,} tests in one process")

    def footprint() -> tuple[float, int, int, int]:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        files = sum(1 for folder in ("/tmp", "/dev/shm", "/var/tmp") for _ in Path(folder).glob("grpo-recipes-*"))
        return resident, len(os.listdir("/proc/self/fd")), len(_children(os.getpid())), files

    action = judged("python", SUM, 2000)
    action()
    before = footprint()
    for _ in range(tests // 2000):
        action()
    after = footprint()
    for name, one, two in zip(
        ("memory, MB", "descriptors", "processes", "temporary files"), before, after, strict=True
    ):
        print(f"  {name:<20} {one:>8,.1f} before {two:>8,.1f} after")


def steady(repeats: int) -> None:
    print(f"\nVerdicts over {repeats} repetitions, idle and with twice as many busy processes as cores")
    limits = Limits(time_s=1.0, wall_s=2.0)
    spin = "import time\nx = time.process_time()\nwhile time.process_time() - x < {}: pass\nprint(15)\n"
    programs = [
        spin.format(0.6),
        spin.format(3),
        SUM,
        "import time\ntime.sleep(0.5)\nprint(15)\n",
        "print(1)",
        "1/0",
        "import time\ntime.sleep(60)",
        "x = bytearray(2 * 10**9)",
    ]
    tests = [{"input": INPUT, "output": OUTPUT}]

    def verdicts() -> tuple[str, ...]:
        return tuple(
            j.verdicts[0] for j in judge_many([Submission(p, "python", tests, limits=limits) for p in programs])
        )

    seen = {verdicts() for _ in range(repeats)}
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        seen |= {verdicts() for _ in range(repeats)}
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"  {len(seen)} different outcome{'s' if len(seen) > 1 else ''}: {' / '.join(' '.join(row) for row in seen)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--only", choices=["python", "cpp", "compiling", "hanging", "growth", "steady"])
    options = parser.parse_args()
    part = 10 if options.quick else 1
    print(f"{detect_capabilities().describe()}; {executor_count()} executors; Python {sys.version.split()[0]}")
    parts: dict[str, Callable[[], None]] = {
        "python": lambda: python_runs(4000 // part),
        "cpp": lambda: cpp_runs(4000 // part),
        "compiling": lambda: compiling_times(5 if part == 1 else 1),
        "hanging": lambda: hanging(500 // part),
        "growth": lambda: growth(100_000 // part),
        "steady": lambda: steady(20 // part),
    }
    for name, measure in parts.items():
        if options.only in (None, name):
            measure()
    close()


if __name__ == "__main__":
    main()
