"""Load competition problems with a final answer: MATH (Hendrycks et al., 2021), NuminaMath-1.5, or data in their form.

A row has a problem (column `problem`, `question` or `prompt`) and an answer. The answer is the column `answer`, or else
the last box of the column `solution`. The verifier of math_correctness must accept the answer as its own reference.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from rlvr import Task, check_answers
from rlvr.data.decontamination import find_overlaps
from rlvr.data.input_checks import check_limits, missing, missing_column_error, require_text
from rlvr.data.io import Row, read_splits
from rlvr.data.splits import limit_rows, notes_on_dropped, question_key, require_training_rows, to_datasets
from rlvr.verifiers.math import gold_faults
from rlvr.verifiers.math.extraction import extract_boxed

NAME = "competition_math"
MATH = "EleutherAI/hendrycks_math"
SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra"),
    "precalculus",
)
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."  # as Qwen2.5-Math asks for it
BUDGET_S = 3600.0  # of all algebra on the reference answers, so that a busy machine drops none
# Our columns, and the names that they have in the data.
_NAMES = {
    "question": ("problem", "question", "prompt"),
    "level": ("level", "difficulty"),
    "type": ("type", "problem_type", "subject"),
    "source": ("source", "data_source"),
}
_PROOF = re.compile(r"\W*(?:prove|show) that\b", re.IGNORECASE)
_LETTER = re.compile(r"(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)*\s*\(?[A-H]\)?[.}\s]*")
_CHOICES = re.compile(r"\bA\s*[).:}].*\bB\s*[).:}].*\bC\s*[).:}]", re.DOTALL)
Dropped = dict[str, list[str]]  # reason -> ids


def competition_math(
    *,
    path: str | None = None,
    test_path: str | None = None,
    levels: list[int] | None = None,
    types: list[str] | None = None,
    sources: list[str] | None = None,
    instruction_role: Literal["system", "user"] = "system",
    limit_train: int | None = None,
    limit_test: int | None = None,
    seed: int = 42,
) -> Task:
    """Load problems as chat prompts.

    Args:
        path: a file, a folder with a file for each split, or a dataset of the hub, such as AI-MO/NuminaMath-1.5. None
            downloads the seven subjects of EleutherAI/hendrycks_math, or uses the cached copies.
        test_path: a dataset or file with the held-out rows, such as HuggingFaceH4/MATH-500. Without a test split,
            all of its rows are held out. Default: the test rows of `path`.
        levels: the levels of the training rows, 1 to 5 in MATH. By default all.
        types: types of the training rows, such as [Algebra, Geometry] (column type, problem_type or subject).
        sources: sources of the training rows, such as [olympiads, amc_aime] (column source or data_source).
        instruction_role: role of the message that asks for a box. "user" is for templates without a system turn.
        limit_train: maximum number of usable training rows, drawn at random. None for all.
        limit_test: maximum number of test rows, drawn at random. Unusable rows are dropped after the draw.
        seed: seed of the draw.

    Rows without a verifiable answer are dropped, counted and named in the notes. So are proofs, multiple choice,
    invalid rows of NuminaMath, and training rows that overlap test rows or repeat earlier rows.

    Rows have `prompt`, `question`, `final_answer`, `difficulty` ("Level 5"), `type`, `source` and `id`.
    """
    check_limits(NAME, limit_train=limit_train, limit_test=limit_test)
    difficulties = [f"Level {level}" for level in levels] if levels is not None else None
    options = {"difficulty": difficulties, "type": types, "source": sources}
    wanted = {name: {one.casefold() for one in values} for name, values in options.items() if values is not None}
    place, test_place = path or MATH, test_path or path or MATH
    raw = _read(path)
    held_out, training = raw.get("test", []), raw.get("train", [])
    if test_path is not None:
        found = read_splits(NAME, test_path)
        held_out = found.get("test") or [row for rows in found.values() for row in rows]
    dropped: Dropped = defaultdict(list)
    tests = [_convert(row, f"{test_place}, test row {n}", n, "test") for n, row in enumerate(held_out)]
    test = list(_verified(limit_rows(tests, limit_test, f"{seed}/limit"), dropped))
    notes = [f"Read {len(tests):,} test rows of {test_place}.", *notes_on_dropped(dropped, "test row")]
    dropped.clear()
    candidates = []
    for number, row in enumerate(training):
        converted = _convert(row, f"{place}, train row {number}", number, "train")
        other = next((name for name, values in wanted.items() if str(converted[name]).casefold() not in values), None)
        if reason := f"another {other}" if other else _find_defect(row, converted):
            dropped[reason].append(converted["id"])
        else:
            candidates.append(converted)
    train = _usable(candidates, [row["question"] for row in tests], limit_train, seed, dropped)
    took = f"Took {len(train):,} of {len(training):,} training rows of {place}."
    notes += [*notes_on_dropped(dropped, "training row"), took]
    splits = {"train": train, "validation": [], "test": test}
    require_training_rows(NAME, place, splits, notes)
    if not test:
        notes.append("There is no test split, so there is no held-out accuracy. Set test_path.")
    for row in (*train, *test):
        row["prompt"] = _build_prompt(row["question"], instruction_role)
    return Task(
        **to_datasets(**splits),
        notes=tuple(notes),
        gold=lambda row: f"Here is how.\nThe answer is $\\boxed{{{row['final_answer']}}}$.",
    )


def _usable(rows: list[Row], held_out: list[str], limit: int | None, seed: int, dropped: Dropped) -> list[Row]:
    """Return rows that are no copies and can be verified: all, or `limit` at random."""
    if limit is not None:
        random.Random(f"{seed}/limit").shuffle(rows)
    usable, seen = list[Row](), set[str]()
    size = max(limit or len(rows), 256)
    for start in range(0, len(rows), size):
        if limit is None or len(usable) < limit:
            usable += _verified(_without_copies(rows[start : start + size], held_out, seen, dropped), dropped)
    return usable[:limit]


def _read(path: str | None) -> dict[str, list[Row]]:
    if path is not None:
        return read_splits(NAME, path)
    subjects = [read_splits(NAME, None, MATH, subject) for subject in SUBJECTS]
    return {split: [row for subject in subjects for row in subject[split]] for split in ("train", "test")}


def _convert(row: Row, where: str, number: int, split: str) -> Row:
    """Return our columns of a row. A row without an answer has an empty `final_answer`."""
    values: Row = {ours: next((row[name] for name in names if name in row), None) for ours, names in _NAMES.items()}
    question = values["question"]
    require_text(row if question is None else {"problem": question}, ("problem",), where, number)
    if "answer" not in row and "solution" not in row:
        raise missing_column_error(where, "answer", row, "Or a solution with a box.", row=number)
    solution, answer = row.get("solution"), row.get("answer")
    if answer is None and isinstance(solution, str):
        answer = extract_boxed(solution)
    level = re.search(r"\d+", str(values["level"]))
    return {
        "question": question.strip(),
        "final_answer": "" if missing(answer) else str(answer).strip().strip("$").strip(),
        "difficulty": f"Level {level[0]}" if level else None,
        "type": str(values["type"] or ""),
        "source": str(values["source"] or NAME),
        "id": str(row.get("unique_id") or f"{NAME}-{split}-{number}"),
    }


def _find_defect(row: Row, converted: Row) -> str:
    """Return why a row is no problem with a final answer, or empty text."""
    kind, gold = row.get("question_type"), converted["final_answer"]
    if "No" in (row.get("problem_is_valid"), row.get("solution_is_valid")):
        return "marked as invalid"
    if kind == "proof" or gold.casefold() == "proof" or _PROOF.match(converted["question"]):
        return "a proof"
    if kind == "MCQ" or (_LETTER.fullmatch(gold) and _CHOICES.search(converted["question"])):
        return "multiple choice"
    return ""


def _without_copies(rows: Sequence[Row], held_out: Sequence[str], seen: set[str], dropped: Dropped) -> list[Row]:
    """Leave out rows that overlap a held-out question or ask the same as an earlier row. Their keys are in `seen`."""
    overlaps = {train for train, _, _ in find_overlaps([row["question"] for row in rows], held_out)}
    held_keys = set(map(question_key, held_out))
    kept = []
    for position, row in enumerate(rows):
        key = question_key(row["question"])
        if position in overlaps or key in held_keys:
            dropped["in the test split"].append(row["id"])
        elif key in seen:
            dropped["the same question as an earlier row"].append(row["id"])
        else:
            seen.add(key)
            kept.append(row)
    return kept


def _verified(rows: Sequence[Row], dropped: Dropped) -> Iterator[Row]:
    """Yield rows with a reference answer that the scoring verifier accepts."""
    golds = [row["final_answer"] for row in rows]
    verdicts = check_answers([f"\\boxed{{{gold}}}" for gold in golds], golds, budget_s=BUDGET_S)
    for row, fault, verdict in zip(rows, gold_faults(golds), verdicts, strict=True):
        if not row["final_answer"] or row["final_answer"].casefold() == "notfound":
            dropped["no answer"].append(row["id"])
        elif fault is not None or verdict.correct is False:  # None: the workers failed
            dropped["an answer that the verifier can't read"].append(row["id"])
        else:
            yield row


def _build_prompt(question: str, role: str) -> list[dict[str, Any]]:
    if role == "user":
        return [{"role": "user", "content": f"{question}\n\n{INSTRUCTION}"}]
    return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question}]
