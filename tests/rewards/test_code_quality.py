"""The code_quality reward: its bonuses and its gate."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.code_quality import code_quality, validate_rows
from tests.support.judged_programs import fenced

TESTS = [{"input": "1", "output": "2"}, {"input": "2", "output": "4"}]
ALL: dict[str, Any] = {"compiles": 0.1, "runs": 0.2, "quiet": 0.3}


NOISY = "import sys\nsys.stderr.write('here\\n')\nprint(2 * int(input()))"
CASES = [
    (fenced("print(2 * int(input()))"), 0.6, 0.6, "right and quiet"),
    (fenced(NOISY), 0.3, 0.3, "something on standard error"),
    (fenced("print(2)"), 0.0, 0.6, "wrong on one test"),
    (fenced("pass"), 0.0, 0.6, "it does nothing"),
    (fenced("print(4 // (int(input()) - 1))"), 0.0, 0.1, "an error on one test"),
    (fenced("print(("), 0.0, 0.0, "a syntax error"),
    ("no program", 0.0, 0.0, "no code"),
]


@pytest.mark.parametrize(("completion", "gated", "ungated", "why"), CASES)
def test_only_right_programs_get_bonuses(completion: str, gated: float, ungated: float, why: str) -> None:
    arguments: dict[str, Any] = {"tests": [TESTS], "time_s": 0.6, **ALL}
    assert code_quality([""], [completion], **arguments) == [pytest.approx(gated)], why
    assert code_quality([""], [completion], **arguments, gated=False) == [pytest.approx(ungated)], why


def test_the_share_of_each_bonus_is_logged() -> None:
    logged: dict[str, float] = {}
    code_quality([""] * 2, [fenced(NOISY), fenced("1/0")], tests=[TESTS] * 2, log_metric=logged.__setitem__)
    assert logged == {"code_quality/compiles": 1.0, "code_quality/runs": 0.5, "code_quality/quiet": 0.0}


def test_rows_are_validated_like_those_of_code_execution() -> None:
    assert validate_rows(tests=[TESTS, "{"], compiles=0.2)[0] is None
