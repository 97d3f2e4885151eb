"""Rows that a reward refuses, repeated prompts and small held-out splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from datasets import Dataset

from rlvr.config.specs import EvaluationSpec, RewardSpec
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.preflight.check import check_components
from rlvr.preflight.data_checks import check_rows, refused_rows
from rlvr.scoring.registry import load_rewards
from tests.support.run_components import make_components, rows


def test_refused_rows_are_reported_all_at_once() -> None:
    reward = load_rewards([RewardSpec("math_correctness", options={"prose": False})])[0]
    good, bad = ["2"] * 60, ["forty-two", r"\frac{1}{", "10^{10^{10}}", ""]
    train = Dataset.from_dict({"prompt": ["p"] * 64, "final_answer": good + bad, "id": [f"id-{n}" for n in range(64)]})
    task = Task(train=train, validation=train.select([0]), test=train.select([0, 61]))
    in_train, in_test = refused_rows(reward, task)
    assert (in_train.kind, in_train.row) == ("refused-row", 60) and (in_test.kind, in_test.row) == ("refused-row", 1)
    assert "train: 4 of 64 rows" in in_train.message and "test: 1 of 2 rows" in in_test.message
    assert all(f"row {row} (id-{row})" in in_train.message for row in range(60, 64))


def test_rows_that_a_reward_doubts_bring_a_warning(tmp_path: Path) -> None:
    (tmp_path / "doubting.py").write_text(
        "def doubting(prompts, completions, *, final_answer, **kwargs):\n    return [0.0] * len(completions)\n"
        "def validate_rows(*, final_answer, **kwargs):\n    return [None, 'warning: look at it']\n"
    )
    rows = Dataset.from_dict({"prompt": ["p", "q"], "final_answer": ["1", "2"]})
    reward = load_rewards([RewardSpec(str(tmp_path / "doubting.py"))])[0]
    [problem] = refused_rows(reward, Task(train=rows, validation=rows.select([]), test=rows.select([])))
    assert (problem.kind, problem.level, problem.row) == ("doubtful-row", "warning", 1)


def test_rows_of_rewards_on_other_machines_are_checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    [remote] = load_rewards([RewardSpec("math_correctness", where="http://judge:8000")])
    unreadable = rows(64).map(lambda row: {**row, "final_answer": "10^{10^{10}}"})
    [problem] = check_rows(replace(make_components(train=unreadable), rewards=[remote]))
    assert problem.kind == "refused-row"
    monkeypatch.setenv("PATH", "/nowhere")
    programs = make_components(train=rows(64, tests=[[{"input": "", "output": "1"}]] * 64))
    for where, kinds_found in ((None, ["compiler-missing"]), ("http://judge:8000", [])):
        rewards = load_rewards([RewardSpec("code_execution", options={"language": "rust"}, where=where)])
        problems = check_components(replace(programs, rewards=rewards, metrics={"": rewards[0]})).problems
        assert [problem.kind for problem in problems if problem.level == "error"] == kinds_found, where


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
    ("available", "used", "width", "why"),
    [
        (40, None, "±15 points", "a small split"),
        (200, 40, "±15 points", "a large split of which few rows are used"),
        (93, None, "", "just enough"),
        (92, None, "±10 points", "one row too few"),
    ],
)
def test_too_few_held_out_rows_for_an_interval_are_warned_of(
    available: int, used: int | None, width: str, why: str
) -> None:
    components = make_components(test=rows(available, start=500), evaluation=EvaluationSpec(rows=used))
    problems = check_components(components).problems
    assert kinds(problems) == ([("small-split", "warning")] if width else []), why
    for problem in problems:
        assert problem.key == "evaluation.split"
        assert all(part in problem.message for part in (width, "93 rows for 10 points", "381 rows for 5 points")), why
