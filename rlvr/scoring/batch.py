"""A batch of completions with its columns, encoded for other processes (pickle) and other machines (JSON).

Each column is encoded at most once per format, however many calls it is part of. JSON must return every value as it
was: a tuple would arrive as a list, an integer key as text. Such a column is refused, since a reward would get other
arguments there than here.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


class EncodingError(ValueError):
    """A column can't be sent to another process or machine. The message names the column, the row and the cause."""


class Batch:
    """The arguments of reward functions for a batch.

    Args:
        columns: the arguments by name: "prompts", "completions" and columns of the data. Columns that can be sent as
            JSON are lists with one entry per row.
        rows: number of rows.
        step: of training.
        trainer_state: the trainer's, or a mapping. Functions in other processes see its numbers and text.
    """

    def __init__(self, columns: Mapping[str, Any], rows: int, *, step: int = 0, trainer_state: object = None) -> None:
        self.columns = columns
        self.rows = rows
        self.step = step
        # Outside of training there is no trainer, but a function that was written for one may read these.
        defaults = {"global_step": step, "max_steps": max(step, 1), "epoch": 0.0}
        self.state: dict[str, Any] = {**defaults, **_plain_attributes(trainer_state)}
        if trainer_state is None or isinstance(trainer_state, Mapping):
            trainer_state = SimpleNamespace(**{**self.state, **(trainer_state or {})})
        self.trainer_state = trainer_state
        self._pickled: dict[str, bytes] = {}
        self._json: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def row(self, number: int) -> dict[str, Any]:
        """The arguments for one row: lists of length 1."""
        return {name: self.slice(name, [number]) for name in self.columns}

    def slice(self, name: str, rows: Sequence[int]) -> Any:
        """Entries of a column; an argument that is no column is the same for all rows."""
        values = self.columns[name]
        return [values[row] for row in rows] if isinstance(values, list) and len(values) == self.rows else values

    def pickled(self, name: str) -> bytes:
        """A column for another process.

        Raises:
            EncodingError: it can't be pickled.
        """
        with self._lock:
            if name not in self._pickled:
                try:
                    self._pickled[name] = pickle.dumps(self.columns[name], protocol=5)
                except Exception as error:  # pickle raises errors of any type
                    raise EncodingError(f"{name} can't be sent to another process: {_cause(error)}") from error
            return self._pickled[name]

    def encode_json(self, names: Sequence[str]) -> None:
        """Encode columns as JSON.

        Raises:
            EncodingError: one of them can't be.
        """
        for name in names:
            if name not in self._json:
                self._json[name] = self._encode_column(name)

    def json_column(self, name: str, rows: Sequence[int]) -> str:
        """Entries of a column, as a JSON list."""
        self.encode_json([name])
        texts = self._json[name]
        return f"[{','.join([texts[row] for row in rows])}]"

    def json_size(self, names: Sequence[str], row: int) -> int:
        """Bytes that a row of encoded columns takes."""
        return sum(len(self._json[name][row]) + 1 for name in names)

    def same_prompt(self, row: int, other: int) -> bool:
        """Whether two rows are in the same group. The column "prompts" must be encoded."""
        return self._json["prompts"][row] == self._json["prompts"][other]

    def _encode_column(self, name: str) -> list[str]:
        values = self.columns[name]
        if not isinstance(values, list) or len(values) != self.rows:
            raise EncodingError(f"{name} is no list with one entry for each of {self.rows} completions")
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
                raise _not_json(name, row, _not_json_part(value) or str(error)) from error
            if not same and (part := _not_json_part(value)) is not None:
                raise _not_json(name, row, part)
            texts.append(text)
            last = value
        return texts


def _plain_attributes(state: object) -> dict[str, Any]:
    """The attributes of a trainer's state (or entries of a mapping) that are numbers or text: no history of logs."""
    attributes = state if isinstance(state, Mapping) else vars(state) if hasattr(state, "__dict__") else {}
    return {name: value for name, value in attributes.items() if value is None or isinstance(value, int | float | str)}


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _not_json(name: str, row: int, part: str) -> EncodingError:
    return EncodingError(f"the column {name} can't be sent as JSON: row {row} holds {part}")


def _not_json_part(value: Any, depth: int = 0) -> str | None:
    """The part of a value that JSON would change or can't represent; None if there is none.

    NaN is none: it arrives as it was, though it does not equal itself.
    """
    if depth > 200:
        return "lists nested more than 200 deep"
    if value is None or type(value) in (bool, int, float, str):
        return None
    if isinstance(value, dict):
        for key, entry in value.items():
            if type(key) is not str:
                return f"a key that is no text ({key!r:.60})"
            if part := _not_json_part(entry, depth + 1):
                return part
        return None if type(value) is dict else f"a {type(value).__name__}, which would arrive as a dict"
    if type(value) is list:
        return next((part for entry in value if (part := _not_json_part(entry, depth + 1))), None)
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__}, which would arrive as a list"
    return f"a {type(value).__name__} ({value!r:.60})"


@dataclass(frozen=True)
class RewardCall:
    """A call of one reward function, for a batch or for one of its rows.

    Attributes:
        reward: index among the backend's rewards.
        names: the arguments that the function can see.
        seed: of random numbers in the call.
        row: None for the whole batch.
    """

    reward: int
    batch: Batch
    names: Sequence[str]
    seed: tuple[Any, ...] = ()
    row: int | None = None
