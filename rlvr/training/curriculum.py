"""Order the training rows by `difficulty`, easy ones first.

GRPO learns from groups that are neither all right nor all wrong. A model that starts with problems that it sometimes
solves has such groups from the first step on; hard problems follow when it can solve some of them. The order covers the
whole run, so the number of prompts that the run samples must be known.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr.dataset_columns import column_values
from rlvr.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

# Words that data sets use, from easy to hard; those on one line are equally hard. APPS: introductory, interview,
# competition. TACO: EASY, MEDIUM, MEDIUM_HARD, HARD, VERY_HARD.
_WORDS = (
    ("trivial", "very_easy", "elementary", "beginner"),
    ("easy", "introductory", "basic"),
    ("medium", "intermediate", "interview", "moderate"),
    ("medium_hard",),
    ("hard", "advanced", "difficult", "competition", "challenging"),
    ("very_hard", "expert", "olympiad"),
)
_RANK = {word: float(rank) for rank, words in enumerate(_WORDS) for word in words}
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def easy_first(train: Dataset, total: int, seed: int) -> list[int]:
    """Order the rows of a whole run from easy to hard.

    Args:
        train: with a column `difficulty`: numbers, text with one number in it ("1200", "Level 3"), or words that data
            sets use (easy, medium, hard, introductory, …); all of one kind.
        total: prompts that the run samples. More than there are rows: whole passes over the rows, and the rest evenly.
            Fewer: rows spread evenly over the order, so that a short run ends with hard ones as well.
        seed: of the order among equally difficult rows.

    Returns:
        `total` row numbers. A row that comes up several times does so once in every pass, and passes are put into one
        order: all easy rows of all passes come before any hard one.

    Raises:
        InputError: of kind "missing-column"; or "invalid-row", which names the first row whose difficulty is missing,
            can't be put into an order, or is of another kind than the others'.
    """
    if "difficulty" not in train.column_names:
        raise InputError(
            "curriculum: easy_first needs a column difficulty in the training rows, which have "
            f"{', '.join(train.column_names)}. With task: jsonl, columns: {{difficulty: THEIR NAME}} takes another "
            "column for it. The task's option pass_rates adds one.",
            kind="missing-column",
            key="difficulty",
        )
    levels = _levels(list(column_values(train, "difficulty")))
    passes, rest = divmod(total, len(levels))
    order = [row for number in range(passes) for row in _shuffled(len(levels), f"{seed}/{number}")]
    last = sorted(_shuffled(len(levels), f"{seed}/{passes}"), key=levels.__getitem__)
    # Every len/rest-th row of the sorted pass, from the middle of its share: as many of each difficulty as is fair.
    order += [last[(2 * place + 1) * len(last) // (2 * rest)] for place in range(rest)]
    return sorted(order, key=levels.__getitem__)  # stable: among equals the shuffled order stays


def _shuffled(rows: int, seed: str) -> list[int]:
    order = list(range(rows))
    random.Random(f"curriculum/{seed}").shuffle(order)
    return order


def _levels(difficulty: Sequence[Any]) -> list[float]:
    """A number a row."""
    levels = [_level(value, row) for row, value in enumerate(difficulty)]
    first_kind = levels[0][0]
    for row, (kind, _) in enumerate(levels):
        if kind != first_kind:
            raise InputError(
                f"curriculum: the difficulty of training row {row} is {difficulty[row]!r} ({kind}), and row 0 has "
                f"{difficulty[0]!r} ({first_kind}): the two can't be ordered. Write them all as numbers.",
                kind="invalid-row",
                key="difficulty",
                row=row,
            )
    return [level for _, level in levels]


def _level(value: Any, row: int) -> tuple[str, float]:
    """The kind of a difficulty, and the number that it stands for."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return "a number", float(value)
    elif isinstance(value, str):
        word = re.sub(r"[\s-]+", "_", value.strip().lower())
        if word in _RANK:
            return "a word", _RANK[word]
        numbers = _NUMBER.findall(value)
        if len(numbers) == 1 and math.isfinite(float(numbers[0])):
            # "Level 3" beside "Chapter 1" has no order; "3" beside 3 has.
            around = " ".join(value.replace(numbers[0], " ").lower().split())
            return f"a number after {around!r}" if around else "a number", float(numbers[0])
    missing = value is None or (isinstance(value, str) and not value.strip())
    problem = "is empty" if missing else f"is {value!r}"
    raise InputError(
        f"curriculum: the difficulty of training row {row} {problem}. It should be a number, text with one number in "
        f"it (Level 3), or one of {', '.join(word for words in _WORDS for word in words)}. Fill it in, or set "
        "curriculum: none.",
        kind="invalid-row",
        key="difficulty",
        row=row,
    )
