"""docs/math-rewards.md is true, row by row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlvr.verifiers.math import check_answer

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "math-rewards.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (right|wrong) \|", PAGE, re.MULTILINE)

AROUND_A_BOX = re.findall(r"^\| [^`|]+ \| `(.*boxed\{7\}.*)` \| `(.*boxed\{7\}.*)` \|$", PAGE, re.MULTILINE)


def test_the_page_has_its_tables() -> None:
    assert len(ROWS) > 30
    assert len(AROUND_A_BOX) > 15


@pytest.mark.parametrize(("right", "wrong"), AROUND_A_BOX)
def test_the_table_of_text_around_a_box_says_what_the_verifier_does(right: str, wrong: str) -> None:
    assert check_answer(right, "7").correct is True
    assert check_answer(wrong, "7").correct is False


@pytest.mark.parametrize(("answer", "gold", "verdict"), ROWS)
def test_the_table_says_what_the_verifier_does(answer: str, gold: str, verdict: str) -> None:
    assert check_answer(f"\\boxed{{{answer}}}", gold).correct is (verdict == "right")
    assert check_answer(f"#### The final answer is {answer}", gold).correct is (verdict == "right")


@pytest.mark.parametrize("cell", [row for row in PAGE.split("\n") if row.startswith("   | ") and "18" in row])
def test_the_notations_of_the_page_are_read(cell: str) -> None:
    for example in re.findall(r"`([^`]*18[^`]*)`", cell):
        assert check_answer(example, "18").correct is True, example
