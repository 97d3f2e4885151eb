"""The rows of a dataset that a task can use: converted, counted, held out for the test, and without copies of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rlvr.data.decontamination import find_overlaps
from rlvr.data.input_checks import check_fraction, check_limits, require_columns
from rlvr.data.io import Row
from rlvr.data.splits import hold_out, question_key, require_training_rows

# Returns our row, with the column `question`, or why theirs is left out; gets the row, its number and its split.
Convert = Callable[[Row, int, str], Row | str]
SPLITS = ("test", "validation", "train")  # a row that is in two of them stays in the first


def usable_rows(
    task: str,
    source: str,
    raw: Mapping[str, list[Row]],
    columns: Sequence[str],
    convert: Convert,
    *,
    test_fraction: float,
    seed: int,
    limit_train: int | None = None,
    limit_test: int | None = None,
    held_out_by: str | None = None,
) -> tuple[dict[str, list[Row]], list[str]]:
    """Convert the rows of each split in random order, up to its limit; return them, and notes with counts.

    Rows that overlap a held-out question (rlvr/data/decontamination.py) are left out.

    Args:
        source: what the notes call the data.
        columns: those that each row must have, the first of which is the question.
        test_fraction: share of the training rows to hold out if there is no test split.
        limit_train, limit_test: usable rows after which the conversion of a split stops, for large data.
        held_out_by: a column whose values are not shared by the rows that are held out and the others; by default the
            question.

    Raises:
        InputError: an option is invalid, a column is missing, or no training row is usable.
    """
    check_limits(task, limit_train=limit_train, limit_test=limit_test)
    check_fraction(task, "test_fraction", test_fraction)
    theirs = {split: list(raw.get(split, [])) for split in SPLITS}
    for split, rows in theirs.items():
        for number, row in enumerate(rows):
            require_columns(row, columns, f"{source}, {split} row {number}", number)
    numbered: dict[str, list[Row]] = {
        split: [{"row": row, "number": number} for number, row in enumerate(rows)] for split, rows in theirs.items()
    }
    notes: list[str] = []
    if not theirs["test"] and test_fraction:
        name = held_out_by or columns[0]
        numbered["train"], numbered["test"] = hold_out(
            numbered["train"], test_fraction, f"{seed}/test", lambda item: question_key(item["row"][name])
        )
        notes.append(f"Held out {len(numbered['test']):,} training rows by {name}, since the data has no test split.")

    splits: dict[str, list[Row]] = {}
    held_out: list[str] = []
    for split in SPLITS:
        items, limit, dropped = numbered[split], {"train": limit_train, "test": limit_test}.get(split), Counter[str]()
        rows, tried = [], 0
        for item in random.Random(f"{seed}/{split}").sample(items, len(items)):
            if len(rows) == limit:
                break
            tried += 1
            asks = item["row"][columns[0]]
            is_text = isinstance(asks, str) and bool(asks.strip())
            converted = convert(item["row"], item["number"], split) if is_text else f"no text in {columns[0]}"
            if isinstance(converted, str):
                dropped[converted] += 1
            else:
                rows.append(converted)
        copies = {train for train, _, _ in find_overlaps([row["question"] for row in rows], held_out)}
        splits[split] = [row for place, row in enumerate(rows) if place not in copies]
        held_out += [str(item["row"][columns[0]]) for item in items] if split != "train" else []
        if items:
            reasons = "".join(f"; {count:,} with {why}" for why, count in dropped.items())
            copied = f"; {len(copies):,} that overlap a held-out question" if split != "test" else ""
            left_out = f"; left out: {f'{reasons}{copied}'[2:]}" if reasons or copied else ""
            notes.append(f"Took {len(splits[split]):,} {split} rows of {tried:,} tried, of {len(items):,}{left_out}.")
    require_training_rows(task, source, splits, notes)
    return splits, [*notes, f"All random choices use seed {seed}."]
