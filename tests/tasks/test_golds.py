"""Each task's golds score 1 by its metric, in each form of its prompts, and its answer column is one of its rows'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.data.mixture import mix
from rlvr.data.task import Task
from rlvr.scoring.registry import load_reward, load_task
from tests.support.data_files import write_rows
from tests.support.environment_data import (
    write_calls,
    write_choices,
    write_competition_problems,
    write_extractions,
    write_questions_on_articles,
    write_questions_on_tables,
)
from tests.tasks.test_humaneval import CHECK, problem
from tests.tasks.test_mbpp import full, sanitized

Options = dict[str, Any]
FEW = {"train_rows": 20, "test_rows": 5}
TAGS = {"answer_format": "tags"}
BOX = {"style": "chat"}


def gsm8k(folder: Path) -> Path:
    rows = [{"question": f"What is {n} + 1?", "answer": f"It is {n} + 1.\n#### {n + 1:,}"} for n in range(990, 1090)]
    write_rows(folder / "test.jsonl", rows[90:])
    write_rows(folder / "train.jsonl", rows[:90])
    return folder


def mbpp(folder: Path) -> str:
    return write_rows(folder / "mbpp.jsonl", [full(11), full(601), sanitized(602)])


def humaneval(folder: Path) -> str:
    return write_rows(folder / "HumanEval.jsonl", [problem(0), problem(1, test=f"\n\n{CHECK}\n")])


def own(folder: Path) -> str:
    return write_rows(folder / "own.jsonl", [{"prompt": f"{n} + 1?", "final_answer": n + 1} for n in range(20)])


def programs(folder: Path) -> Path:
    rows = [{"prompt": f"Print {n}.", "tests": [{"input": "", "output": str(n)}], "language": "python"} for n in (3, 4)]
    return write_rows(folder / "own.jsonl", [{**row, "solution": f"print({row['prompt'][6:-1]})"} for row in rows])


# (task, its options, what writes its data, metric and its options, answer column)
CASES: list[tuple[str, Options, Callable[[Path], Path | str] | None, str, Options, str | None]] = [
    ("arithmetic", FEW, None, "math_correctness", {}, "final_answer"),
    ("arithmetic", {**FEW, "operations": "multiplication"}, None, "math_correctness", {}, "final_answer"),
    ("competition_math", {}, write_competition_problems, "math_correctness", {}, "final_answer"),
    ("countdown", FEW, None, "countdown", {}, None),
    ("function_calls", {}, write_calls, "function_call", {}, "calls"),
    ("gsm8k", {"shot_pool": 10}, gsm8k, "math_correctness", {}, "final_answer"),
    ("gsm8k", {"shot_pool": 10, **BOX}, gsm8k, "math_correctness", {}, "final_answer"),
    ("humaneval", {}, humaneval, "code_execution", {}, None),
    ("humaneval", TAGS, humaneval, "code_execution", {}, None),
    ("json_extraction", {}, write_extractions, "json_schema", {"match_reference": True}, "reference"),
    ("jsonl", {"style": "chat"}, own, "math_correctness", {}, "final_answer"),
    ("jsonl", {"gold": "So:\n#### {final_answer}"}, own, "exact_match", {"answer_in": "marker"}, "final_answer"),
    ("jsonl", {"test_fraction": 0}, programs, "code_execution", {}, None),
    ("mbpp", {}, mbpp, "code_execution", {}, None),
    ("mbpp", TAGS, mbpp, "code_execution", {}, None),
    ("multiple_choice", {}, write_choices, "multiple_choice", {}, "final_answer"),
    ("one_line_programs", FEW, None, "code_execution", {}, None),
    ("reasoning_gym", {**FEW, "dataset": "chain_sum"}, None, "reasoning_gym", {"exact": True}, "final_answer"),
    ("reasoning_gym", {**FEW, "dataset": "spiral_matrix"}, None, "reasoning_gym", {"exact": True}, "final_answer"),
    ("squad_numbers", {}, write_questions_on_articles, "math_correctness", {}, "final_answer"),
    ("text_to_sql", {"single_turn": True}, write_questions_on_tables, "sql_result", {}, "gold_query"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "write", "metric", "reward_options", "answer"), CASES)
def test_golds_score_1_and_an_empty_answer_0(
    name: str,
    options: Options,
    write: Callable[[Path], Path | str] | None,
    metric: str,
    reward_options: Options,
    answer: str | None,
    tmp_path: Path,
) -> None:
    if write is not None:
        options = {**options, "path": str(write(tmp_path))}
    if name in ("squad_numbers", "text_to_sql"):
        options["folder"] = str(tmp_path / "files")
    if name == "text_to_sql":
        reward_options = {"folder": options["folder"]}
    task = load_task(TaskSpec(name, options))
    assert task.answer == answer
    reward = load_reward(RewardSpec(metric, options=reward_options))
    for rows in (task.train, task.validation, task.test):
        if not len(rows):
            continue
        golds: list[Any] = [task.reference(row) for row in rows]
        if task.is_chat:
            golds = [[{"role": "assistant", "content": gold}] for gold in golds]
        columns = {column: list(rows[column]) for column in rows.column_names if column != "prompt"}
        for completions, score in ((golds, 1.0), ([""] * len(rows), 0.0)):
            scored = reward.function(prompts=list(rows["prompt"]), completions=completions, **columns, **reward.options)
            assert scored == [score] * len(rows)


def test_a_task_whose_rows_lack_the_answer_column_has_none() -> None:
    rows = Dataset.from_list([{"prompt": "Peru?", "capital": "Lima"}])
    task = Task(rows, rows, rows)
    assert task.answer is None and task.reference(rows[0]) is None
    assert Task(rows, rows, rows, answer="capital").reference(rows[0]) == "Lima"


def test_a_mixture_has_the_answer_column_that_its_tasks_share() -> None:
    sums, puzzles = (load_task(TaskSpec(name, FEW)) for name in ("arithmetic", "countdown"))
    mixed = mix({"sums": sums, "puzzles": puzzles})
    assert (mixed.answer, mixed.mixed["sums"].answer, mixed.mixed["puzzles"].answer) == (None, "final_answer", None)
    more = load_task(TaskSpec("arithmetic", {**FEW, "operations": "multiplication"}))
    assert mix({"sums": sums, "more": more}).answer == "final_answer"
