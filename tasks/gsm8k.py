"""Load GSM8K: 7,473 training and 1,319 test word problems of grade-school mathematics, with whole numbers as answers.

Plain-text prompts, for base models, have the form of the original experiment:

    Question: {question}
    Solution: Let's think step by step. {reasoning}
    #### The final answer is {N}

These lines occur once for each shot. The row's question follows, up to "step by step.". Chat prompts, for
instruction-tuned models, ask for the answer in a box. Each shot is a user and an assistant turn after the instruction.

Shots are worked solutions of training rows that are in no split. The same rows are set aside for any number of shots.
So recipes with 0 and with 8 shots have the same splits.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any, Literal

from rlvr import InputError, Task
from rlvr.data.input_checks import check_fraction, check_integer, option_error, require_text, row_error
from rlvr.data.io import Row, read_splits
from rlvr.data.splits import hold_out, question_key, require_training_rows, to_datasets
from rlvr.verifiers.math import normalise_gold

NAME = "gsm8k"
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
    shot_pool: int = 64,
    validation_fraction: float = 0.1,
    seed: int = 42,
) -> Task:
    """Load GSM8K from the hub (openai/gsm8k), or from a folder.

    Args:
        path: a folder with one training file, such as train.jsonl, and one test file, such as test.jsonl. The columns
            are question and answer. None downloads the dataset or uses the cached copy.
        shots: number of worked examples before each question, 0 to 8. All rows have the same examples.
        style: "text" for base models, "chat" for models with a chat template.
        instruction_role: role of the message that asks for a box. "user" is for chat templates without a system
            turn. The instruction then opens the first user turn.
        shot_pool: number of training rows set aside for shots.
        validation_fraction: share of the remaining training rows that becomes the validation split.
        seed: seed of all random choices.

    Rows have `prompt`, `question`, `final_answer` (digits, no commas), `source` ("gsm8k") and `id`. The `id` has the
    row of the original file, from 0 ("gsm8k-train-123"). No column contains the solution.
    """
    check_integer(NAME, "shots", shots, 0, MAX_SHOTS)
    check_integer(NAME, "shot_pool", shot_pool, 0)
    check_fraction(NAME, "validation_fraction", validation_fraction)
    if shots > shot_pool:
        problem = f"a shot_pool of {shot_pool} rows has no {shots} shots. Raise shot_pool or lower shots."
        raise option_error(NAME, "shots", problem)
    test, all_train = (
        [_problem(row, split, index) for index, row in enumerate(rows)] for split, rows in _read(path).items()
    )
    asked = set(map(_key, test))
    train = [problem for problem in all_train if _key(problem) not in asked]
    duplicates = len(all_train) - len(train)
    pool, train = _set_aside(train, shot_pool, seed) if train else ([], [])
    train, validation = hold_out(train, validation_fraction, f"{seed}/validation", _key)
    splits = {"train": train, "validation": validation, "test": test}
    notes = (
        f"Read {len(all_train):,} training and {len(test):,} test rows from {path or HUB_DATASET}.",
        f"Dropped {duplicates} training rows whose question is also a test question.",
        f"Set {len(pool)} training rows aside for shots; they are in no split.",
        f"Held out {len(validation):,} of the other training rows for validation; {len(train):,} are left.",
        f"Shots with reasoning in each prompt: {shots}. All random choices use seed {seed}.",
    )
    require_training_rows(NAME, path or HUB_DATASET, splits, notes)
    drawn = random.Random(f"{seed}/shots").sample(pool, shots)

    def row_of(problem: _SolvedProblem) -> Row:
        prompt = _chat(problem, drawn, instruction_role) if style == "chat" else _text(problem, drawn)
        answer = {"question": problem.question, "final_answer": problem.answer}
        return {"prompt": prompt, **answer, "source": NAME, "id": problem.id}

    closing = BOXED_ANSWER if style == "chat" else ANSWER_LINE
    return Task(
        **to_datasets(**{split: list(map(row_of, problems)) for split, problems in splits.items()}),
        stop_strings=("\nQuestion:",) if style == "text" else (),
        gold=lambda row: f"Here is how.\n{closing.format(answer=row['final_answer'])}",
        notes=notes,
    )


def _read(path: str | None) -> dict[str, list[Row]]:
    """Return the rows of the test and the training split."""
    splits = read_splits(NAME, path, HUB_DATASET, HUB_SUBSET)
    if not splits.get("test"):
        message = f"Task gsm8k, option path: {path} has no file for the test split. Add test.jsonl."
        raise InputError(message, kind="missing-split", key="path")
    return {split: splits[split] for split in ("test", "train")}


def _problem(row: Row, split: str, index: int) -> _SolvedProblem:
    """Read a row of GSM8K. Its `answer` is the reasoning, then "#### N"."""
    where = f"GSM8K, {split} row {index}"
    require_text(row, ("question", "answer"), where, index)
    reasoning, mark, gold = row["answer"].rpartition("####")
    if not mark:
        raise row_error(where, "answer", index, "it has no final '#### N' to verify against")
    try:
        answer = normalise_gold(gold)
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
        problem = f"{count} rows are kept for shots, but there are {len(problems)} training rows. Lower shot_pool."
        raise option_error(NAME, "shot_pool", problem)
    chosen = set(random.Random(f"{seed}/pool").sample(range(len(problems)), count))
    pool = [problem for index, problem in enumerate(problems) if index in chosen]
    shown = set(map(_key, pool))
    return pool, [problem for problem in problems if _key(problem) not in shown]


def _key(problem: _SolvedProblem) -> str:
    return question_key(problem.question)


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
