"""GSM8K: the form of its prompts, and that nothing leaks between its splits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlvr.config.specs import TaskSpec
from rlvr.scoring.registry import load_task
from tasks.gsm8k import gsm8k, one_paragraph
from tests.support.cases import cases
from tests.support.input_errors import input_error

COLUMNS = ["prompt", "question", "final_answer", "source", "id"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small data set in the form of GSM8K; training row 7 asks what test row 0 asks."""
    rows = [
        (f"What is {n} + {n}?", f"It is\n{n} + {n} = <<{n}+{n}={2 * n}>>{2 * n}\n#### {2 * n:,}")
        for n in range(990, 1090)
    ]
    train, test = rows[:90], rows[90:]
    train[7] = (f" {test[0][0].upper()}", test[0][1])
    for split, part in (("train", train), ("test", test)):
        lines = [json.dumps({"question": question, "answer": answer}) for question, answer in part]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_a_plain_text_prompt_has_exactly_the_documented_form(folder: Path) -> None:
    prompt = gsm8k(path=str(folder), shots=1, shot_pool=10).test[0]["prompt"]
    assert re.fullmatch(
        r"Question: What is (\d+) \+ \1\?\n"
        r"Solution: Let's think step by step\. It is\. \1 \+ \1 = (\d+)\.\n"
        r"#### The final answer is \2\n\n"
        r"Question: What is 1080 \+ 1080\?\n"
        r"Solution: Let's think step by step\.",
        prompt,
    ), prompt


def test_a_chat_prompt_has_an_instruction_shots_as_turns_and_the_question(folder: Path) -> None:
    row = gsm8k(path=str(folder), shots=2, style="chat", shot_pool=10).test[0]
    assert [message["role"] for message in row["prompt"]] == ["system", *["user", "assistant"] * 2, "user"]
    assert row["prompt"][0]["content"].endswith("put your final answer within \\boxed{}.")
    assert re.search(r"\nThe final answer is \\boxed\{\d+\}\.$", row["prompt"][2]["content"])
    assert row["prompt"][-1]["content"] == row["question"] == "What is 1080 + 1080?"


def test_a_template_without_a_system_turn_gets_the_instruction_from_the_user(folder: Path) -> None:
    prompt = gsm8k(path=str(folder), shots=1, style="chat", instruction_role="user", shot_pool=10).test[0]["prompt"]
    assert [message["role"] for message in prompt] == ["user", "assistant", "user"]
    assert "\\boxed{}" in prompt[0]["content"]
    assert prompt[2]["content"] == "What is 1080 + 1080?"


def test_plain_text_ends_at_the_next_question_and_chat_needs_no_stop_string(folder: Path) -> None:
    assert gsm8k(path=str(folder)).stop_strings == ("\nQuestion:",)
    assert gsm8k(path=str(folder), style="chat").stop_strings == ()


@pytest.mark.parametrize(("solution", "paragraph", "why"), cases(__file__, "a solution becomes one"))
def test_a_solution_becomes_one_paragraph_without_damage(solution: str, paragraph: str, why: str) -> None:
    assert one_paragraph(solution) == paragraph, why


def test_training_rows_that_ask_what_the_test_asks_are_dropped_and_counted(folder: Path) -> None:
    task = gsm8k(path=str(folder), shot_pool=0)
    assert "gsm8k-train-7" not in [*task.train["id"], *task.validation["id"]]
    assert any("Dropped 1 training rows" in note for note in task.notes)


def test_rows_have_the_documented_columns_and_bare_golds(folder: Path) -> None:
    task = gsm8k(path=str(folder), shots=2, shot_pool=10)
    for split in (task.train, task.validation, task.test):
        assert split.column_names == COLUMNS
    row = task.test[3]
    assert (row["id"], row["source"], row["final_answer"]) == ("gsm8k-test-3", "gsm8k", "2166")


def test_the_same_seed_gives_the_same_task_and_another_seed_another(folder: Path) -> None:
    first, again, other = (list(gsm8k(path=str(folder), shots=3, shot_pool=20, seed=seed).train) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_splits_are_the_same_for_any_number_of_shots_and_any_style(folder: Path) -> None:
    ids = [
        {split: list(task.split(split)["id"]) for split in ("train", "validation", "test")}
        for task in (
            gsm8k(path=str(folder)),
            gsm8k(path=str(folder), shots=8),
            gsm8k(path=str(folder), style="chat", shots=1),
        )
    ]
    assert ids[0] == ids[1] == ids[2]


def test_shots_are_the_same_in_every_row(folder: Path) -> None:
    task = gsm8k(path=str(folder), shots=2, shot_pool=20)
    assert len({prompt.rpartition("Question:")[0] for prompt in task.train["prompt"]}) == 1


@pytest.mark.parametrize(("options", "kind", "key", "why"), cases(__file__, "invalid options are refused"))
def test_invalid_options_are_refused(folder: Path, options: dict, kind: str, key: str, why: str) -> None:
    with input_error(kind, key, why=why):
        load_task(TaskSpec("gsm8k", {"path": str(folder), **options}))


@pytest.mark.parametrize(("row", "kind", "column", "why"), cases(__file__, "an invalid row is"))
def test_an_invalid_row_is_named(folder: Path, row: dict, kind: str, column: str, why: str) -> None:
    good = {"question": "What?", "answer": "So.\n#### 1"}
    (folder / "test.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(row)}\n", encoding="utf-8")
    with input_error(kind, column, 1, why=why):
        gsm8k(path=str(folder))


def test_a_folder_without_test_rows_is_refused(folder: Path) -> None:
    (folder / "test.jsonl").unlink()
    with input_error("missing-split", "path"):
        gsm8k(path=str(folder))


def test_training_rows_that_are_all_test_rows_are_refused(folder: Path) -> None:
    (folder / "train.jsonl").write_text((folder / "test.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    with input_error("empty-data", "path", match="Dropped 10 training rows"):
        gsm8k(path=str(folder))


# ----------------------------------------------------------------------------------------------------------------------
# The real rows


def test_the_real_rows_are_split_without_a_loss(gsm8k_folder: Path) -> None:
    task = gsm8k(path=str(gsm8k_folder))
    assert (len(task.train), len(task.validation), len(task.test)) == (6668, 741, 1319)
    ids = [*task.train["id"], *task.validation["id"], *task.test["id"]]
    assert len(set(ids)) == len(ids) == 7473 - 64 + 1319
    assert all(re.fullmatch(r"-?\d+", answer) for answer in task.test["final_answer"])


@pytest.mark.slow
def test_no_shot_is_a_row_of_any_split(gsm8k_folder: Path) -> None:
    task = gsm8k(path=str(gsm8k_folder), shots=8, style="chat")
    asked = {question for split in ("train", "validation", "test") for question in task.split(split)["question"]}
    shown = {message["content"] for message in task.train[0]["prompt"][1:-1] if message["role"] == "user"}
    assert len(shown) == 8 and not shown & asked


@pytest.mark.slow
def test_nothing_of_a_rows_own_solution_is_in_the_row(gsm8k_folder: Path) -> None:
    lines = (gsm8k_folder / "gsm8k_test.jsonl").read_text(encoding="utf-8").split("\n")
    task = gsm8k(path=str(gsm8k_folder), shots=4)
    for line, row in zip(lines, task.test, strict=False):
        solution = one_paragraph(json.loads(line)["answer"].rpartition("####")[0])
        assert row.keys() == set(COLUMNS)
        assert solution not in str(row)
        assert "<<" not in row["prompt"]
        assert row["prompt"].endswith(f"Question: {row['question']}\nSolution: Let's think step by step.")
