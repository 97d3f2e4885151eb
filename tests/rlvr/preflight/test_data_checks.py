"""Rows that a reward refuses."""

from __future__ import annotations

from datasets import Dataset

from rlvr.config.specs import RewardSpec
from rlvr.data.task import Task
from rlvr.preflight.data_checks import refused_rows


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
