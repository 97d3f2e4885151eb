"""Generated countdown problems: each has a solution, and none is in two splits."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.countdown import countdown as reward
from tasks.countdown import countdown
from tests.support.input_errors import input_error


@pytest.mark.parametrize("options", [{}, {"min_numbers": 5, "max_numbers": 6, "max_target": 999}, {"max_number": 9}])
def test_every_problem_is_solved_by_its_gold_and_in_one_split_only(options: dict[str, Any]) -> None:
    task = countdown(train_rows=300, test_rows=50, **options)
    assert (len(task.train), len(task.test)) == (300, 50) and task.gold is not None
    problems = []
    for rows in (task.train, task.test):
        golds = [str(task.gold(row)) for row in rows]
        columns = {"numbers": rows["numbers"], "target": rows["target"]}
        assert reward(rows["prompt"], golds, **columns) == [1.0] * len(rows)
        assert reward(rows["prompt"], [str(prompt) for prompt in rows["prompt"]], **columns) == [0.0] * len(rows)
        problems += [(tuple(sorted(row["numbers"])), row["target"]) for row in rows]
        assert not any(row["target"] in row["numbers"] for row in rows)
    assert len(set(problems)) == 350


def test_a_seed_gives_the_same_problems_and_another_one_others() -> None:
    few = countdown(train_rows=20, test_rows=5)
    assert few.train["question"] == countdown(train_rows=40, test_rows=5).train["question"][:20]
    assert not set(few.train["question"]) & set(countdown(train_rows=20, test_rows=5, seed=1).train["question"])


@pytest.mark.parametrize(
    ("options", "kind", "key"),
    [
        ({"min_numbers": 5}, "invalid-value", "min_numbers"),
        ({"max_numbers": 9}, "invalid-value", "max_numbers"),
        ({"max_target": 9}, "invalid-value", "max_target"),
        ({"train_rows": 0}, "invalid-value", "train_rows"),
        (
            {"min_numbers": 2, "max_numbers": 2, "max_number": 9, "max_target": 12, "train_rows": 90, "test_rows": 1},
            "empty-data",
            "train_rows",
        ),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], kind: str, key: str) -> None:
    with input_error(kind, key):
        countdown(**options)
