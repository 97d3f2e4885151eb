"""Rows that a run was trained on are not measured as held-out rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.errors import InputError
from rlvr.evaluation.trained_rows import check_not_trained_on, record_training_rows


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def data(*prompts: Any) -> Dataset:
    return Dataset.from_dict({"prompt": list(prompts)})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was trained on 1?, 2? and 3?."""
    record_training_rows(tmp_path, data(chat("1?"), chat("2?"), chat("3?"), chat("1?")))
    return tmp_path


@pytest.mark.parametrize(
    ("held_out", "train", "row", "why"),
    [
        (["4?", "5?"], ["1?"], None, "held out"),
        (["4?", "2?", "3?"], ["1?"], 1, "rows that moved from one split to the other"),
        (["4?", "2?"], ["2?"], None, "the task itself has it in both splits, of which --check warns"),
        (["4?", "2?"], [], 1, "no training rows are left"),
    ],
)
def test_rows_that_moved_into_the_held_out_split_are_refused(
    held_out: list[str], train: list[str], row: int | None, why: str, run: Path
) -> None:
    splits = data(*map(chat, held_out)), data(*map(chat, train))
    if row is None:
        check_not_trained_on(run, *splits, "test")
        return
    with pytest.raises(InputError) as error:
        check_not_trained_on(run, *splits, "test")
    assert (error.value.kind, error.value.problems[0].row) == ("trained-rows", row), why


def test_a_model_without_a_run_is_not_checked(tmp_path: Path) -> None:
    check_not_trained_on(tmp_path, data("1?"), data("2?"), "test")
