"""A batch as JSON, column by column and row by row, with a sentence on what JSON can't carry.

Each entry is written once, however many requests it is part of. What would arrive as something else (a tuple as a list,
a key that is a number as text) is no better than what can't be written: a reward would be given other arguments there
than here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class EncodingError(ValueError):
    """A column can't travel as JSON; the message names it, the row, and what is in the way."""


class EncodedBatch:
    """The columns of a batch, written as JSON when they are first asked for.

    Args:
        given: the arguments of the call, each a list with an entry a row; for who can carry them as they are.
    """

    def __init__(self, given: Mapping[str, Any], rows: int) -> None:
        self.rows = rows
        self.given = given
        self._texts: dict[str, list[str]] = {}

    def check(self, names: Sequence[str]) -> None:
        """Writes columns.

        Raises:
            CannotCarry: one of them can't be.
        """
        for name in names:
            if name not in self._texts:
                self._texts[name] = self._written(name)

    def column(self, name: str, rows: Sequence[int]) -> str:
        """Some entries of a column, as a JSON list."""
        self.check([name])
        texts = self._texts[name]
        return f"[{','.join([texts[row] for row in rows])}]"

    def size(self, names: Sequence[str], row: int) -> int:
        """Bytes that a row takes in a request."""
        return sum(len(self._texts[name][row]) + 1 for name in names)

    def same(self, row: int, other: int) -> bool:
        """Whether two rows have the same prompt, and so belong to one group."""
        return self._texts["prompts"][row] == self._texts["prompts"][other]

    def _written(self, name: str) -> list[str]:
        values = self.given[name]
        if not isinstance(values, list) or len(values) != self.rows:
            raise EncodingError(f"{name} is no list with an entry for each of {self.rows} completions")
        texts: list[str] = []
        last: Any = object()
        for row, value in enumerate(values):
            if value is last:  # the completions of a group have the same tests
                texts.append(texts[-1])
                continue
            try:
                text = json.dumps(value)
                same = type(value) is str or json.loads(text) == value
            except (TypeError, ValueError, RecursionError) as error:
                raise EncodingError(_why(name, row, _obstacle(value) or str(error))) from error
            if not same and (obstacle := _obstacle(value)) is not None:
                raise EncodingError(_why(name, row, obstacle))
            texts.append(text)
            last = value
        return texts


def _why(name: str, row: int, obstacle: str) -> str:
    return f"the column {name} can't travel to a reward server: at row {row} it has {obstacle}"


def _obstacle(value: Any, depth: int = 0) -> str | None:
    """What in a value JSON would change or can't write; None where there is nothing (but NaN, which equals nothing)."""
    if depth > 200:
        return "lists in lists beyond any measure"
    if value is None or type(value) in (bool, int, float, str):
        return None
    if isinstance(value, dict):
        for key, entry in value.items():
            if type(key) is not str:
                return f"a key that is no text ({key!r:.60})"
            if found := _obstacle(entry, depth + 1):
                return found
        return None if type(value) is dict else f"a {type(value).__name__}, which would arrive as a dict"
    if type(value) is list:
        return next((found for entry in value if (found := _obstacle(entry, depth + 1))), None)
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__}, which would arrive as a list"
    return f"a {type(value).__name__} ({value!r:.60})"


@dataclass(frozen=True)
class RewardCall:
    """A call of one reward, for all rows of a batch or for one of them.

    Attributes:
        place: of the reward among those of the pool.
        names: the arguments that it gets to see.
        state: of the trainer.
        seed: what random numbers in the call depend on.
        row: None for all of them.
    """

    place: int
    carried: EncodedBatch
    names: Sequence[str]
    state: Mapping[str, Any]
    seed: tuple[Any, ...]
    row: int | None = None
