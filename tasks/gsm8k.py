"""Load GSM8K: 7,473 + 1,319 word problems of grade-school mathematics whose answers are whole numbers.

Plain-text prompts, for base models, have the form of the original experiment:

    Question: {question}
    Solution: Let's think step by step. {reasoning}
    #### The final answer is {N}

once for each shot, then the row's question up to "step by step.". Chat prompts, for instruction-tuned models, ask for
the answer in a box. They have the instruction, a user and an assistant turn for each shot, and the question.

Shots are worked solutions of training rows that are in no split. The same rows are set aside for any number of shots,
so recipes with 0 and with 8 shots have the same splits.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlvr import InputError, Task
from rlvr.data.hub import download_rows
from rlvr.data.input_checks import (
    check_fraction,
    check_integer,
    check_limits,
    missing_column_error,
    option_error,
    row_error,
)
from rlvr.data.io import Row, find_split_files, read_rows
from rlvr.data.splits import apply_limits, hold_out, question_key, to_datasets
from rlvr.verifiers.math import normalise_gold

HUB_DATASET, HUB_SUBSET = "openai/gsm8k", "main"
MAX_SHOTS = 8
ANSWER_LINE = "#### The final answer is {answer}"
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."  # as Qwen and DeepSeek ask
BOXED_ANSWER = "The final answer is \\boxed{{{answer}}}."
OPENING = "Let's think step by step."


@dataclass(frozen=True)
class _SolvedProblem:
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
    """Load GSM8K from the hub (openai/gsm8k), or from a folder.

    Args:
        path: a folder with a training and a test file (train*.jsonl or *train.jsonl, test likewise; columns question
            and answer). None downloads the dataset or uses the cached copy.
        shots: worked examples before each question, 0 to 8.
        style: "text" for base models, "chat" for models with a chat template.
        instruction_role: role of the message that asks for a box. "user" is for chat templates without a system
            turn; the instruction then opens the first user turn.
        shots_per_row: draw new shots for each row; by default all rows have the same shots.
        shot_pool: number of training rows set aside for shots.
        validation_fraction: share of the remaining training rows that becomes the validation split.
        limit_train, limit_validation, limit_test: maximal rows of a split, drawn at random.
        seed: seed of all random choices.

    Rows have `prompt`, `question`, `final_answer` (digits, no commas), `source` ("gsm8k") and `id`: the row of
    the original file, from 0 ("gsm8k-train-123"). No column contains the solution.
    """
    check_integer("gsm8k", "shots", shots, 0, MAX_SHOTS)
    check_integer("gsm8k", "shot_pool", shot_pool, 0)
    check_integer("gsm8k", "seed", seed, 0)
    check_fraction("gsm8k", "validation_fraction", validation_fraction)
    check_limits("gsm8k", limit_train=limit_train, limit_validation=limit_validation, limit_test=limit_test)
    if shots > shot_pool:
        raise option_error(
            "gsm8k", "shots", f"a shot_pool of {shot_pool} rows has no {shots} shots. Raise shot_pool or lower shots."
        )

    raw = _from_folder(Path(path)) if path is not None else _from_hub()
    test = [_problem(row, "test", index) for index, row in enumerate(raw["test"])]
    all_train = [_problem(row, "train", index) for index, row in enumerate(raw["train"])]
    test_questions = {question_key(problem.question) for problem in test}
    train_problems = [problem for problem in all_train if question_key(problem.question) not in test_questions]
    duplicates = len(all_train) - len(train_problems)
    if duplicates and not train_problems:
        raise InputError(
            f"Task gsm8k: all {duplicates} training questions are also test questions. Use other training rows.",
            kind="empty-data",
            key="path",
        )
    pool, train_problems = _set_aside(train_problems, shot_pool, seed)

    def row_of(problem: _SolvedProblem) -> Row:
        drawn = random.Random(f"{seed}/shots/{problem.id}" if shots_per_row else f"{seed}/shots").sample(pool, shots)
        prompt = _chat(problem, drawn, instruction_role) if style == "chat" else _text(problem, drawn)
        return {
            "prompt": prompt,
            "question": problem.question,
            "final_answer": problem.answer,
            "source": "gsm8k",
            "id": problem.id,
        }

    splits: dict[str, list[Row]] = {"test": [row_of(problem) for problem in test]}
    splits["train"], splits["validation"] = hold_out(
        [row_of(problem) for problem in train_problems],
        validation_fraction,
        f"{seed}/validation",
        lambda row: question_key(row["question"]),
    )
    train_rows, validation_rows = len(splits["train"]), len(splits["validation"])
    if not train_rows:
        raise InputError(
            f"Task gsm8k: none of {len(all_train)} training rows is left after setting {len(pool)} aside for shots and "
            f"{validation_rows} for validation. Lower shot_pool or validation_fraction, or add rows.",
            kind="empty-data",
            key="path",
        )
    closing = BOXED_ANSWER if style == "chat" else ANSWER_LINE
    limit_notes = apply_limits(splits, seed, train=limit_train, validation=limit_validation, test=limit_test)
    return Task(
        **to_datasets(train=splits["train"], validation=splits["validation"], test=splits["test"]),
        stop_strings=("\nQuestion:",) if style == "text" else (),
        gold=lambda row: f"Here is how.\n{closing.format(answer=row['final_answer'])}",
        notes=(
            f"Read {len(all_train):,} training and {len(test):,} test rows from {path or HUB_DATASET}.",
            f"Dropped {duplicates} training rows whose question is also a test question.",
            f"Set {len(pool)} training rows aside for shots; they are in no split.",
            f"Held out {validation_rows:,} of the other training rows for validation; {train_rows:,} are left.",
            _shots_note(shots, shots_per_row),
            f"All random choices use seed {seed}.",
            *limit_notes,
        ),
    )


def _shots_note(shots: int, per_row: bool) -> str:
    if shots == 0:
        return "Prompts have no shots."
    drawn = "drawn for each row" if per_row else "the same in every row"
    return f"Prompts have {shots} {'shot' if shots == 1 else 'shots'} with reasoning, {drawn}."


def _from_hub() -> dict[str, list[Row]]:
    how_else = "Without a network: put train.jsonl and test.jsonl into a folder and set path: FOLDER under task."
    splits = download_rows(HUB_DATASET, HUB_SUBSET, how_else)
    return {split: splits[split] for split in ("train", "test")}


def _from_folder(folder: Path) -> dict[str, list[Row]]:
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else f"does not exist (relative paths start from {Path.cwd()})"
        raise InputError(
            f"Task gsm8k, option path: {folder} {problem}. Name a folder with train.jsonl and test.jsonl.",
            kind="file-not-found",
            key="path",
        )
    splits = {}
    for split in ("train", "test"):
        files = find_split_files(folder, split, (".jsonl",)) or find_split_files(folder, split)
        if not files:
            raise InputError(
                f"Task gsm8k, option path: {folder} has no file for the {split} split. Add {split}.jsonl or "
                f"gsm8k_{split}.jsonl, with the columns question and answer.",
                kind="missing-split",
                key="path",
            )
        splits[split] = [row for file in files for row in read_rows(file)]
    return splits


def _problem(row: Row, split: str, index: int) -> _SolvedProblem:
    """Read a row of GSM8K, whose `answer` is the reasoning, then "#### N"."""
    where = f"GSM8K, {split} row {index}"
    for column in ("question", "answer"):
        if column not in row:
            raise missing_column_error(where, column, row, row=index)
        if not isinstance(row[column], str) or not row[column].strip():
            raise row_error(where, column, index, f"{row[column]!r} is no text")
    reasoning, mark, gold = row["answer"].rpartition("####")
    if not mark:
        raise row_error(where, "answer", index, "it has no final '#### N' to verify against")
    try:
        answer = normalise_gold(gold, number=True)
    except ValueError as error:
        raise row_error(where, "answer", index, str(error)) from error
    return _SolvedProblem(f"gsm8k-{split}-{index}", row["question"].strip(), one_paragraph(reasoning), answer)


def one_paragraph(solution: str) -> str:
    """Join the lines of a solution, without the calculator's marks ("<<48/2=24>>").

    A line without punctuation at its end gets a full stop, unless it ends within a sum.
    """
    lines = [" ".join(line.split()) for line in re.sub(r"<<[^<>]*>>", "", solution).split("\n")]
    lines = [line for line in lines if line]
    ended = [line if re.search(r"[.!?:;,=+*/×÷-][\"'”’)\]]*$", line) else f"{line}." for line in lines]
    return " ".join(ended)


def _set_aside(
    problems: list[_SolvedProblem], count: int, seed: int
) -> tuple[list[_SolvedProblem], list[_SolvedProblem]]:
    """Return `count` problems for shots, and the others without the same questions."""
    if count >= len(problems):
        raise option_error(
            "gsm8k",
            "shot_pool",
            f"{count} rows are kept for shots, but there are {len(problems)} training rows. Set task.shot_pool lower.",
        )
    chosen = set(random.Random(f"{seed}/pool").sample(range(len(problems)), count))
    pool = [problem for index, problem in enumerate(problems) if index in chosen]
    shown = {question_key(problem.question) for problem in pool}
    return pool, [problem for problem in problems if question_key(problem.question) not in shown]


def _text(problem: _SolvedProblem, shots: list[_SolvedProblem]) -> str:
    worked = [
        f"Question: {shot.question}\nSolution: {OPENING} {shot.reasoning}\n{ANSWER_LINE.format(answer=shot.answer)}\n\n"
        for shot in shots
    ]
    return f"{''.join(worked)}Question: {problem.question}\nSolution: {OPENING}"


def _chat(problem: _SolvedProblem, shots: list[_SolvedProblem], instruction_role: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for shot in shots:
        worked = f"{OPENING} {shot.reasoning}\n{BOXED_ANSWER.format(answer=shot.answer)}"
        messages.append({"role": "user", "content": shot.question})
        messages.append({"role": "assistant", "content": worked})
    messages.append({"role": "user", "content": problem.question})
    if instruction_role == "system":
        return [{"role": "system", "content": INSTRUCTION}, *messages]
    messages[0]["content"] = f"{INSTRUCTION}\n\n{messages[0]['content']}"
    return messages
