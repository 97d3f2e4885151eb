"""The judge as its callers see it: verdicts, limits, bad input, threads, forks, interruption, nothing left behind."""

from __future__ import annotations

import time

import pytest

from rlvr.errors import InputError
from rlvr.verifiers.code import Limits, Submission, judge, judge_many
from tests.support.cases import cases
from tests.support.input_errors import input_error
from tests.support.judged_programs import ADD, ADD_CPP, ONE, SUMS, verdicts


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
    ("x = bytearray(10**9)", "MLE", "more than there is"),
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
def test_each_failure_has_its_verdict(program: str, verdict: str, why: str) -> None:
    wall_s = 1.0 if "sleep" in program else 20.0
    limits = Limits(time_s=0.5, wall_s=wall_s, memory_mb=64, output_kb=256)
    assert verdicts(program, limits=limits) == [verdict]


VERDICTS_CPP = [
    ("int main() {", "CE", "no C++"),
    ("", "CE", "no main"),
    ("int main() { for (;;) {} }", "TLE", "computes for ever"),
    ("#include <vector>\nint main() { std::vector<char> v(1 << 30, 1); return v[5] - 1; }", "MLE", "too much memory"),
    ('#include <cstdio>\nint main() { for (;;) std::puts("xxxxxxxxxxxxxxxx"); }', "OLE", "too much output"),
    ("int main() { return *(volatile int *)nullptr; }", "RE", "a segmentation fault"),
    ('#include <cstdio>\nint main() { std::puts("1"); return 1; }', "RE", "the right output, but a failure"),
    ('#include <cstdio>\nint main() { std::puts("1"); }', "AC", "right, without the header that is precompiled"),
    ("#define N 1\n#include <bits/stdc++.h>\nint main() { std::cout << N; }", "AC", "something before the #include"),
    ("#include <iostream>\n#include <bits/stdc++.h>\nint main() { std::cout << 1; }", "AC", "another header first"),
    ("#include <bits/stdc++.h>\n#include <bits/stdc++.h>\nint main() { std::cout << 1; }", "AC", "the header twice"),
]


@pytest.mark.slow
def test_each_failure_of_a_compiled_program_has_its_verdict() -> None:
    limits = Limits(time_s=0.5, wall_s=20.0, memory_mb=64, output_kb=256)
    judged = judge_many([Submission(program, "cpp", ONE, limits=limits) for program, _, _ in VERDICTS_CPP])
    got = {why: judgement.verdicts for (_, _, why), judgement in zip(VERDICTS_CPP, judged, strict=True)}
    assert got == {why: [verdict] for _, verdict, why in VERDICTS_CPP}


def test_a_syntax_error_names_no_file_of_the_judge() -> None:
    judgement = judge("print(1", language="python", tests=ONE)
    assert judgement.compile_output.startswith('File "program.py", line 1')
    assert "guest" not in judgement.compile_output


def test_feedback_is_printable_and_names_no_file_of_the_judge() -> None:
    judgement = judge("raise ValueError('\\x1b[2J\\x07bad')", language="python", tests=ONE)
    assert "bad" in judgement.feedback and judgement.feedback.replace("\n", "").isprintable()
    assert "guest" not in judgement.stderr[0] and 'File "program.py", line 1' in judgement.stderr[0]


def test_compiler_messages_do_not_name_the_working_folder() -> None:
    judgement = judge("int main() { return x; }", language="cpp", tests=ONE)
    assert "program.cpp:1:21: error: 'x' was not declared" in judgement.compile_output
    assert "grpo-recipes-" not in judgement.compile_output


@pytest.mark.slow
def test_the_compile_time_is_limited() -> None:
    slow = "constexpr int f(int n) { int s = 0; for (int i = 0; i < n; i++) s ^= i; return s; }\n"
    slow += "\n".join(f"static_assert(f({200_000 + i}) >= 0);" for i in range(100))
    begun = time.monotonic()
    judgement = judge(slow + "\nint main() {}", language="cpp", tests=ONE, limits=Limits(compile_time_s=1))
    assert judgement.verdicts == ["CE"]
    assert time.monotonic() - begun < 60


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
]


@pytest.mark.parametrize("program, arguments, expected, verdict, why", CALLS, ids=[row[-1] for row in CALLS])
def test_function_calls(program: str, arguments: list, expected: object, verdict: str, why: str) -> None:
    assert verdicts(program, tests=[{"call": arguments, "expected": expected}], entry_point="f") == [verdict]


# The programs of tests/support/honest and tests/support/attacks cover calls in C++ and asserts in depth.
ASSERTS = [
    ("def f(x): return x * 2", "assert f(2) == 4", "AC", "a plain call"),
    ("def f(x): return x * 2", "assert f(2) == 5", "WA", "a plain call that is wrong"),
    ("def f(x): return [10 ** 5000]", "assert f(2) == [4]", "WA", "a number of more digits than Python writes"),
    ("def f(x): return x == 2", "assert f(2) == 1", "AC", "Python's equality, in an assert"),
    ("def f(x): return [x]", "assert f(2) == (2,)", "WA", "in which a list is no tuple"),
    ("def f(x): raise StopIteration", "assert all(map(f, [1, 2]))", "RE", "an exception that would end a loop"),
    ("def f(x):\n    import sys\n    sys.exit(0)", "r = f(2)\nassert r == 4", "RE", "ends well in the middle"),
    ("def f(x):\n    while True: pass", "r = f(2)\nassert r == 4", "TLE", "does not end"),
    ("def f(x):  # import\n    return isinstance(2, x)", "assert f(int) is True", "AC", "takes a type"),
    ("raise SystemExit(0)", "r = f(2)\nassert r == 4", "RE", "ends well at once"),
]


@pytest.mark.slow
@pytest.mark.parametrize("program, test, verdict, why", ASSERTS, ids=[row[-1] for row in ASSERTS])
def test_asserts(program: str, test: str, verdict: str, why: str) -> None:
    assert verdicts(program, tests=[{"assert": test}], limits=Limits(time_s=1, wall_s=20)) == [verdict]


# ----------------------------------------------------------------------------------------------------------------------
# Options


def test_a_checker_decides_if_several_outputs_are_right() -> None:
    checker = "def check(input, output, expected):\n    return sorted(output.split()) == sorted(input.split())\n"
    tests = [{"input": "3 1 2"}]
    assert verdicts("print(*sorted(input().split()))", tests=tests, checker=checker) == ["AC"]
    assert verdicts("print(*input().split()[::-1])", tests=tests, checker=checker) == ["AC"]
    assert verdicts("print(1)", tests=tests, checker=checker) == ["WA"]


def test_a_checker_that_raises_rejects_the_output() -> None:
    checker = "def check(input, output, expected):\n    return int(output) > 0\n"
    judgement = judge("print('x')", language="python", tests=ONE, checker=checker)
    assert judgement.verdicts == ["WA"]
    assert "invalid literal" in judgement.reasons[0]


def test_an_early_stop_skips_the_tests_after_the_first_failure() -> None:
    tests = [SUMS[0], {"input": "1 1", "output": "0"}, *SUMS * 10]
    judgement = judge(ADD, language="python", tests=tests, stop_early=True)
    assert judgement.verdicts == ["AC", "WA", *["SKIP"] * 20]
    assert judgement.score == pytest.approx(1 / 22)


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_after_some_timeouts_the_other_tests_are_not_run(language: str) -> None:
    hang = {"input": "0 0", "output": "0"}
    program = {
        "python": f"{ADD}while a == 0: pass\n",
        "cpp": '#include <cstdio>\nint main() { int a, b; scanf("%d %d", &a, &b); printf("%d", a + b);'
        "for (volatile int c = a; c == 0;) {} }",
    }[language]
    tests = [SUMS[0], hang, SUMS[1], *[hang] * 60]
    limits = Limits(time_s=0.2, wall_s=20.0)
    judgement = judge(program, language=language, tests=tests, limits=limits, max_timeouts=2)
    assert judgement.verdicts == ["AC", "TLE", "AC", "TLE", *["SKIP"] * 59]
    assert "59 tests were not run" in judgement.feedback


def test_the_same_program_with_the_same_tests_is_judged_once() -> None:
    judged = judge_many([Submission("print(1)  # once", "python", list(ONE)) for _ in range(64)])
    assert {tuple(judgement.verdicts) for judgement in judged} == {("AC",)}
    assert all(judgement.cpu_s == judged[0].cpu_s for judgement in judged), "measured twice, it would differ"


def test_judgements_have_the_order_of_the_submissions() -> None:
    judged = judge_many([Submission(f"print({i % 3})", "python", ONE) for i in range(60)])
    assert [judgement.verdicts[0] for judgement in judged] == ["AC" if i % 3 == 1 else "WA" for i in range(60)]


INVALID = cases(__file__, "invalid")


@pytest.mark.parametrize("change, kind, key, why", INVALID, ids=[f"{kind}-{why}" for _, kind, _, why in INVALID])
def test_an_invalid_argument_is_located(change: dict, kind: str, key: str | None, why: str) -> None:
    valid = {"program": ADD, "language": "python", "tests": SUMS}
    with input_error(kind, key, 1) as error:
        judge_many([valid, {**valid, **change}])
    assert "Submission 2 of 2" in str(error.value)


def test_a_misspelt_language_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="Did you mean '?python"):
        judge_many([{"program": ADD, "language": "pyton", "tests": SUMS}])


def test_a_limit_out_of_range_is_refused() -> None:
    with input_error("invalid-limit", "memory_mb"):
        Limits(memory_mb="much")  # type: ignore[arg-type]


def test_without_tests_the_score_is_0() -> None:
    judgement = judge(ADD, language="python", tests=[])
    assert (judgement.verdicts, judgement.score, judgement.feedback) == ([], 0.0, "There was no test.")
