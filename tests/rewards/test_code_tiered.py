"""The code_tiered reward: the tiers published for CodeFu, and those of its code."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.code_tiered import code_tiered, validate_rows
from tests.support.judged_programs import fenced

TESTS = [{"input": f"{number}", "output": f"{number * 2}"} for number in range(4)]


TIERS = [
    (fenced("print(2 * int(input()))"), 1.0, 1.0, "right"),
    (fenced("print(2 * min(2, int(input())))"), 0.75, 0.0, "right on three of four"),
    (fenced("print('0')"), 0.25, 0.0, "right on one"),
    (fenced("print('x')"), 0.0, 0.0, "wrong"),
    (fenced("1 / 0"), 0.0, 0.0, "an error"),
    (fenced("n = int(input())\nwhile n == 3: pass\nprint(2 * n)"), 0.0, 0.0, "one test over the time limit"),
    (fenced("while True: pass"), 0.0, 0.0, "all of them"),
    (fenced("print(("), -0.5, -0.5, "a syntax error"),
    ("```python\nprint(2 * int(input()))", -1.0, -1.0, "a block that is never closed"),
    ("no program", -1.0, -1.0, "no code"),
    ("", -1.0, -1.0, "nothing"),
]


@pytest.mark.parametrize(("completion", "published", "original", "why"), TIERS)
def test_tiers_match_the_publication_or_its_code(completion: str, published: float, original: float, why: str) -> None:
    arguments: dict[str, Any] = {"tests": [TESTS], "time_s": 0.3}
    assert code_tiered([""], [completion], **arguments) == [published], why
    assert code_tiered([""], [completion], **arguments, published=False) == [original], why


def test_rows_are_validated_like_those_of_code_execution() -> None:
    assert validate_rows(tests=[TESTS, None], published=False) == [None, "there is no test"]
