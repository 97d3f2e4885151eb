"""Split rows into training and held-out data, limit the splits, and make datasets of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rlvr.data.input_checks import check_fraction
from rlvr.data.io import Row
from rlvr.errors import InputError
from rlvr.formatting import count

if TYPE_CHECKING:
    from datasets import Dataset

EXAMPLES = 5  # names in a note

Item = TypeVar("Item")


def question_key(question: object) -> str:
    """Return the question as compared between rows: without differences of case and spacing."""
    text = question if isinstance(question, str) else json.dumps(question, ensure_ascii=False, default=str)
    return " ".join(text.split()).casefold()


def hold_out(rows: list[Item], fraction: float, seed: str, key: Callable[[Item], str]) -> tuple[list[Item], list[Item]]:
    """Split off a random `fraction`: return (the rest, the held-out rows), both in their original order.

    Rows with the same key go to the same side, so the held-out share may be a little larger than asked for.
    """
    sizes = Counter(map(key, rows))
    names = list(sizes)
    random.Random(seed).shuffle(names)
    held_out: set[str] = set()
    missing = round(fraction * len(rows))
    for name in names:
        if missing > 0:
            held_out.add(name)
            missing -= sizes[name]
    return [row for row in rows if key(row) not in held_out], [row for row in rows if key(row) in held_out]


def drop_held_out(splits: dict[str, list[Row]]) -> list[str]:
    """Drop training rows that ask the same as a held-out row, in place; return a note on them, if there are some."""
    rows, held_out = splits["train"], {row_key(row) for split in ("validation", "test") for row in splits[split]}
    splits["train"] = [row for row in rows if row_key(row) not in held_out]
    dropped = len(rows) - len(splits["train"])
    return [f"Dropped {dropped:,} training rows that ask the same as a held-out row."] if dropped else []


def notes_on_dropped(dropped: Mapping[str, Sequence[str]], noun: str) -> list[str]:
    """Return a note on each reason for which rows were dropped, with some of their names."""
    return [
        f"Dropped {count(len(names), noun)}: {why} ({', '.join(names[:EXAMPLES])}{', …' if names[EXAMPLES:] else ''})."
        for why, names in dropped.items()
    ]


def require_training_rows(task: str, source: str, splits: Mapping[str, Sequence[object]], notes: Sequence[str]) -> None:
    """Raise InputError of kind "empty-data" if no training row is left; the notes say where the rows went."""
    if not splits["train"]:
        message = f"Task {task}: no training row of {source} is left. {' '.join(notes)} Choose other data or options."
        raise InputError(message, kind="empty-data", key="path")


def limit_rows(rows: list[Item], limit: int | None, seed: str) -> list[Item]:
    """Draw at most `limit` rows, or tests, in their original order; a larger limit with the same seed adds some."""
    order = list(range(len(rows)))
    if limit is not None:
        random.Random(seed).shuffle(order)
    return [rows[index] for index in sorted(order[:limit])]


def hold_out_test(task: str, splits: dict[str, list[Row]], fraction: float, seed: int) -> list[str]:
    """Hold out training rows, by question or else by prompt, in place, if there is no test row; return a note on it.

    Raises:
        InputError: the task's option test_fraction is no fraction.
    """
    check_fraction(task, "test_fraction", fraction)
    if splits["test"] or not fraction:
        return []
    splits["train"], splits["test"] = hold_out(splits["train"], fraction, f"{seed}/test", row_key)
    return [f"Held out {len(splits['test']):,} of the training rows as the test split, with seed {seed}."]


def row_key(row: Row) -> str:
    """Return what is compared between rows: the question, or else the prompt."""
    return question_key(row.get("question", row["prompt"]))


def prompt_characters(prompt: str | list[dict[str, Any]]) -> int:
    """Return the number of characters of a text prompt, or of the contents of all messages."""
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"] or "") for message in prompt)


def to_datasets(**splits: list[Row]) -> dict[str, Dataset]:
    """Convert splits to `datasets.Dataset`s with the same columns and types, empty splits included.

    Values come back as they are, also where a column has values of several types.

    Raises:
        TypeError, ValueError: a value is of no type that Arrow or JSON have.
    """
    from rlvr.data.exact_columns import make_dataset

    every_row = [row for rows in splits.values() for row in rows]
    names = dict.fromkeys(name for row in every_row for name in row)
    all_rows = make_dataset({name: [row.get(name) for row in every_row] for name in names})
    datasets, start = {}, 0
    for name, rows in splits.items():
        # `select` refuses an empty range after the last row, but takes an empty list.
        datasets[name] = all_rows.select(range(start, start + len(rows)) if rows else [])
        start += len(rows)
    return datasets
