"""Options of all tasks: limits, the longest prompt, and bounds on how often a model solves a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.specs import TaskSpec
from rlvr.data.row_selection import write_pass_rates
from rlvr.data.task import Task
from rlvr.scoring.registry import load_task
from tests.support.input_errors import input_error

SUMS = {"train_rows": 60, "validation_rows": 20, "test_rows": 20}
SOLVED = [(8, 0), (8, 4), (8, 8), (0, 0), (8, 1), (2, 1)]  # samples that were scored and that were right, row by row


def sums(**options: Any) -> Task:
    return load_task(TaskSpec("arithmetic", {**SUMS, **options}))


def ids(task: Task, split: str = "train") -> list[str]:
    return list(task.split(split)["id"])


@pytest.fixture
def rates(tmp_path: Path) -> str:
    rows = sums().train
    write_pass_rates(tmp_path / "rates.jsonl", rows, [SOLVED[row % 6] for row in range(len(rows))])
    return str(tmp_path / "rates.jsonl")


@pytest.mark.slow
def test_limits_draw_by_the_tasks_seed_and_a_larger_one_adds_rows() -> None:
    few, more = (sums(limit_train=limit, limit_validation=2, limit_test=3) for limit in (5, 10))
    assert (len(few.train), len(few.validation), len(few.test)) == (5, 2, 3)
    assert set(ids(few)) < set(ids(more)) < set(ids(sums()))
    assert ids(few) == [id for id in ids(sums()) if id in ids(few)], "in the order of the data"
    assert sum("as limit_" in note for note in few.notes) == 3
    places = {seed: [ids(sums(seed=seed)).index(id) for id in ids(sums(seed=seed, limit_train=5))] for seed in (42, 7)}
    assert places[42] != places[7]


def test_long_prompts_are_dropped_and_counted_in_every_split() -> None:
    task = sums()
    longest = sorted(len(prompt[0]["content"]) for prompt in task.train["prompt"])[30]
    short = sums(max_prompt_characters=longest)
    assert 0 < len(short.train) < 60
    assert all(len(prompt[0]["content"]) <= longest for split in ("train", "test") for prompt in short.prompts(split))
    assert any(note.startswith("Dropped") and "train rows with prompts of over" in note for note in short.notes)


@pytest.mark.parametrize(
    ("bounds", "kept", "why"),
    [
        ({}, {1, 4, 5}, "solved sometimes"),
        ({"min_pass_rate": 0.2, "max_pass_rate": 0.5}, {1, 5}, "the bounds are included"),
        ({"min_pass_rate": 0, "max_pass_rate": 1}, {0, 1, 2, 4, 5}, "all but those that could not be scored"),
    ],
)
def test_rows_within_the_bounds_are_kept_with_their_rate(rates: str, bounds: dict, kept: set[int], why: str) -> None:
    every, task = sums(), sums(pass_rates=rates, **bounds)
    assert ids(task) == [id for row, id in enumerate(ids(every)) if row % 6 in kept], why
    shares = [right / scored for scored, right in SOLVED if scored and right / scored in set(task.train["pass_rate"])]
    assert set(task.train["pass_rate"]) == set(shares)
    assert ids(task, "test") == ids(every, "test"), "accuracies before and after are of the same rows"
    assert set(task.train["difficulty"]) == {"carry", "no carry"}, "the task's own"


def test_a_task_without_difficulties_gets_them_from_the_rates(tmp_path: Path) -> None:
    rows = [{"prompt": f"{row}?", "tests": [{"input": row}]} for row in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {"path": str(tmp_path / "rows.jsonl"), "test_fraction": 0}
    write_pass_rates(tmp_path / "rates.jsonl", load_task(TaskSpec("jsonl", spec)).train, SOLVED)
    task = load_task(TaskSpec("jsonl", {**spec, "pass_rates": str(tmp_path / "rates.jsonl")}))
    assert task.train["difficulty"] == [0.5, 0.875, 0.5]
    assert task.train["tests"] == [rows[row]["tests"] for row in (1, 4, 5)]


def test_a_limit_comes_before_the_rates(rates: str) -> None:
    assert set(ids(sums(pass_rates=rates, limit_train=12))) < set(ids(sums(limit_train=12)))


@pytest.mark.parametrize(
    ("options", "kind", "key", "row", "why"),
    [
        ({"limit_test": 0}, "invalid-value", "limit_test", None, "a limit of nothing"),
        ({"limit_train": "ten"}, "invalid-option", "limit_train", None, "a word for a number"),
        ({"limit_trian": 5}, "unknown-option", "limit_trian", None, "a misspelt option"),
        ({"max_prompt_characters": 3}, "empty-data", "task", None, "no row is that short"),
        ({"seed": 1}, "missing-row", "pass_rates", 0, "rates of other rows"),
        ({"min_pass_rate": 0.9, "max_pass_rate": 0.1}, "invalid-value", "min_pass_rate", None, "bounds swapped"),
        ({"min_pass_rate": 0.6, "max_pass_rate": 0.7}, "empty-data", "task", None, "no row is within the bounds"),
        ({"pass_rates": "nowhere.jsonl"}, "file-not-found", None, None, "no file"),
    ],
)
def test_wrong_options_are_errors(
    rates: str, options: dict[str, Any], kind: str, key: str | None, row: int | None, why: str
) -> None:
    with input_error(kind, key, row, why=why):
        sums(**{"pass_rates": rates, **options})


@pytest.mark.parametrize(
    "line", [{"pass_rate": 0.5}, {"prompt": "a", "pass_rate": 2}, {"prompt": "a", "pass_rate": "x"}]
)
def test_a_line_that_is_no_rate_is_named(rates: str, line: dict[str, Any]) -> None:
    with Path(rates).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    with input_error("invalid-row", row=60):
        sums(pass_rates=rates)
