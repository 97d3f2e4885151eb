"""scripts/chat.py without a model: which runs it refuses, and the prompts that it makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.artifacts.directory import write_status
from rlvr.config.recipe import load_recipe
from rlvr.config.specs import RewardSpec
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.evaluation.dialogue import Dialogue, find_run
from rlvr.scoring.registry import load_reward
from rlvr.scoring.scorer import Scorer
from scripts import chat
from tests.conftest import REPOSITORY
from tests.support.report_runs import write_recorded_run


@pytest.mark.parametrize(
    ("change", "words", "kind", "why"),
    [
        (lambda run: (run / "recipe.yaml").unlink(), [], "not-a-run", "no run wrote to the folder"),
        (lambda run: write_status(run, "interrupted"), [], "run-not-finished", "it has no adapter yet"),
        (lambda run: (run / "adapter").rename(run / "other"), [], "run-not-finished", "the copy is incomplete"),
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
        find_run(run, words)
    assert error.value.problems[0].kind == kind, why
    assert chat.main([str(run), "--prompt", "2 + 2", *words]) == 2


def dialogue(rows: list[dict[str, Any]], reward: str = "math_correctness") -> Dialogue:
    """A dialogue without models."""
    task = Task(*[Dataset.from_list(rows)] * 3)
    recipe = load_recipe(REPOSITORY / "recipes" / "demo-arithmetic.yaml")
    return Dialogue(recipe, task, {}, load_reward(RewardSpec(reward)), Scorer([]), None)


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def chat_row(question: str) -> dict[str, Any]:
    messages = [message("system", "Think."), message("user", "1?"), message("assistant", "1.")]
    return {"prompt": [*messages, message("user", f"Q: {question} Put it in a box.")], "question": question}


def test_a_question_gets_the_system_prompt_the_examples_and_the_form_of_the_task() -> None:
    talk = dialogue([chat_row("2?"), chat_row("3?")])
    prompt = talk.prompt("base", talk.question("4?"))
    assert prompt == chat_row("4?")["prompt"]
    talk._talks["base"] = [*prompt, message("assistant", "4.")]
    assert talk.prompt("base", talk.question("Sure?"))[4:] == [message("assistant", "4."), message("user", "Sure?")]
    assert talk.prompt("trained", talk.question("4?")) == prompt, "each model has its own conversation"
    assert talk.prompt("base", talk.question(None, 1)) == chat_row("3?")["prompt"]
    assert talk.prompt("base", talk.question("4?")) == prompt, "a row began a new conversation"


def test_examples_that_differ_between_rows_are_left_out() -> None:
    rows = [chat_row("2?"), chat_row("3?")]
    rows[1]["prompt"][1]["content"] = "another example"
    talk = dialogue(rows)
    assert [each["role"] for each in talk.prompt("base", talk.question("4?"))] == ["system", "user"]


@pytest.mark.parametrize(
    ("row", "prompt", "why"),
    [
        ({"prompt": "Question: 2?\nAnswer:", "question": "2?"}, "Question: 4?\nAnswer:", "plain text of the task"),
        ({"prompt": "Complete: 2?"}, "4?", "a task that does not say which part is the question"),
    ],
)
def test_a_question_in_plain_text(row: dict[str, Any], prompt: str, why: str) -> None:
    talk = dialogue([row])
    assert talk.prompt("base", talk.question("4?")) == prompt, why


@pytest.mark.parametrize(
    ("reward", "arguments", "kind", "why"),
    [
        ("math_correctness", (None, 2), "out-of-range", "there are two rows"),
        ("math_correctness", (None, -1), "out-of-range", "rows are counted from 0"),
        ("code_execution", ("x", None, "7"), "missing-column", "programs are verified with tests"),
    ],
)
def test_a_question_that_cannot_be_verified_is_an_input_error(
    reward: str, arguments: tuple[Any, ...], kind: str, why: str
) -> None:
    with pytest.raises(InputError) as error:
        dialogue([chat_row("2?"), chat_row("3?")], reward).question(*arguments)
    assert error.value.kind == kind, why
