"""Split rows into training and held-out data, limit the splits, and make datasets of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rlvr.data.io import Row

if TYPE_CHECKING:
    from datasets import Dataset

Item = TypeVar("Item")


def question_key(question: object) -> str:
    """Return the question as compared between rows: without differences of case and spacing."""
    text = question if isinstance(question, str) else json.dumps(question, ensure_ascii=False, default=str)
    return " ".join(text.split()).casefold()


def hold_out(rows: list[Row], fraction: float, seed: str, key: Callable[[Row], str]) -> tuple[list[Row], list[Row]]:
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


def limit_rows(rows: list[Item], limit: int | None, seed: str) -> list[Item]:
    """Draw at most `limit` rows, or tests, in their original order; a larger limit with the same seed adds some."""
    order = list(range(len(rows)))
    if limit is not None:
        random.Random(seed).shuffle(order)
    return [rows[index] for index in sorted(order[:limit])]


def apply_limits(splits: dict[str, list[Row]], seed: int, noun: str = "rows", **limits: int | None) -> list[str]:
    """Limit the splits in place, and return a note on each split that lost rows."""
    notes = []
    for split, limit in limits.items():
        before = len(splits[split])
        splits[split] = limit_rows(splits[split], limit, f"{seed}/limit")
        if len(splits[split]) < before:
            notes.append(f"Kept {len(splits[split]):,} of {before:,} {split} {noun}, as limit_{split} asks.")
    return notes


def prompt_characters(prompt: str | list[dict[str, Any]]) -> int:
    """Return the number of characters of a text prompt, or of the contents of all messages."""
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"] or "") for message in prompt)


def drop_long_prompts(splits: dict[str, list[Row]], limit: int) -> list[str]:
    """Drop rows with longer prompts from the splits in place, and return a note on each split that lost rows."""
    notes = []
    for split, rows in splits.items():
        splits[split] = [row for row in rows if prompt_characters(row["prompt"]) <= limit]
        if dropped := len(rows) - len(splits[split]):
            notes.append(
                f"Dropped {dropped:,} of {len(rows):,} {split} rows with prompts of over {limit:,} characters."
            )
    return notes


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
