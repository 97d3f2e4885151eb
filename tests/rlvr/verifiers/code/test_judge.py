"""The judge as its callers see it: verdicts, limits, bad input, threads, forks, interruption, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr.errors import InputError
from rlvr.sandbox import zygote
from rlvr.verifiers.code import Limits, Submission, close, detect_capabilities, judge, judge_many, slots
from tests.support.sandbox_capabilities import capabilities_without

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
ADD_CPP = "#include <bits/stdc++.h>\nint main() { long long a, b; std::cin >> a >> b; std::cout << a + b << '\\n'; }\n"
SUMS = [{"input": "1 2\n", "output": "3\n"}, {"input": "-4 9\n", "output": "5\n"}]
ONE = [{"input": "", "output": "1"}]


def verdicts(program: str, *, language: str = "python", tests: list | None = None, **options: object) -> list[str]:
    return judge(program, language=language, tests=ONE if tests is None else tests, **options).verdicts


@pytest.mark.parametrize("language, program", [("python", ADD), ("cpp", ADD_CPP)])
def test_a_right_program_passes_every_test(language: str, program: str) -> None:
    judgement = judge(program, language=language, tests=SUMS)
    assert judgement.verdicts == ["AC", "AC"]
    assert judgement.score == 1.0
    assert judgement.feedback == "2 of 2 tests passed."


def test_the_score_is_the_fraction_of_the_tests_passed() -> None:
    tests = [*SUMS, {"input": "1 1\n", "output": "3\n"}, {"input": "2 2\n", "output": "5\n"}]
    judgement = judge(ADD, language="python", tests=tests)
    assert judgement.verdicts == ["AC", "AC", "WA", "WA"]
    assert judgement.score == 0.5
    assert "Test 3: wrong answer" in judgement.feedback


VERDICTS = [
    # program, verdict, why it is here
    ("print(2)", "WA", "another output"),
    ("", "WA", "an empty program prints nothing"),
    ("while True: pass", "TLE", "computes for ever"),
    ("import time; time.sleep(60)", "TLE", "does nothing for ever"),
    (
        "print(1)\nimport threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        "TLE",
        "a thread stays",
    ),
    ("x = bytearray(10**9)", "MLE", "more than there is"),
    ("x = []\nwhile True: x.append(bytearray(10**6))", "MLE", "more than there is, bit by bit"),
    ("print('x' * 10**7)", "OLE", "more output than is read"),
    ("import sys\nwhile True: sys.stderr.write('x' * 10**6)", "OLE", "standard error counts too"),
    ("1 / 0", "RE", "raises"),
    ("print(1); exit(3)", "RE", "the right output, but a failure"),
    ("import os; print(1, flush=True); os.abort()", "RE", "the right output, then a signal"),
    ("print(1", "CE", "no Python"),
    ("\x00\x01\udcff", "CE", "binary junk"),
    ("print(1)\x00", "CE", "a NUL"),
    ("#" * 2_000_000, "CE", "larger than any program"),
    ("(" * 100_000, "CE", "nested deeper than the parser goes"),
    ("print('\ud800')", "CE", "text that is no text"),
]


@pytest.mark.parametrize("program, verdict, why", VERDICTS, ids=[why for _, _, why in VERDICTS])
def test_each_fault_has_its_verdict(program: str, verdict: str, why: str) -> None:
    limits = Limits(time_s=0.5, wall_s=1.0, memory_mb=64, output_kb=256)
    assert verdicts(program, limits=limits) == [verdict]


VERDICTS_CPP = [
    ("int main() {", "CE", "no C++"),
    ("", "CE", "no main"),
    ("int main() { for (;;) {} }", "TLE", "computes for ever"),
    ("#include <vector>\nint main() { std::vector<char> v(1 << 30, 1); return v[5] - 1; }", "MLE", "too much memory"),
    ("#include <cstdio>\nint main() { for (;;) std::puts(\"xxxxxxxxxxxxxxxx\"); }", "OLE", "too much output"),
    ("int main() { return *(volatile int *)nullptr; }", "RE", "a segmentation fault"),
    ("#include <cstdio>\nint main() { std::puts(\"1\"); return 1; }", "RE", "the right output, but a failure"),
    ("#include <cstdio>\nint main() { std::puts(\"1\"); }", "AC", "right, without the header that is precompiled"),
    ("#define N 1\n#include <bits/stdc++.h>\nint main() { std::cout << N; }", "AC", "something before the #include"),
    ("#include <iostream>\n#include <bits/stdc++.h>\nint main() { std::cout << 1; }", "AC", "another header first"),
    ("#include <bits/stdc++.h>\n#include <bits/stdc++.h>\nint main() { std::cout << 1; }", "AC", "the header twice"),
]  # fmt: skip


def test_each_fault_of_a_compiled_program_has_its_verdict() -> None:
    limits = Limits(time_s=0.5, wall_s=1.0, memory_mb=64, output_kb=256)
    judged = judge_many(
        [Submission(program, "cpp", ONE, limits=limits) for program, _, _ in VERDICTS_CPP]
    )  # fmt: skip
    got = {why: judgement.verdicts for (_, _, why), judgement in zip(VERDICTS_CPP, judged, strict=True)}
    assert got == {why: [verdict] for _, verdict, why in VERDICTS_CPP}


def test_a_syntax_error_is_told_without_our_own_files() -> None:
    judgement = judge("print(1", language="python", tests=ONE)
    assert judgement.compile_output.startswith('File "program.py", line 1')
    assert "inside" not in judgement.compile_output


def test_a_programs_words_cannot_steer_a_terminal_and_show_no_path_of_ours() -> None:
    judgement = judge("raise ValueError('\\x1b[2J\\x07bad')", language="python", tests=ONE)
    assert "bad" in judgement.feedback and judgement.feedback.replace("\n", "").isprintable()
    assert "inside" not in judgement.stderr[0] and 'File "program.py", line 1' in judgement.stderr[0]


def test_a_compilers_words_are_told_without_its_folder() -> None:
    judgement = judge("int main() { return x; }", language="cpp", tests=ONE)
    assert "program.cpp:1:21: error: 'x' was not declared" in judgement.compile_output
    assert "grpo-recipes-" not in judgement.compile_output


def test_a_compiler_has_limits_of_its_own() -> None:
    slow = "constexpr int f(int n) { int s = 0; for (int i = 0; i < n; i++) s ^= i; return s; }\n"
    slow += "\n".join(f"static_assert(f({200_000 + i}) >= 0);" for i in range(100))
    begun = time.monotonic()
    judgement = judge(slow + "\nint main() {}", language="cpp", tests=ONE, limits=Limits(compile_time_s=1))
    assert judgement.verdicts == ["CE"]
    assert time.monotonic() - begun < 15


# ----------------------------------------------------------------------------------------------------------------------
# Function calls and asserts

CALLS = [
    ("def f(a, b): return a + b", [2, 3], 5, "AC", "plain"),
    ("class Solution:\n    def f(self, a, b): return a + b", [2, 3], 5, "AC", "a method of Solution"),
    ("f = lambda a, b: (a, b)", [2, 3], [2, 3], "AC", "JSON has no tuples"),
    ("def f(a, b): return {a: [b]}", [2, 3], {"2": [3]}, "AC", "nor keys that are no text"),
    ("def f(a, b): return True", [2, 3], 1, "WA", "a truth value is no number"),
    ("def f(a, b): return 5.0", [2, 3], 5, "AC", "but 5.0 is 5"),
    ("def f(a, b): return 10 ** 5000", [2, 3], 10**5000, "AC", "beyond the digits that Python reads"),
    ("def f(a, b): return float('nan')", [2, 3], 5, "WA", "nan"),
    ("def f(a, b): return [f]", [2, 3], [5], "WA", "no plain data"),
    ("def f(a, b): print('noise'); return 5", [2, 3], 5, "AC", "what is printed does not matter"),
    ("def f(a): return 5", [2, 3], 5, "RE", "takes another number of arguments"),
    ("def g(a, b): return 5", [2, 3], 5, "RE", "is not there"),
    ("import sys\nsys.exit(0)\ndef f(a, b): return 5", [2, 3], 5, "WA", "ended, and well, but before the call"),
    ("def f(a, b):\n    import os\n    os._exit(0)", [2, 3], 5, "WA", "ended, and well, in the call"),
    (
        "def f(a, b):\n    x = []\n    for _ in range(100000): x = [x]\n    return x",
        [2, 3],
        5,
        "WA",
        "nested too deeply",
    ),
]


@pytest.mark.parametrize("program, arguments, expected, verdict, why", CALLS, ids=[row[-1] for row in CALLS])
def test_function_calls(program: str, arguments: list, expected: object, verdict: str, why: str) -> None:
    assert verdicts(program, tests=[{"call": arguments, "expected": expected}], entry_point="f") == [verdict]


CALLS_CPP = [
    ("vector<int> f(const vector<int>& v, string s) { auto r = v; r.push_back(s.size()); return r; }",
     "vector<int> f(const vector<int>&, string)", [[1, 2], "héy"], [1, 2, 4]),
    ("map<string, pair<int, double>> f(int n) { return {{\"a\", {n, 0.5}}}; }\nint main() { return 1; }",
     "map<string, pair<int, double>> f(int)", [3], {"a": [3, 0.5]}),
    ("void f(vector<string>& v) { sort(v.begin(), v.end()); }", "void f(vector<string>&)", [["b", "a"]], ["a", "b"]),
    ("bool f(char c, long long n) { return n < -4e9; }", "bool f(char, long long)", ["x", -5 * 10**9],
     True),
    ("vector<vector<int>> f(vector<vector<int>> g) { swap(g[0], g[1]); return g; }",
     "vector<vector<int>> f(vector<vector<int>>)", [[[1], [2, 3]]], [[2, 3], [1]]),
    ("string f(string s) { return s + \"\\\"\\n\"; }", "string f(string)", ["a\\"], "a\\\"\n"),
]  # fmt: skip


def test_function_calls_in_cpp() -> None:
    using = "#include <bits/stdc++.h>\nusing namespace std;\n"
    judged = judge_many(
        [
            Submission(using + program, "cpp", [{"call": given, "expected": value}], entry_point="f", signature=sign)
            for program, sign, given, value in CALLS_CPP
        ]
    )  # fmt: skip
    assert [judgement.verdicts for judgement in judged] == [["AC"]] * len(CALLS_CPP), [j.feedback for j in judged]


ASSERTS = [
    ("def f(x): return x * 2", "assert f(2) == 4", "AC", "a plain call"),
    ("def f(x): return x * 2", "assert f(2) == 5", "WA", "a plain call that is wrong"),
    ("def f(x): return [10 ** 5000]", "assert f(2) == [4]", "WA", "a number of more digits than Python writes"),
    ("def f(x): return x == 2", "assert f(2) == 1", "AC", "Python's equality, in an assert"),
    ("def f(x): return [x]", "assert f(2) == (2,)", "WA", "in which a list is no tuple"),
    ("def f(x): return [3, 1, x]", "assert sorted(f(2)) == [1, 2, 3]", "AC", "a builtin around it"),
    ("def f(x): return x / 3", "import math\nassert math.isclose(f(1), 0.3333, rel_tol=1e-3)", "AC", "its module"),
    ("def f(xs): xs.append(1)", "a = [3]\nf(a)\nassert a == [3, 1]", "AC", "changes its argument"),
    ("def f(g, x): return g(x) + 1", "assert f(lambda x: x * 10, 2) == 21", "AC", "takes a function"),
    ("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]", "AC", "a generator"),
    ("class P:\n    def __init__(self, x): self.x = x\n    def twice(self): return 2 * self.x",
     "p = P(4)\nassert p.twice() == 8 and p.x == 4", "AC", "a class"),
    ("class E(ValueError): pass\ndef f(): raise E('no')", "try:\n    f()\nexcept E as e:\n    assert str(e) == 'no'\n"
     "else:\n    assert False", "AC", "its own exception"),
    ("def f(x): return {x: {1, 2}}", "assert f('a') == {'a': {2, 1}}", "AC", "dictionaries and sets"),
    ("def f(x): raise StopIteration", "assert all(map(f, [1, 2]))", "RE", "an exception that would end a loop"),
    ("abs = lambda x: 0\ndef f(x): return 7", "assert abs(f(2) - 4) < 1e-6", "WA", "a builtin of its own"),
    ("class M:\n    isclose = lambda *a, **k: True\nmath = M()\ndef f(x): return 7",
     "import math\nassert math.isclose(f(2), 4)", "WA", "a module of its own"),
    ("class A:\n    def __eq__(self, o): return True\n    def __sub__(self, o): return 0\ndef f(x): return A()",
     "r = f(2)\nassert r == 4", "WA", "an object that equals everything"),
    ("class A:\n    def __sub__(self, o): return 0\ndef f(x): return A()", "assert abs(f(2) - 4) < 1e-6", "RE",
     "an object that computes as it likes"),
    ("class A(int):\n    def __eq__(self, o): return True\ndef f(x): return A(7)", "r = f(2)\nassert r == 4", "WA",
     "a number that equals everything"),
    ("def f(x):\n    import sys\n    sys.exit(0)", "r = f(2)\nassert r == 4", "RE", "ends well in the middle"),
    ("def f(x):\n    while True: pass", "r = f(2)\nassert r == 4", "TLE", "does not end"),
    ("def f(xs, t):  # import\n    return [isinstance(x, t) for x in xs]", "assert f([1, 'a'], int)[0] is True",
     "AC", "takes a type"),
    ("raise SystemExit(0)", "r = f(2)\nassert r == 4", "RE", "ends well at once"),
]  # fmt: skip


@pytest.mark.parametrize("program, test, verdict, why", ASSERTS, ids=[row[-1] for row in ASSERTS])
def test_asserts(program: str, test: str, verdict: str, why: str) -> None:
    assert verdicts(program, tests=[{"assert": test}], limits=Limits(time_s=1, wall_s=2)) == [verdict]


# ----------------------------------------------------------------------------------------------------------------------
# Options


def test_a_checker_decides_where_several_answers_are_right() -> None:
    checker = "def check(input, output, expected):\n    return sorted(output.split()) == sorted(input.split())\n"
    tests = [{"input": "3 1 2"}]
    assert verdicts("print(*sorted(input().split()))", tests=tests, checker=checker) == ["AC"]
    assert verdicts("print(*input().split()[::-1])", tests=tests, checker=checker) == ["AC"]
    assert verdicts("print(1)", tests=tests, checker=checker) == ["WA"]


def test_a_checker_that_fails_on_an_output_refuses_it() -> None:
    checker = "def check(input, output, expected):\n    return int(output) > 0\n"
    judgement = judge("print('x')", language="python", tests=ONE, checker=checker)
    assert judgement.verdicts == ["WA"]
    assert "invalid literal" in judgement.reasons[0]


def test_an_early_stop_leaves_out_what_follows_the_first_failure() -> None:
    tests = [SUMS[0], {"input": "1 1", "output": "0"}, *SUMS * 10]
    judgement = judge(ADD, language="python", tests=tests, stop_early=True)
    assert judgement.verdicts == ["AC", "WA", *["SKIP"] * 20]
    assert judgement.score == pytest.approx(1 / 22)


def test_a_sample_is_the_same_for_the_same_seed_and_counts_alone() -> None:
    tests = [{"input": f"{i} 1", "output": str(i + 1)} for i in range(100)]
    first = judge(ADD, language="python", tests=tests, sample=10, seed=7)
    assert first.verdicts.count("AC") == 10 and first.verdicts.count("SKIP") == 90
    assert first.score == 1.0
    assert judge(ADD, language="python", tests=tests, sample=10, seed=7).sampled == first.sampled
    assert judge(ADD, language="python", tests=tests, sample=10, seed=8).sampled != first.sampled


def test_the_same_program_with_the_same_tests_is_judged_once() -> None:
    slow = "import time\nx = time.process_time()\nwhile time.process_time() - x < 0.3: pass\nprint(1)\n"
    begun = time.process_time(), time.monotonic()
    judged = judge_many([Submission(slow, "python", list(ONE)) for _ in range(64)])
    assert {tuple(judgement.verdicts) for judgement in judged} == {("AC",)}
    assert time.monotonic() - begun[1] < 64 * 0.3 / slots() / 2


def test_judgements_come_in_the_order_of_the_submissions() -> None:
    judged = judge_many([Submission(f"print({i % 3})", "python", ONE) for i in range(60)])
    assert [judgement.verdicts[0] for judgement in judged] == ["AC" if i % 3 == 1 else "WA" for i in range(60)]


FAULTS = [
    ({"language": "cobol"}, "Unknown language 'cobol': the judge knows python, cpp, c, rust"),
    ({"language": "pyton"}, "Did you mean 'python'?"),
    ({"tests": [{"input": "1"}]}, "test 1 of 1 has no output to compare with"),
    ({"tests": [SUMS[0], {"output": 3}]}, "test 2 of 2: output should be text, but is int"),
    ({"tests": [SUMS[0], "x"]}, "test 2 of 2 should be a dictionary, but is str"),
    ({"tests": [{"input": "", "output": "", "points": 3}]}, "unknown key 'points'"),
    ({"tests": [{"input": "", "output": "", "comparison": "fuzzy"}]}, "There is no comparison 'fuzzy'"),
    ({"tests": [{}]}, "has neither input and output, nor call and expected, nor assert"),
    ({"tests": [{"call": [1], "expected": 1}]}, "say which, with entry_point"),
    ({"tests": [{"call": [1]}], "entry_point": "f"}, "has a call, but not what is expected of it"),
    ({"tests": [{"assert": "assert ("}]}, "is no Python"),
    ({"tests": [{"assert": "assert 1"}], "language": "cpp"}, "is an assert: that is Python, and the program is in cpp"),
    ({"tests": [{"call": [1], "expected": 1}], "entry_point": "f", "language": "cpp"}, "give its signature"),
    ({"tests": [{"call": [1], "expected": 1}], "entry_point": "f", "signature": "int f", "language": "cpp"},
     "is not that of a function"),
    ({"tests": [{"call": [1], "expected": 1}], "entry_point": "f", "signature": "int g(int)", "language": "cpp"},
     "the signature is that of 'g', but entry_point is 'f'"),
    ({"comparison": "tokns"}, "did you mean tokens?"),
    ({"tolerance": 2}, "tolerance"),
    ({"sample": 0}, "sample is 0"),
    ({"checker": "def check("}, "the checker is no Python"),
    ({"checker": "x = 1"}, "defines no function check"),
    ({"program": 3}, "the program should be text, but is int"),
    ({"limits": 3}, "limits should be a Limits"),
    ({"colour": 3}, "unexpected keyword argument 'colour'"),
]  # fmt: skip


@pytest.mark.parametrize("change, words", FAULTS, ids=[words for _, words in FAULTS])
def test_a_wrong_argument_is_named(change: dict, words: str) -> None:
    good = {"program": ADD, "language": "python", "tests": SUMS}
    with pytest.raises(InputError) as caught:
        judge_many([good, {**good, **change}])
    assert words in str(caught.value)
    assert "Submission 2 of 2" in str(caught.value)


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="memory_mb is 'much', but should be a number from 16"):
        Limits(memory_mb="much")  # type: ignore[arg-type]


def test_no_test_is_no_point() -> None:
    judgement = judge(ADD, language="python", tests=[])
    assert (judgement.verdicts, judgement.score, judgement.feedback) == ([], 0.0, "There was no test.")


def test_nothing_is_no_batch() -> None:
    assert judge_many([]) == []


# ----------------------------------------------------------------------------------------------------------------------
# Where and when it is used


def test_importing_it_pulls_in_neither_torch_nor_trl() -> None:
    names = "('torch', 'trl', 'transformers', 'numpy')"
    code = f"import sys, rlvr.verifiers.code; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_threads_judge_at_the_same_time_and_a_small_batch_does_not_wait_for_a_large_one() -> None:
    spin = "import time\nx = time.process_time()\nwhile time.process_time() - x < 0.1: pass\nprint(1)\n#"
    ended: dict[str, float] = {}

    def run(name: str, count: int) -> None:
        judged = judge_many([Submission(f"{spin}{name}{i}", "python", ONE) for i in range(count)])
        assert all(judgement.score == 1 for judgement in judged)
        ended[name] = time.monotonic()

    large = threading.Thread(target=run, args=("large", 16 * slots()))
    large.start()
    time.sleep(0.2)
    begun = time.monotonic()
    run("small", 2)
    large.join()
    assert ended["small"] - begun < (ended["large"] - begun) / 2


def _judge_in_a_fork(queue: multiprocessing.Queue) -> None:
    queue.put(verdicts(ADD, tests=SUMS))


def test_a_forked_process_has_a_judge_of_its_own() -> None:
    assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_judge_in_a_fork, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    assert [queue.get(timeout=60) for _ in children] == [["AC", "AC"]] * 2
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    assert verdicts(ADD, tests=SUMS) == ["AC", "AC"], "and the parent's still works"


def test_it_works_after_a_fork_of_a_process_with_torch() -> None:
    code = f"""
        import os, torch
        torch.randn(200, 200) @ torch.randn(200, 200)
        from rlvr.verifiers.code import judge
        child = os.fork()
        if child == 0:
            judged = judge({ADD!r}, language="python", tests={SUMS!r})
            os._exit(0 if judged.score == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        print(judge({ADD!r}, language="python", tests={SUMS!r}).verdicts)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "['AC', 'AC']", done.stderr


def _processes(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("ending", ["exit", "exception", "kill", "interrupt"])
def test_nothing_is_left_however_the_judges_process_ends(ending: str) -> None:
    code = f"""
        import os, signal, sys, threading, time
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it
        from rlvr.verifiers.code import judge, judge_many, Submission, Limits
        judge({ADD!r}, language="python", tests={SUMS!r})
        judge({ADD_CPP!r}, language="cpp", tests={SUMS!r})
        print("ready", flush=True)
        if {ending!r} == "exit":
            sys.exit(0)
        if {ending!r} == "exception":
            raise RuntimeError
        judge_many([Submission("import time; time.sleep(100)#%d" % i, "python", {ONE!r}, limits=Limits(wall_s=100))
                    for i in range(4)])
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    kept = _processes(process.pid)
    below = [child for zygote in kept for child in _processes(zygote)]
    if ending == "kill":
        process.kill()
    elif ending == "interrupt":
        assert below, "programs are running"
        process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    process.communicate(timeout=60)
    assert time.monotonic() - begun < 15
    if ending == "interrupt":
        assert process.returncode in (-signal.SIGINT, 130, 1)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(Path(f"/proc/{child}").exists() for child in kept + below):
        time.sleep(0.05)
    assert not [child for child in kept + below if Path(f"/proc/{child}").exists()]


def test_thousands_of_runs_leave_no_descriptor_process_file_or_memory_behind(temporary_folder: Path) -> None:
    batch = [Submission(f"print(1)#{i}", "python", ONE) for i in range(400)]

    def footprint() -> tuple[int, int, int]:
        files = len(list(temporary_folder.rglob("*")))
        return len(os.listdir("/proc/self/fd")), len(_processes(os.getpid())), files

    judge_many(batch)
    before = footprint()
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    for _ in range(5):
        judge_many(batch)
    assert footprint() == before
    grown = (int(Path("/proc/self/statm").read_text().split()[1]) - resident) * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert grown < 8, f"{grown:.1f} MB"


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that programs' own users can reach too."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    close()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    close()
    shutil.rmtree(folder)


def test_closing_removes_what_it_worked_with(temporary_folder: Path) -> None:
    assert verdicts(ADD_CPP, language="cpp", tests=SUMS) == ["AC", "AC"]
    assert list(temporary_folder.glob("grpo-recipes-compile-*"))
    close()
    assert not list(temporary_folder.iterdir())
    assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]


def test_a_temporary_folder_that_only_its_owner_reaches_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    close()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert verdicts(ADD_CPP, language="cpp", tests=SUMS) == ["AC", "AC"]
    close()


def test_a_full_disk_is_nobodys_wrong_program(temporary_folder: Path) -> None:
    small = temporary_folder / "small"
    small.mkdir(mode=0o755)
    mounting = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs", str(small)]
    if subprocess.run(mounting, capture_output=True).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        os.environ["TMPDIR"] = str(small)
        judgement = judge(ADD_CPP, language="cpp", tests=SUMS)
        assert judgement.verdicts == ["SE", "SE"] and judgement.sandbox_failed
        assert "no space left" in judgement.reasons[0]
    finally:
        close()
        subprocess.run(["umount", str(small)], check=True)


def test_what_a_killed_judge_left_is_removed_by_the_next(temporary_folder: Path) -> None:
    left = temporary_folder / "grpo-recipes-compile-abcd1234"
    left.mkdir()
    (left / "program.cpp").write_text("int main() {}")
    os.utime(left, (time.time() - 60, time.time() - 60))
    assert verdicts(ADD_CPP, language="cpp", tests=SUMS) == ["AC", "AC"]
    assert not left.exists()


@pytest.mark.slow
def test_verdicts_do_not_change_when_the_machine_is_busy() -> None:
    half = "import time\nx = time.process_time()\nwhile time.process_time() - x < 0.25: pass\nprint(1)\n"
    programs = [half, half.replace("0.25", "3"), "print(1)", "import time; time.sleep(0.3); print(1)"]
    wanted = [["AC"], ["TLE"], ["AC"], ["AC"]]
    limits = Limits(time_s=0.5, wall_s=2.0)

    def all_of_them() -> list[list[str]]:
        return [j.verdicts for j in judge_many([Submission(p, "python", ONE, limits=limits) for p in programs])]

    assert all_of_them() == wanted
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        for _ in range(2):
            assert all_of_them() == wanted
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_children_are_found_where_the_kernel_has_no_list_of_them() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert child.pid in zygote._children_by_search(os.getpid())
    finally:
        child.kill()
        child.wait()
    assert child.pid not in zygote._children_by_search(os.getpid())


def test_a_zygote_that_is_killed_is_replaced() -> None:
    verdicts(ADD, tests=SUMS)
    for process in _processes(os.getpid()):
        if b"zygote.py" in Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGKILL)
    assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]


def test_without_its_compiler_a_language_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"need g\+\+, which is not in PATH. Install g\+\+"):
        judge(ADD_CPP, language="cpp", tests=SUMS)


def test_python_is_judged_where_no_file_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlvr.sandbox import directories

    with monkeypatch.context() as context:
        context.setattr(directories, "temporary_folders", lambda: [Path("/proc/nowhere")])
        with capabilities_without():
            assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]
            judged = judge(ADD_CPP, language="cpp", tests=SUMS)
            assert judged.verdicts == ["SE", "SE"]
            assert "no temporary folder can be made" in judged.reasons[0]


# ----------------------------------------------------------------------------------------------------------------------
# Rungs


def test_the_rungs_are_named() -> None:
    found = detect_capabilities()
    assert found.describe().startswith(f"sandbox {found.level}: ")
    assert found.metadata()["sandbox"].startswith(f"{found.level}: ")


def test_a_weak_sandbox_is_refused_unless_it_is_allowed() -> None:
    from rlvr.verifiers.code import SandboxUnavailable

    with capabilities_without("seccomp", "landlock", "chroot", "user") as found:
        assert found.level == "weak"
        with pytest.raises(SandboxUnavailable, match="allow_weak_sandbox"):
            verdicts(ADD, tests=SUMS)
        assert verdicts(ADD, tests=SUMS, allow_weak_sandbox=True) == ["AC", "AC"]


def test_nothing_is_compiled_where_a_compiler_could_read_everything() -> None:
    from rlvr.verifiers.code import SandboxUnavailable

    with capabilities_without("landlock", "chroot", "user") as found:
        assert found.level == "sealed"
        assert verdicts(ADD, tests=SUMS) == ["AC", "AC"]
        with pytest.raises(SandboxUnavailable, match="Compilers can't be confined here"):
            verdicts(ADD_CPP, language="cpp", tests=SUMS)
        assert verdicts(ADD_CPP, language="cpp", tests=SUMS, allow_weak_sandbox=True) == ["AC", "AC"]


def test_without_landlock_a_compiler_gets_a_root_of_its_own(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change the root")
    secret = tmp_path / "secret.txt"
    secret.write_text("0")
    tmp_path.chmod(0o755)
    with capabilities_without("landlock") as found:
        assert found.level == "strong"
        assert verdicts(ADD_CPP, language="cpp", tests=SUMS) == ["AC", "AC"]
        reading = f'#include <cstdio>\nint x = 1 +\n#include "{secret}"\n;\nint main() {{ std::printf("%d", x); }}'
        judgement = judge(reading, language="cpp", tests=ONE)
        assert judgement.verdicts == ["CE"]
        assert "No such file or directory" in judgement.compile_output
