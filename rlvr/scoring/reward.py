"""A reward function with its options; gates and row masking.

`None` means that a row can't be scored through a failure of ours. The whole row then leaves the update, whatever other
rewards return (TRL alone would count `None` as 0, a wrong answer). A gated reward counts only where its gate is
positive.

The trainer writes the text columns that rewards read beside the completions, so that scripts/score.py can score them
again from that file alone.

`Reward` calls the function in this process; rlvr/scoring/scorer.py calls it wherever the recipe says.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.config.recipe import RewardSpec

# Columns of the trainer's table of completions (trl/trainer/grpo_trainer.py, log).
TABLE_COLUMNS = frozenset({"step", "prompt", "completion", "advantage"})
# Characters. Longer text is not repeated for every completion of a group; the task has it, by the prompt.
MOST_LOGGED = 10_000


class RewardError(Exception):
    """A reward function raised, or returned no list of rewards. The message names it and, if known, the row."""


@dataclass
class Reward:
    """A reward function with its options bound: callable as TRL calls it, and by name in its metrics.

    Attributes:
        name: as the recipe writes it.
        function: the TRL reward function itself.
        options: keyword arguments added to every call.
        columns: the columns of the data that the function asks for.
        weight, gate, where: see `rlvr.config.recipe.RewardSpec`.
        spec: from which another process loads the same reward; None for a function that only this process has (a
            lambda, a closure).
    """

    name: str
    function: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    weight: float = 1.0
    gate: str | None = None
    where: str | None = None
    spec: RewardSpec | None = None
    # Whether a column holds text, as its first batch had it: TRL takes a column that is logged in some steps only for
    # one that is shorter than the others, and can't write it.
    _is_text: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.__name__ = self.label  # GRPOTrainer names its metrics after it: rewards/<label>/mean

    @property
    def label(self) -> str:
        """Short name for tables and metrics: the function's part of a path or of a dotted name."""
        path, _, function = self.name.partition(":")
        return function or (path.removesuffix(".py").rpartition("/")[2] if "/" in path else path.rpartition(".")[2])

    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float | None]:
        """Score a batch.

        Args:
            prompts, completions: one per row; strings, or lists of chat messages.
            kwargs: the columns of the data (one list each, as long as `completions`) and what GRPOTrainer adds. With
                its `log_extra`, the text columns that this reward reads are logged, once per batch for all rewards: two
                lists under one name would make the table of completions unwritable. Numbers are not logged: the report
                takes every number of that table for a reward.

        Returns:
            One finite number per row, or None where the row can't be scored.

        Raises:
            RewardError: with the reward's name and the first row that fails.
        """
        if kwargs.get("log_extra") is not None:
            kwargs["log_extra"] = self.log_columns(completions, kwargs, kwargs["log_extra"])
        try:
            values = self.call(prompts, completions, kwargs)
        except Exception as error:
            row = self._first_failing_row(prompts, completions, kwargs)
            at = "" if row is None else f" at row {row} of the batch (completion: {excerpt(completions[row])})"
            at += _line_of(error, self.function)
            raise RewardError(f"The reward {self.name} raised {type(error).__name__}: {error}{at}") from error
        return self._checked(values, len(completions))

    def log_columns(self, completions: list[Any], given: Mapping[str, Any], log_extra: LogExtra) -> LogExtra:
        """Log the text columns that this reward reads; return the `log_extra` that its function gets."""
        logged = _logged_for(completions)
        for column in self.columns:
            values = given.get(column)
            if column in logged or column in TABLE_COLUMNS or column == self.label:
                continue
            if not isinstance(values, list) or len(values) != len(completions):
                continue
            if self._is_text.setdefault(column, all(value is None or isinstance(value, str) for value in values)):
                logged[column] = True
                log_extra(column, [_loggable(value) for value in values])

        def log_new(column: str, values: list[Any]) -> None:
            if not logged.setdefault(column, False):
                log_extra(column, values)

        return log_new

    def call(self, prompts: list[Any], completions: list[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function, and return its values unchecked."""
        # An option holds for all rows, whatever a column of its name says.
        values = self.function(prompts=prompts, completions=completions, **{**kwargs, **self.options})
        return asyncio.run(_result_of(values)) if inspect.isawaitable(values) else values

    def _first_failing_row(self, prompts: list[Any], completions: list[Any], kwargs: Mapping[str, Any]) -> int | None:
        rows = len(completions)
        for row in range(rows):
            one = {
                key: value[row : row + 1] if isinstance(value, list) and len(value) == rows else value
                for key, value in kwargs.items()
            }
            try:
                self.call(prompts[row : row + 1], completions[row : row + 1], one)
            except Exception:
                return row
        return None

    def _checked(self, values: Any, rows: int) -> list[float | None]:
        listed = as_list(values)
        if listed is None:
            raise RewardError(f"The reward {self.name} returned {type(values).__name__}, but should return a list.")
        if len(listed) != rows:
            raise RewardError(f"The reward {self.name} returned {len(listed)} values for {rows} completions.")
        checked: list[float | None] = []
        for value in listed:
            try:
                checked.append(as_number(value))
            except ValueError:
                break
        if len(checked) < rows:  # out of the handler, so that the error has no other for its context
            row = len(checked)
            raise RewardError(
                f"The reward {self.name} returned {listed[row]!r} for row {row} of the batch; {A_REWARD_IS}."
            )
        return checked


A_REWARD_IS = "a reward is a finite number, or None where the row can't be scored"


def as_list(values: Any) -> list[Any] | None:
    """The returned values as a list; None if they have no entry per row."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        return None
    return list(values)


def as_number(value: Any) -> float | None:
    """A returned value as a number.

    Raises:
        ValueError: it is neither a finite number nor None.
    """
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, str | bytes):
        raise ValueError(value)
    return number


LogExtra = Callable[[str, list[Any]], None]

# The completions scored last, and the columns logged for them: whether by us (True) or by a reward function itself.
# GRPOTrainer hands the very same list to each reward of a batch, and a new one for the next batch.
_last_batch: tuple[list[Any], dict[str, bool]] = ([], {})


def _logged_for(completions: list[Any]) -> dict[str, bool]:
    global _last_batch
    if _last_batch[0] is not completions:
        _last_batch = (completions, {})
    return _last_batch[1]


def _loggable(value: Any) -> str | None:
    """The text itself; None where parquet could not hold it (a lone surrogate), or it is too long."""
    if not isinstance(value, str) or len(value) > MOST_LOGGED:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


async def _result_of(awaitable: Any) -> Any:
    return await awaitable


def _line_of(error: BaseException, function: Callable[..., Any]) -> str:
    """The line of the reward's own file that failed, as ", in rewards/x.py line 7"; "" if it is unknown."""
    file = file_of(function)
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if file is not None and frame.filename == file:
            line = f", in {frame.filename} line {frame.lineno}"
    return line


def file_of(function: Callable[..., Any]) -> str | None:
    """The file that defines a function or a callable object."""
    function = inspect.unwrap(function)
    if not hasattr(function, "__code__"):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return None if code is None else code.co_filename


def own_traceback(error: BaseException, file: str | Path | None, *, chain: bool = False) -> str:
    """The traceback from the user's file on, without our own frames and the import system's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(file):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, chain=chain)).rstrip()


def excerpt(completion: Any) -> str:
    """The start of a completion, for a message."""
    is_chat = isinstance(completion, list) and len(completion) > 0 and isinstance(completion[-1], dict)
    text = repr(completion[-1].get("content", "") if is_chat else completion)
    return text if len(text) <= 120 else f"{text[:117]}..."


def apply_gates_and_mask(
    values: Sequence[Sequence[float | None]], rewards: Sequence[Reward]
) -> list[list[float | None]]:
    """Apply masking and gates to raw rewards.

    Args:
        values: one row per completion, one entry per reward in the order of `rewards`; None or NaN if not scored.

    Returns:
        The same shape. A row that any reward has not scored is None throughout; a gated reward is 0 where its gate is
        not positive.
    """
    names = [reward.name for reward in rewards]
    gates = [names.index(reward.gate) if reward.gate is not None else None for reward in rewards]
    settled: list[list[float | None]] = []
    for row in values:
        numbers = [value for value in row if value is not None and not math.isnan(value)]
        if len(numbers) < len(row):
            settled.append([None] * len(row))
        else:
            settled.append(
                [
                    value if gate is None or numbers[gate] > 0 else 0.0
                    for value, gate in zip(numbers, gates, strict=True)
                ]
            )
    return settled


def total(row: Sequence[float | None], rewards: Sequence[Reward]) -> float | None:
    """The weighted sum of a row after gates and masks, or None if the row is masked."""
    pairs = zip(row, rewards, strict=True)
    terms = [None if value is None else value * reward.weight for value, reward in pairs]
    return None if None in terms else sum(term for term in terms if term is not None)
