"""Repeated prompts and small held-out splits bring warnings."""

from __future__ import annotations

import pytest
from datasets import Dataset

from rlvr.config.specs import EvaluationSpec
from rlvr.errors import Problem
from rlvr.preflight.check import check_components
from rlvr.preflight.measurement_checks import (
    GOOD_HALF_WIDTH,
    MAX_HALF_WIDTH,
    half_width,
    rows_needed,
)
from tests.support.run_components import make_components, rows


def prompts(texts: list[str]) -> Dataset:
    return Dataset.from_dict({"prompt": texts, "final_answer": [f"to {text}" for text in texts]})


def kinds(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.kind, problem.level) for problem in problems]


@pytest.mark.parametrize("split", ["train", "test"])
def test_repeated_prompts_are_counted_with_an_example_row(split: str) -> None:
    repeated = prompts(["once?", *(f"{row % 4}?" for row in range(159))])
    components = make_components(train=repeated) if split == "train" else make_components(test=repeated)
    [problem] = check_components(components).problems
    assert kinds([problem]) == [("repeated-prompt", "warning")]
    assert (problem.key, problem.row) == ("prompt", 1)
    assert split in problem.message and "155 of 160" in problem.message and "40 times" in problem.message


@pytest.mark.parametrize(
    ("available", "used", "is_small", "why"),
    [
        (40, None, True, "a small split"),
        (200, 40, True, "a large split of which few rows are used"),
        (93, None, False, "just enough"),
        (92, None, True, "one row too few"),
    ],
)
def test_too_few_held_out_rows_for_an_interval_are_warned_of(
    available: int, used: int | None, is_small: bool, why: str
) -> None:
    components = make_components(test=rows(available, start=500), evaluation=EvaluationSpec(rows=used))
    problems = check_components(components).problems
    assert kinds(problems) == ([("small-split", "warning")] if is_small else []), why
    for problem in problems:
        half = f"{100 * half_width(used or available):.0f} points"
        assert problem.key == "evaluation.split" and all(part in problem.message for part in (half, "93", "381")), why


def test_the_rows_needed_are_the_fewest_for_an_interval() -> None:
    for width in (MAX_HALF_WIDTH, GOOD_HALF_WIDTH):
        assert half_width(rows_needed(width)) <= width < half_width(rows_needed(width) - 1)
