"""GSM8K: 7,473 + 1,319 word problems of grade-school mathematics whose answers are whole numbers.

Plain-text prompts are for base models and have the form of the original experiment:

    Question: {question}
    Solution: Let's think step by step. {reasoning}
    #### The final answer is {N}

once for each shot, and then the row's own question up to "step by step.". Chat prompts are for instruction-tuned
models: an instruction that states the answer format, a user and an assistant turn for each shot, and the question.

Shots are worked solutions of training rows that are set aside for this and are in no split. They are set aside whatever
the number of shots, so that a recipe with 0 shots and one with 8 train on and hold out the same rows.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlvr.data.io import (
    Row,
    as_datasets,
    check_choice,
    check_fraction,
    check_whole,
    download_rows,
    hold_out,
    limited,
    missing_column,
    question_key,
    read_rows,
    split_files,
)
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.verifiers.math import normalise_gold

HUB_DATASET, HUB_SUBSET = "openai/gsm8k", "main"
MAX_SHOTS = 8
ANSWER_LINE = "#### The final answer is {answer}"
INSTRUCTION = (
    "Solve the problem step by step. Then end with a line of its own that reads\n"
    "#### The final answer is N\n"
    "where N is the answer as a number in digits, without a unit."
)
OPENING = "Let's think step by step."


@dataclass(frozen=True)
class _Problem:
    id: str
    question: str
    reasoning: str
    answer: str


def gsm8k(
    *,
    path: str | None = None,
    shots: int = 0,
    style: Literal["text", "chat"] = "text",
    instruction_role: Literal["system", "user"] = "system",
    shots_per_row: bool = False,
    shot_pool: int = 64,
    validation_fraction: float = 0.1,
    limit_train: int | None = None,
    limit_validation: int | None = None,
    limit_test: int | None = None,
    seed: int = 42,
) -> Task:
    """GSM8K from the hub (openai/gsm8k), or from a folder.

    Args:
        path: a folder with one file each for training and test (train*.jsonl or *train.jsonl, test likewise; columns
            question and answer). None downloads the dataset, or takes the cached copy.
        shots: worked examples in front of each question, 0 to 8.
        style: "text" for base models, "chat" for models with a chat template.
        instruction_role: who states the answer format in a chat. "user" is for templates that know no system turn; the
            instruction then opens the first user turn.
        shots_per_row: draw the shots anew for each row; otherwise all rows have the same ones, in the same order.
        shot_pool: how many training rows are set aside to draw shots from.
        validation_fraction: share of the remaining training rows that becomes the validation split.
        limit_train, limit_validation, limit_test: at most so many rows of a split, drawn at random.
        seed: of everything that is drawn here.

    Rows have `prompt`, `question`, `final_answer` (digits, no commas), `source` ("gsm8k") and `id`, which counts the
    rows of the original file from 0 ("gsm8k-train-123"). No column holds the solution.
    """
    check_whole("gsm8k", "shots", shots, 0, MAX_SHOTS)
    check_whole("gsm8k", "shot_pool", shot_pool, 0)
    check_whole("gsm8k", "seed", seed, 0)
    check_choice("gsm8k", "style", style, ("text", "chat"))
    check_choice("gsm8k", "instruction_role", instruction_role, ("system", "user"))
    check_fraction("gsm8k", "validation_fraction", validation_fraction)
    for option, limit in (("train", limit_train), ("validation", limit_validation), ("test", limit_test)):
        if limit is not None:
            check_whole("gsm8k", f"limit_{option}", limit, 1)
    if shots > shot_pool:
        raise InputError(
            f"Task gsm8k: {shots} shots can't be drawn from a pool of {shot_pool} rows. Raise shot_pool or lower shots."
        )

    raw = _from_folder(Path(path)) if path is not None else _from_hub()
    test = [_problem(row, "test", index) for index, row in enumerate(raw["test"])]
    all_train = [_problem(row, "train", index) for index, row in enumerate(raw["train"])]
    tested = {question_key(problem.question) for problem in test}
    train_problems = [problem for problem in all_train if question_key(problem.question) not in tested]
    doubled = len(all_train) - len(train_problems)
    pool, train_problems = _set_aside(train_problems, shot_pool, seed)

    def row_of(problem: _Problem) -> Row:
        drawn = random.Random(f"{seed}/shots/{problem.id}" if shots_per_row else f"{seed}/shots").sample(pool, shots)
        prompt = _chat(problem, drawn, instruction_role) if style == "chat" else _text(problem, drawn)
        return {
            "prompt": prompt,
            "question": problem.question,
            "final_answer": problem.answer,
            "source": "gsm8k",
            "id": problem.id,
        }

    train, validation = hold_out(
        [row_of(problem) for problem in train_problems],
        validation_fraction,
        f"{seed}/validation",
        lambda row: question_key(row["question"]),
    )
    if not train:
        raise InputError(
            f"Task gsm8k: of {len(all_train)} training rows none is left after {len(pool)} were set aside for shots "
            f"and {len(validation)} for validation. Lower one of the two, or give more rows."
        )
    sizes = len(train), len(validation), len(test)
    train = limited(train, limit_train, f"{seed}/limit")
    validation = limited(validation, limit_validation, f"{seed}/limit")
    tests = limited([row_of(problem) for problem in test], limit_test, f"{seed}/limit")
    return Task(
        **as_datasets(train=train, validation=validation, test=tests),
        stop_strings=("\nQuestion:",) if style == "text" else (),
        gold=lambda row: f"Here is how.\n{ANSWER_LINE.format(answer=row['final_answer'])}",
        notes=(
            f"Read {len(all_train):,} training and {len(test):,} test rows from {path or HUB_DATASET}.",
            f"Dropped {doubled} training rows whose question is also a test question.",
            f"Set {len(pool)} training rows aside for shots; they are in no split.",
            f"Split {sizes[1]:,} of the other training rows off for validation; {sizes[0]:,} are left to train on.",
            _shots_note(shots, shots_per_row),
            f"Drew everything with seed {seed}.",
            *(
                f"Kept {kept:,} of {size:,} {split} rows, as limit_{split} asks."
                for split, kept, size in zip(
                    ("train", "validation", "test"), map(len, (train, validation, tests)), sizes, strict=True
                )
                if kept < size
            ),
        ),
    )


def _shots_note(shots: int, per_row: bool) -> str:
    if shots == 0:
        return "Prompts have no shots."
    drawn = "drawn anew for each row" if per_row else "the same in every row"
    return f"Prompts have {shots} {'shot' if shots == 1 else 'shots'} with reasoning, {drawn}."


def _from_hub() -> dict[str, list[Row]]:
    how_else = (
        "Without the network: put the two files train.jsonl and test.jsonl into a folder and set path: FOLDER under "
        "task. With it: see that HF_HUB_OFFLINE is unset."
    )
    splits = download_rows(HUB_DATASET, HUB_SUBSET, how_else)
    return {split: splits[split] for split in ("train", "test")}


def _from_folder(folder: Path) -> dict[str, list[Row]]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError(
            f"Task gsm8k, option path: {folder} {what}, but should be a folder with train.jsonl and test.jsonl"
            f"{'' if folder.exists() else f' (relative paths start from {Path.cwd()})'}."
        )
    splits = {}
    for split in ("train", "test"):
        files = split_files(folder, split, (".jsonl",)) or split_files(folder, split)
        if not files:
            raise InputError(
                f"Task gsm8k, option path: {folder} has no file for the {split} split, such as {split}.jsonl or "
                f"gsm8k_{split}.jsonl, with the columns question and answer."
            )
        splits[split] = [row for file in files for row in read_rows(file)]
    return splits


def _problem(row: Row, split: str, index: int) -> _Problem:
    """Takes a row of GSM8K apart: `answer` is the reasoning, then "#### N"."""
    where = f"GSM8K, {split} row {index}"
    for column in ("question", "answer"):
        if column not in row:
            raise missing_column(where, column, row)
        if not isinstance(row[column], str) or not row[column].strip():
            raise InputError(f"{where}: its {column} is {row[column]!r}, but should be text.")
    reasoning, mark, gold = row["answer"].rpartition("####")
    if not mark:
        raise InputError(f"{where}: its answer has no final '#### N', so there is nothing to verify against.")
    try:
        answer = normalise_gold(gold, number=True)
    except ValueError as error:
        raise InputError(f"{where}: its final answer can't be used: {error}. Mend or remove the row.") from error
    return _Problem(f"gsm8k-{split}-{index}", row["question"].strip(), one_paragraph(reasoning), answer)


def one_paragraph(solution: str) -> str:
    """A solution of one step a line as one paragraph, without the calculator's marks ("<<48/2=24>>").

    A line that ends in no punctuation gets a full stop, one that breaks off within a sum does not.
    """
    lines = [" ".join(line.split()) for line in re.sub(r"<<[^<>]*>>", "", solution).split("\n")]
    lines = [line for line in lines if line]
    ended = [line if re.search(r"[.!?:;,=+*/×÷-][\"'”’)\]]*$", line) else f"{line}." for line in lines]
    return " ".join(ended)


def _set_aside(problems: list[_Problem], count: int, seed: int) -> tuple[list[_Problem], list[_Problem]]:
    """`count` problems to draw shots from, and the others without any that asks the same as one of these."""
    if count >= len(problems):
        raise InputError(
            f"Task gsm8k, option shot_pool: {count} rows can't be set aside, as there are {len(problems)} to train on."
        )
    chosen = set(random.Random(f"{seed}/pool").sample(range(len(problems)), count))
    pool = [problem for index, problem in enumerate(problems) if index in chosen]
    shown = {question_key(problem.question) for problem in pool}
    return pool, [problem for problem in problems if question_key(problem.question) not in shown]


def _text(problem: _Problem, shots: list[_Problem]) -> str:
    worked = [
        f"Question: {shot.question}\nSolution: {OPENING} {shot.reasoning}\n{ANSWER_LINE.format(answer=shot.answer)}\n\n"
        for shot in shots
    ]
    return f"{''.join(worked)}Question: {problem.question}\nSolution: {OPENING}"


def _chat(problem: _Problem, shots: list[_Problem], instruction_role: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for shot in shots:
        worked = f"{OPENING} {shot.reasoning}\n{ANSWER_LINE.format(answer=shot.answer)}"
        messages.append({"role": "user", "content": shot.question})
        messages.append({"role": "assistant", "content": worked})
    messages.append({"role": "user", "content": problem.question})
    if instruction_role == "system":
        return [{"role": "system", "content": INSTRUCTION}, *messages]
    messages[0]["content"] = f"{INSTRUCTION}\n\n{messages[0]['content']}"
    return messages
