"""Options that every task has: limits, the longest prompt, and bounds on how often a model solves a row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.config.specs import SPLITS
from rlvr.data.input_checks import check_limits, option_error
from rlvr.data.io import read_rows, write_rows
from rlvr.data.splits import limit_rows, prompt_characters
from rlvr.data.task import Task
from rlvr.dataset_columns import column_values
from rlvr.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset


def select_rows(
    name: str,
    task: Task,
    /,
    *,
    max_prompt_characters: int | None = None,
    limit_train: int | None = None,
    limit_validation: int | None = None,
    limit_test: int | None = None,
    seed: int = 42,
    pass_rates: str | None = None,
    min_pass_rate: float = 0.01,
    max_pass_rate: float = 0.99,
) -> Task:
    """Apply the options that every task has, and note what they leave out.

    Args:
        max_prompt_characters: drop rows with longer prompts.
        limit_train, limit_validation, limit_test: maximal rows of a split, drawn at random.
        seed: seed of the draw.
        pass_rates: a file of `scripts/evaluate.py --split train --samples 8`. Training rows get a column `pass_rate`,
            and a column `difficulty` (1 - pass_rate) where they have none.
        min_pass_rate, max_pass_rate: bounds of the training rows to keep.

    Raises:
        InputError: an option is invalid, the file has no rate of a row, or no training row is left.
    """
    limits = {"train": limit_train, "validation": limit_validation, "test": limit_test}
    check_limits(name, max_prompt_characters=max_prompt_characters)
    check_limits(name, **{f"limit_{split}": limit for split, limit in limits.items()})
    splits, notes = {split: task.split(split) for split in SPLITS}, list(task.notes)
    for split, rows in splits.items():
        if max_prompt_characters is not None:
            short = [
                row for row, prompt in enumerate(_prompts(rows)) if prompt_characters(prompt) <= max_prompt_characters
            ]
            if len(short) < len(rows):
                dropped = f"Dropped {len(rows) - len(short):,} of {len(rows):,} {split} rows"
                notes.append(f"{dropped} with prompts of over {max_prompt_characters:,} characters.")
                splits[split] = rows = rows.select(short)
        kept = limit_rows(list(range(len(rows))), limits[split], f"{seed}/limit")
        if len(kept) < len(rows):
            notes.append(f"Kept {len(kept):,} of {len(rows):,} {split} rows, as limit_{split} asks.")
            splits[split] = rows.select(kept)
    if pass_rates is not None:
        if not 0 <= min_pass_rate <= max_pass_rate <= 1:
            problem = f"{min_pass_rate:g} and max_pass_rate {max_pass_rate:g} are no bounds from 0 to 1."
            raise option_error(name, "min_pass_rate", problem)
        before = len(splits["train"])
        splits["train"] = _solved_sometimes(splits["train"], Path(pass_rates), min_pass_rate, max_pass_rate)
        bounds = f"a pass rate from {min_pass_rate:g} to {max_pass_rate:g} in {pass_rates}"
        notes.append(f"Kept {len(splits['train']):,} of {before:,} train rows: those with {bounds}.")
    if len(task.train) and not len(splits["train"]):
        message = f"Task {name}: no training row is left. {' '.join(notes)} Widen the options, or use other data."
        raise InputError(message, kind="empty-data", key="task")
    return replace(task, **splits, notes=tuple(notes))


def write_pass_rates(path: Path, rows: Dataset, solved: Sequence[tuple[int, int]]) -> None:
    """Write how often each row was solved.

    Args:
        solved: of each row, how many samples were scored, and how many of these were right.
    """
    ids = column_values(rows, "id") if "id" in rows.column_names else [None] * len(rows)
    lines = [
        {
            "row": number,
            "id": id,
            "prompt": _digest(prompt),
            "samples": scored,
            "pass_rate": right / scored if scored else None,
        }
        for number, (id, prompt, (scored, right)) in enumerate(zip(ids, _prompts(rows), solved, strict=True))
    ]
    write_rows(path, lines)


def _solved_sometimes(rows: Dataset, path: Path, low: float, high: float) -> Dataset:
    """Return the rows with a pass rate within the bounds, with their rates."""
    lines = read_rows(path)
    for number, line in enumerate(lines):
        rate = line.get("pass_rate")
        if "prompt" not in line or not (rate is None or (isinstance(rate, int | float) and 0 <= rate <= 1)):
            message = f"{path}, row {number}: it has no prompt and pass_rate. Write the file with scripts/evaluate.py."
            raise InputError(message, kind="invalid-row", key="pass_rates", row=number, path=path)
    known = {line["prompt"]: line.get("pass_rate") for line in lines}
    kept, rates = [], []
    for number, prompt in enumerate(_prompts(rows)):
        if (key := _digest(prompt)) not in known:
            raise InputError(
                f"{path} has no pass rate for training row {number}: it was measured with other data, or other options "
                "of the task. Measure again: scripts/evaluate.py --split train --samples 8.",
                kind="missing-row",
                key="pass_rates",
                row=number,
                path=path,
            )
        if (rate := known[key]) is not None and low <= rate <= high:
            kept.append(number)
            rates.append(float(rate))
    rows = rows.select(kept).add_column("pass_rate", rates)
    if "difficulty" not in rows.column_names:
        rows = rows.add_column("difficulty", [round(1 - rate, 6) for rate in rates])
    return rows


def _prompts(rows: Dataset) -> list[Any]:
    return list(column_values(rows, "prompt")) if len(rows) else []


def _digest(prompt: Any) -> str:
    return hashlib.blake2b(json.dumps(prompt, sort_keys=True).encode(), digest_size=12).hexdigest()
