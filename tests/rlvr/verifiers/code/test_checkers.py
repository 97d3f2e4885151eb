"""Checkers that come with the data: those that can accept no output are found before training."""

from __future__ import annotations

import pytest

from rewards.code_execution import code_execution
from rlvr.errors import InputError
from rlvr.verifiers.code import problems
from rlvr.verifiers.code.checkers import check_checker
from rlvr.verifiers.code.options import JudgeOptions
from rlvr.verifiers.code.problems import row_faults
from tests.support.cases import cases

TESTS = [{"input": "1 2\n", "output": "3\n"}]
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
COMPARE = "def check(input, output, expected):\n    return output.split() == expected.split()\n"


@pytest.mark.parametrize(
    "source, why",
    [
        (COMPARE, "a function"),
        ("def check(output, expected): pass\n" + COMPARE, "the last definition counts"),
        ("def check(*texts): return True", "any number of arguments"),
        ("def check(i, o, e, strict=False, *, case=True): return True", "more arguments, with defaults"),
        ("def check(i, /, o, e=None): return True", "arguments without names"),
        ("check = lambda i, o, e: o == e", "a variable"),
        ("other = check = max", "two variables"),
        ("a, check = 1, max", "a variable among others"),
        ("check: object = max", "a variable with a type"),
        ("from operator import contains as check", "an import"),
        (
            "try:\n    import numpy\nexcept ImportError:\n    def check(i, o): return True\nelse:\n    "
            + "check = max",
            "try",
        ),
        ("if True:\n    def check(i, o, e): return True\nelse:\n    def check(i): return True", "if"),
        ("from functools import partial\n@partial(partial, 0)\ndef check(mode, i, o, e): return True", "a decorator"),
    ],
)
def test_a_checker_that_can_be_called_is_accepted(source: str, why: str) -> None:
    check_checker(source)


@pytest.mark.parametrize(
    "source, words, why",
    [
        (COMPARE.replace("check", "checker"), "it defines checker", "a longer name"),
        ("import subprocess\nsubprocess.check_output('ls')", "defines no function check", "a function of a module"),
        ("# check\nx = 1", "defines no function check", "a comment"),
        ("print(check)", "defines no function check", "the name is read, not set"),
        ("def solve(i, o, e):\n    def check(i, o, e): return True", "it defines solve", "within a function"),
        ("class Checker:\n    def check(self, i, o, e): return True", "defines no function check", "a method"),
        ("x = [1 for check in range(3)]", "defines no function check", "a variable of a comprehension"),
        ("async def check(i, o, e): return True", "async", "its result would be a coroutine"),
        ("def check(output, expected): return True", "check(output, expected)", "too few arguments"),
        ("def check(i, o, e, mode): return True", "check(i, o, e, mode)", "too many arguments"),
        ("def check(i, o, *, expected): return True", "check(i, o, *, expected)", "arguments by name"),
        ("def check(i, o, e, *, mode): return True", "*, mode", "an argument by name without a default"),
        ("return check", "not valid Python", "no module"),
    ],
)
def test_a_checker_that_cannot_be_called_is_refused(source: str, words: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        check_checker(source)
    assert (error.value.kind, error.value.key) == ("invalid-checker", "checker"), why
    assert words in str(error.value), why


@pytest.mark.parametrize("body, words, why", cases(__file__, "a checker is tried"))
def test_a_checker_is_tried_on_an_expected_output(body: str, words: str | None, why: str) -> None:
    checker = f"def check(input, output, expected):\n    {body}\n"
    columns = [checker, COMPARE, checker, checker]
    blank = [{"input": "1 2\n"}]
    first, other, second, untried = row_faults(JudgeOptions(tests=[TESTS, TESTS, TESTS, blank], checker=columns))
    assert other is None and second == first
    assert (first is None) if words is None else (first is not None and words in first), why
    assert untried == first, "the same checker, also in a row without an expected output"


def test_no_more_than_some_checkers_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "MAX_TRIED_CHECKERS", 2)
    checkers = [f"def check(i, o, e): return missing_{number}" for number in range(4)]
    assert [bool(fault) for fault in row_faults(JudgeOptions(tests=[TESTS] * 4, checker=checkers))] == [True] * 2 + [
        False
    ] * 2


def test_a_metric_counts_completions_on_which_the_checker_fails() -> None:
    logged: dict[str, float] = {}
    checkers = [COMPARE, COMPARE.replace("output.split()", "int(output.split('x')[1])")]
    rewards = code_execution([""] * 2, [RIGHT] * 2, tests=[TESTS] * 2, checker=checkers, log_metric=logged.__setitem__)
    assert rewards == [1.0, 0.0]
    assert logged["code_execution/checker_errors"] == 0.5


@pytest.mark.parametrize(("body", "accepted", "why"), cases(__file__, "a checker that accepts"))
def test_a_checker_that_accepts_outputs_without_an_answer_is_doubtful(body: str, accepted: list[str], why: str) -> None:
    checker = f"def check(input, output, expected):\n    {body}\n"
    faults = row_faults(JudgeOptions(tests=[TESTS, TESTS], checker=checker))
    assert faults[0] == faults[1]
    assert (faults[0] is None) == (not accepted), why
    assert faults[0] is None or (faults[0].startswith("warning: ") and all(words in faults[0] for words in accepted))
