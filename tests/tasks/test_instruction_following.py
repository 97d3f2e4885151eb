"""Prompts with verifiable instructions: both forms of data, and no held-out prompt in training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rewards.instruction_constraints import instruction_constraints, validate_rows
from rlvr.verifiers.instructions import CHECKS, LANGUAGE
from tasks.instruction_following import FUNCTIONS, instruction_following
from tests.support.cases import cases
from tests.support.environment_data import write_instructions
from tests.support.input_errors import input_error

SENTENCE = "In your answer to this question about the lighthouse of Varn please refrain from all commas"


def add(folder: Path, split: str, *rows: dict[str, Any]) -> None:
    with (folder / f"{split}.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def ground_truth(prompt: str, **values: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "ground_truth": json.dumps({"N": None, **values})}


def test_rows_of_both_forms_are_scored_by_the_reward(tmp_path: Path) -> None:
    task = instruction_following(path=str(write_instructions(tmp_path)))
    assert (len(task.train), len(task.test)) == (32, 8)
    for rows in (task.train, task.test):
        columns = {name: list(rows[name]) for name in ("instruction_id_list", "kwargs")}
        assert not any(validate_rows(**columns))
        answers = ["Two old jars of honey stand on the wooden shelf there."] * len(rows)
        assert instruction_constraints(list(rows["prompt"]), answers, **columns) == [1.0] * len(rows)


def test_every_function_of_rlvr_ifeval_has_a_check() -> None:
    assert {id for id, _, _ in FUNCTIONS.values()} == {*CHECKS, LANGUAGE}


@pytest.mark.parametrize(("values", "instructions", "why"), cases(__file__, "ground truths"))
def test_a_ground_truth_is_converted_or_left_out(
    tmp_path: Path, values: dict[str, Any], instructions: dict[str, Any] | None, why: str
) -> None:
    add(write_instructions(tmp_path), "train", ground_truth("Tell me of foxes.", **values))
    task = instruction_following(path=str(tmp_path))
    kept = [json.loads(row["kwargs"]) for row in task.train if row["question"] == "Tell me of foxes."]
    assert kept == ([] if instructions is None else [[instructions]]), why
    assert ("dropped 1" in task.notes[0]) == (instructions is None), why


def test_held_out_prompts_are_not_trained_on(tmp_path: Path) -> None:
    add(write_instructions(tmp_path), "train", ground_truth(f"{SENTENCE}!", func_name="validate_no_commas"))
    held_out = {"prompt": f"{SENTENCE}.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    add(tmp_path, "test", held_out)
    task = instruction_following(path=str(tmp_path))
    assert len(task.train) == 32 and f"{SENTENCE}." in task.test["question"]


def test_without_a_test_file_rows_are_held_out(tmp_path: Path) -> None:
    task = instruction_following(path=str(write_instructions(tmp_path) / "train.jsonl"), test_fraction=0.25)
    assert (len(task.train), len(task.test)) == (24, 8)
    assert not set(task.train["question"]) & set(task.test["question"])


@pytest.mark.parametrize(("row", "kind", "key"), cases(__file__, "an error of the"))
def test_an_error_of_the_file_names_row_and_column(tmp_path: Path, row: dict[str, Any], kind: str, key: str) -> None:
    add(write_instructions(tmp_path), "train", row)
    with input_error(kind, key, 32):
        instruction_following(path=str(tmp_path))
