"""Rows that a reward refuses, and text that JSON has changed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from datasets import Dataset

from rlvr.config.specs import RewardSpec
from rlvr.data.task import Task
from rlvr.preflight.data_checks import check_columns, check_lost_backslashes, refused_rows
from rlvr.scoring.reward import Reward
from tests.support.run_components import make_components


def test_refused_rows_are_reported_all_at_once() -> None:
    from rlvr.scoring.registry import load_rewards

    reward = load_rewards([RewardSpec("math_correctness", options={"prose": False})])[0]
    good, bad = ["2"] * 60, ["forty-two", r"\frac{1}{", "10^{10^{10}}", ""]
    train = Dataset.from_dict({"prompt": ["p"] * 64, "final_answer": good + bad, "id": [f"id-{n}" for n in range(64)]})
    doubtful = train.select([0]).map(lambda row: {**row, "final_answer": "nan"})
    task = Task(train=train, validation=doubtful, test=train.select([0, 61]))
    in_train, in_validation, in_test = refused_rows(reward, task)
    assert (in_validation.kind, in_validation.level, in_validation.row) == ("doubtful-row", "warning", 0)
    assert (in_train.kind, in_train.row) == ("refused-row", 60) and (in_test.kind, in_test.row) == ("refused-row", 1)
    assert "train: 4 of 64 rows" in in_train.message and "test: 1 of 2 rows" in in_test.message
    assert all(f"row {row} (id-{row})" in in_train.message for row in range(60, 64))


@pytest.mark.parametrize(
    ("text", "is_lost", "why"),
    [
        ('"\\frac{1}{2}"', True, "a form feed"),
        ('"\\theta"', True, "a tab"),
        ('"\\beta"', True, "a backspace"),
        ('"x \\neq 2"', True, "a line break"),
        ('"\\\\frac{1}{2}"', False, "two backslashes"),
        ('"a\\tb"', False, "a table"),
        ('"first\\nequal"', False, "lines"),
    ],
)
@pytest.mark.parametrize("column", ["prompt", "final_answer"])
def test_latex_without_its_backslash_is_found(text: str, is_lost: bool, why: str, column: str) -> None:
    row = {"prompt": "What?", "final_answer": "1", column: json.loads(text)}
    train = Dataset.from_list([{"prompt": "First?", "final_answer": "1"}, row])
    chat = train.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})
    for rows in (train, chat):
        problems = list(check_lost_backslashes(make_components(train=rows)))
        assert [(one.kind, one.key, one.row) for one in problems] == [("lost-backslash", column, 1)] * is_lost, why


def with_options(completions: Any, *, final_answer: list[str], unit: str = "", **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("column", "options", "expected"),
    [
        ("unit", {}, [("column-hides-option", "error")]),
        ("unit", {"unit": "m"}, [("option-replaces-column", "warning")]),
        ("unit", {"unit": "cm"}, []),
        ("other", {}, []),
    ],
)
def test_columns_with_the_name_of_an_option_are_named(
    column: str, options: dict[str, Any], expected: list[Any]
) -> None:
    train = Dataset.from_dict({"prompt": ["a?", "b?"], "final_answer": ["1", "2"], column: ["cm", None]})
    reward = Reward("r", with_options, options=options, columns=("final_answer",))
    problems = list(check_columns(replace(make_components(train=train), rewards=[reward], metric=reward)))
    assert [(one.kind, one.level) for one in problems] == expected
