"""Checkers that come with the data: those without a function `check` are found before training."""

from __future__ import annotations

import pytest

from rewards.code_execution import code_execution
from rlvr.verifiers.code.cases import check_checker
from tests.support.input_errors import input_error

TESTS = [{"input": "1 2\n", "output": "3\n"}]
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
COMPARE = "def check(input, output, expected):\n    return output.split() == expected.split()\n"


@pytest.mark.parametrize(
    "source, why",
    [
        (COMPARE, "a function"),
        ("check = lambda i, o, e: o == e", "a variable"),
        ("a, check = 1, max", "a variable among others"),
        ("check: object = max", "a variable with a type"),
        ("from operator import contains as check", "an import"),
        (
            "try:\n    import numpy\nexcept ImportError:\n    def check(i, o): return True\nelse:\n    "
            + "check = max",
            "try",
        ),
    ],
)
def test_a_checker_that_defines_check_is_accepted(source: str, why: str) -> None:
    check_checker(source)


@pytest.mark.parametrize(
    "source, why",
    [
        (COMPARE.replace("check", "checker"), "a longer name"),
        ("import subprocess\nsubprocess.check_output('ls')", "a function of a module"),
        ("print(check)", "the name is read, not set"),
        ("def solve(i, o, e):\n    def check(i, o, e): return True", "within a function"),
        ("class Checker:\n    def check(self, i, o, e): return True", "a method"),
        ("x = [1 for check in range(3)]", "a variable of a comprehension"),
        ("return check", "no module"),
    ],
)
def test_a_checker_without_check_is_refused(source: str, why: str) -> None:
    with input_error("invalid-checker", "checker", why=why):
        check_checker(source)


def test_a_metric_counts_completions_on_which_the_checker_fails() -> None:
    logged: dict[str, float] = {}
    checkers = [COMPARE, COMPARE.replace("output.split()", "int(output.split('x')[1])")]
    rewards = code_execution([""] * 2, [RIGHT] * 2, tests=[TESTS] * 2, checker=checkers, log_metric=logged.__setitem__)
    assert rewards == [1.0, 0.0]
    assert logged["code_execution/checker_errors"] == 0.5
