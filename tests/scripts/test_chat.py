"""scripts/chat.py without a model: which runs it refuses, and the prompts that it makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.artifacts.directory import write_status
from rlvr.artifacts.finished_run import open_run
from rlvr.errors import InputError
from rlvr.evaluation.dialogue import row_of
from scripts import chat
from tests.support.input_errors import input_error
from tests.support.report_runs import write_recorded_run


@pytest.mark.parametrize(
    ("change", "words", "kind", "why"),
    [
        (lambda run: (run / "result.json").unlink(), [], "no-record", "no run wrote to the folder"),
        (lambda run: write_status(run, "interrupted"), [], "run-not-finished", "it has no adapter yet"),
        (lambda run: (run / "adapter").rename(run / "other"), [], "hash-mismatch", "the copy is incomplete"),
        (lambda run: None, ["--model_name_or_path", "models/absent"], "model-not-found", "the base is elsewhere"),
        (lambda run: None, ["--learning_rat", "1"], "unknown-key", "a typo in an override"),
    ],
)
def test_a_run_without_a_trained_model_is_refused(
    tmp_path: Path, change: Callable[[Path], Any], words: list[str], kind: str, why: str
) -> None:
    run = write_recorded_run(tmp_path / "run")
    change(run)
    with pytest.raises(InputError) as error:
        open_run(run, words)
    assert error.value.problems[0].kind == kind, why
    assert chat.main([str(run), *words]) == 2


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def chat_row(question: str) -> dict[str, Any]:
    messages = [message("system", "Think."), message("user", "1?"), message("assistant", "1.")]
    return {"prompt": [*messages, message("user", f"Q: {question} Put it in a box.")], "question": question}


@pytest.mark.parametrize(
    ("row", "prompt", "why"),
    [
        (chat_row("2?"), chat_row("4?")["prompt"], "system prompt, examples and form of the task"),
        ({"prompt": "Question: 2?\nAnswer:", "question": "2?"}, "Question: 4?\nAnswer:", "plain text of the task"),
        ({"prompt": "Complete: 2?"}, "4?", "a task that does not say which part is the question"),
    ],
)
def test_a_question_takes_the_place_of_the_one_in_a_prompt(row: dict[str, Any], prompt: Any, why: str) -> None:
    rows = Dataset.from_list([row])
    assert row_of("4?", rows) == {"prompt": prompt}, why
    assert row_of("/row 0", rows) == row


@pytest.mark.parametrize(
    ("line", "needs_row", "why"),
    [
        ("/row 1", False, "there is one row"),
        ("/row -1", False, "rows are counted from 0"),
        ("/row", False, "no number"),
        ("2 + 2?", True, "an environment begins with a row"),
    ],
)
def test_a_line_without_a_row_is_an_input_error(line: str, needs_row: bool, why: str) -> None:
    with input_error("out-of-range", why=why):
        row_of(line, Dataset.from_list([chat_row("2?")]), needs_row=needs_row)
