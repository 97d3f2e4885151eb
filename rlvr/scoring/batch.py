"""A batch of completions with its columns, encoded for other processes (pickle) and other machines (JSON).

A whole column is encoded at most once per format, however many calls it is part of. JSON must return every value as it
was: a tuple would arrive as a list, an integer key as text. Such a column is refused, since a reward would get other
arguments there than here.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from rlvr.verifiers.completion_text import prompt_opens_think, with_opened_think

Encoding = Literal["", "pickle", "json"]


class EncodingError(ValueError):
    """A column can't be sent to another process or machine. The message names the column, the row and the cause."""


class Batch:
    """The arguments of reward functions for a batch.

    Args:
        columns: the arguments by name: "prompts", "completions" and columns of the data. Columns that can be sent as
            JSON are lists with one entry per row.
        rows: number of rows.
        step: of training.
        trainer_state: numbers and text of the trainer's, which functions see as attributes.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        rows: int,
        *,
        step: int = 0,
        trainer_state: Mapping[str, float | str | None] | None = None,
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.step = step
        # Outside of training there is no trainer, but a function that was written for one may read these.
        self.state = {"global_step": step, "max_steps": max(step, 1), "epoch": 0.0, **(trainer_state or {})}
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

    def select(self, rows: Sequence[int]) -> Batch:
        """The batch of some rows."""
        columns = {name: self.slice(name, rows) for name in self.columns}
        return Batch(columns, len(rows), step=self.step, trainer_state=self.state)

    @cached_property
    def opened_by_template(self) -> Batch:
        """The batch as if the model had written the <think> that its chat template has opened."""
        return self._with_think([True] * self.rows)

    @cached_property
    def opened_by_prompts(self) -> Batch:
        """The same for the rows whose prompt itself ends in <think>."""
        return self._with_think([prompt_opens_think(prompt) for prompt in self.columns["prompts"]])

    def _with_think(self, opened: Sequence[bool]) -> Batch:
        if not any(opened):
            return self
        pairs = zip(self.columns["completions"], opened, strict=True)
        completions = [with_opened_think(completion) if is_opened else completion for completion, is_opened in pairs]
        return Batch({**self.columns, "completions": completions}, self.rows, step=self.step, trainer_state=self.state)

    def encode(self, names: Sequence[str], encoding: Encoding) -> None:
        """Encode columns for a backend.

        Raises:
            EncodingError: one of them can't be; with the fix.
        """
        try:
            for name in names:
                if encoding == "pickle":
                    self.pickled(name)
                elif encoding == "json":
                    self._json_texts(name)
        except EncodingError as error:
            where = "trainer" if encoding == "pickle" else "local"
            raise EncodingError(f"{error}. Set `where: {where}` for the reward in the recipe.") from error

    def pickled(self, name: str, rows: Sequence[int] | None = None) -> bytes:
        """A column, or some of its entries, for another process.

        Raises:
            EncodingError: it can't be pickled.
        """
        if rows is not None:
            return pickle.dumps(self.slice(name, rows), protocol=5)
        with self._lock:
            if name not in self._pickled:
                try:
                    self._pickled[name] = pickle.dumps(self.columns[name], protocol=5)
                except Exception as error:  # pickle raises errors of any type
                    cause = f"{type(error).__name__}: {error}"
                    raise EncodingError(f"{name} can't be sent to another process: {cause}") from error
            return self._pickled[name]

    def json_column(self, name: str, rows: Sequence[int]) -> str:
        """Entries of a column, as a JSON list.

        Raises:
            EncodingError: one of the column can't be sent.
        """
        texts = self._json_texts(name)
        return f"[{','.join([texts[row] for row in rows])}]"

    def json_columns(self, names: Sequence[str], rows: Sequence[int]) -> str:
        """Entries of columns, as a JSON object of lists."""
        return f"{{{','.join(f'{json.dumps(name)}:{self.json_column(name, rows)}' for name in names)}}}"

    def json_size(self, names: Sequence[str], row: int) -> int:
        """Bytes that a row takes as JSON."""
        return sum(len(self._json_texts(name)[row]) + 1 for name in names)

    def same_prompt(self, row: int, other: int) -> bool:
        """Whether two rows are in the same group."""
        return self._json_texts("prompts")[row] == self._json_texts("prompts")[other]

    def _json_texts(self, name: str) -> list[str]:
        if name in self._json:
            return self._json[name]
        values = self.columns[name]
        if not isinstance(values, list) or len(values) != self.rows:
            raise EncodingError(f"{name} is no list with one entry for each of {self.rows} completions")
        texts: list[str] = []
        for row, value in enumerate(values):
            if row and value is values[row - 1]:  # the completions of a group have the same tests
                texts.append(texts[-1])
                continue
            try:
                text = json.dumps(value)
                arrived = value if type(value) is str else json.loads(text)
            except (TypeError, ValueError, RecursionError) as error:
                raise EncodingError(f"the column {name} can't be sent as JSON: row {row}: {error}") from error
            if arrived != value and repr(arrived) != repr(value):  # NaN does not equal itself
                what = f"row {row} holds {value!r:.60}, which would arrive as {arrived!r:.60}"
                raise EncodingError(f"the column {name} can't be sent as JSON: {what}")
            texts.append(text)
        self._json[name] = texts
        return texts


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
