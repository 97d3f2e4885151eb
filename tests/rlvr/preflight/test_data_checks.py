"""Rows that a reward refuses, and text that JSON has changed."""

from __future__ import annotations

import json

import pytest
from datasets import Dataset

from rlvr.config.specs import RewardSpec
from rlvr.data.task import Task
from rlvr.preflight.data_checks import check_lost_backslashes, refused_rows
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
