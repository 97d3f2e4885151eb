"""evaluation.json: the results of a held-out evaluation, and how it was made.

The file omits empty fields, except in a score. A field that a file lacks gets its default. Reading checks the type of
each value, because the file may come from another machine.
"""

from __future__ import annotations

import collections.abc
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from rlvr.artifacts import directory
from rlvr.config.specs import Reference
from rlvr.errors import InputError
from rlvr.formatting import count, is_number

FILE = "evaluation.json"
MODELS = ("base", "trained")
OFTEN_UNSCORED = 0.05  # share of the rows from which on an accuracy is not compared


@dataclass(frozen=True)
class Interval:
    """A 95 % interval, in the unit of what it bounds (0..1 for an accuracy, -1..1 for a difference)."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """The mean of several accuracies."""

    accuracy: float
    interval: Interval


@dataclass(frozen=True)
class Part:
    """The accuracy on a part of the rows."""

    rows: int
    accuracy: float
    interval: Interval


@dataclass(frozen=True)
class Gain:
    """Trained minus base, −1..1, with its interval."""

    points: float
    interval: Interval


@dataclass(frozen=True)
class Difference(Gain):
    """Trained minus base on the same rows.

    Attributes:
        gained, lost: rows that went from wrong to right, and from right to wrong.
        p_value: of McNemar's exact test of `gained` against `lost`.
    """

    gained: int
    lost: int
    p_value: float = 1.0


@dataclass(frozen=True)
class Score:
    """How one model did on one set of rows.

    Attributes:
        rows: rows that the verifier judged.
        correct: rows that are right.
        accuracy: correct / rows.
        interval: Wilson's interval of the accuracy.
        unscored: rows that the verifier failed to judge; they are not in `rows`.
        cut_off: share of the completions that reached the length limit.
        mean_tokens: mean length of a completion.
        rewards: mean of each reward, by its label, over the rows that it scored.
        unscored_rewards: rows that a reward did not score, by its label. Empty for several tasks.
        by_source, by_difficulty: the accuracy for each value of these columns.
        lenient: rows with the right answer in any form. None if the metric's file has no `match_leniently`, or the data
            no answers in text.
        formatted: rows in the required form: each reward whose name ends in `_format` is 1. None without such a reward.
        right_without_format: rows with the right answer that are not in the required form.
    """

    rows: int
    correct: int
    accuracy: float
    interval: Interval
    unscored: int = 0
    cut_off: float = 0.0
    mean_tokens: float = 0.0
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    unscored_rewards: Mapping[str, int] = field(default_factory=dict)
    by_source: Mapping[str, Part] = field(default_factory=dict)
    by_difficulty: Mapping[str, Part] = field(default_factory=dict)
    lenient: int | None = None
    formatted: int | None = None
    right_without_format: int | None = None

    @property
    def measured(self) -> int:
        """All rows, judged or not."""
        return self.rows + self.unscored

    @property
    def is_often_unscored(self) -> bool:
        """Whether the verifier failed on so many rows that the accuracy is not compared."""
        return self.unscored >= OFTEN_UNSCORED * max(self.measured, 1)

    @property
    def unscored_words(self) -> str:
        """`39 of 40 answers`: the answers that the verifier did not judge; "" if it judged all."""
        return f"{self.unscored:,} of {count(self.measured, 'answer')}" if self.unscored else ""


class Measured:
    """Results of the base model, of the trained one, or of both."""

    base: Score | None
    trained: Score | None
    difference: Difference | None

    @property
    def scores(self) -> dict[str, Score]:
        """The scores by model, base first."""
        return {name: score for name, score in (("base", self.base), ("trained", self.trained)) if score is not None}


@dataclass(frozen=True)
class TaskResults(Measured):
    """The results of one task of several."""

    metric: str = ""
    base: Score | None = None
    trained: Score | None = None
    difference: Difference | None = None


@dataclass(frozen=True)
class Average:
    """The means over several tasks, which count the same."""

    base: Estimate | None = None
    trained: Estimate | None = None
    difference: Gain | None = None


@dataclass(frozen=True)
class PassRate:
    """pass@k: its value, and the rows it is of."""

    value: float
    interval: Interval
    rows: int


@dataclass(frozen=True)
class PassGain(Gain):
    """The difference in pass@k, and the rows it is of."""

    rows: int


@dataclass(frozen=True)
class PassAtK:
    """pass@k by k as text."""

    samples: int
    decoding: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    base: Mapping[str, PassRate] = field(default_factory=dict)
    trained: Mapping[str, PassRate] = field(default_factory=dict)
    difference: Mapping[str, PassGain] = field(default_factory=dict)

    @property
    def rates(self) -> dict[str, Mapping[str, PassRate]]:
        """The rates by model, base first."""
        return {name: rates for name, rates in (("base", self.base), ("trained", self.trained)) if rates}


@dataclass(frozen=True)
class Evaluation(Measured):
    """The content of evaluation.json.

    Attributes:
        recipe to sampled: how the evaluation was made, from `rlvr.evaluation.evaluation_file.describe_evaluation`.
        tasks: the results of each task of a mixture, by its label; empty for one task.
        average: the means over the tasks of a mixture.
        warnings: reasons not to trust the figures.
    """

    recipe: str = ""
    model: str = ""
    task: Mapping[str, Any] = field(default_factory=dict)
    split: str = ""
    metric: str = ""
    verifier: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    decoding: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    rewards: Mapping[str, Sequence[str]] = field(default_factory=dict)
    environments: Sequence[Any] = ()
    reference: Reference | None = None
    rows_digest: str | None = None
    adapter: str | None = None
    engine: str | None = None
    sampled: Mapping[str, Any] = field(default_factory=dict)
    base: Score | None = None
    trained: Score | None = None
    difference: Difference | None = None
    tasks: Mapping[str, TaskResults] = field(default_factory=dict)
    average: Average | None = None
    pass_at_k: PassAtK | None = None
    warnings: Sequence[str] = ()

    @property
    def max_new_tokens(self) -> int | None:
        """The limit of a completion; None if unknown."""
        return self.settings.get("max_new_tokens")

    @property
    def overall(self) -> Average | Measured:
        """The accuracies and their difference: means over several tasks, or over all rows of one task."""
        return self.average or self

    def write(self, folder: Path) -> None:
        directory.write_json(folder / FILE, as_json(self))


def read_evaluation(folder: Path) -> Evaluation:
    """Read the evaluation.json of a folder; an empty evaluation if there is none.

    Raises:
        InputError: of kind "damaged-file".
    """
    path = folder / FILE
    if not path.is_file():
        return Evaluation()
    try:
        found: Evaluation = from_json(Evaluation, json.loads(path.read_text(encoding="utf-8")))
        return found
    except (OSError, ValueError, RecursionError) as error:
        message = f"{path.name} can't be read: {error}. Evaluate again."
        raise InputError(message, kind="damaged-file", path=path) from error


def from_json(kind: Any, value: Any) -> Any:
    """A value of JSON as a type.

    Raises:
        ValueError: it is of another type.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        # NaN, the mean of nothing, is not there.
        return None if value is None or value != value else from_json(arguments[0], value)
    if kind is Any:
        return value
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        hints = get_type_hints(kind)
        try:
            return kind(**{name: from_json(hint, value[name]) for name, hint in hints.items() if name in value})
        except TypeError as error:
            raise ValueError(str(error).partition("() ")[2]) from error
    if origin is collections.abc.Mapping and isinstance(value, Mapping):
        return {str(key): from_json(arguments[1], item) for key, item in value.items()}
    if origin is collections.abc.Sequence and isinstance(value, list):
        return tuple(from_json(arguments[0], item) for item in value)
    if kind is str and isinstance(value, str):
        return value
    if kind in (int, float) and is_number(value) and (kind is float or isinstance(value, int)):
        return value
    raise ValueError(f"{str(value)[:60]!r} is no {getattr(kind, '__name__', kind)}")


def as_json(value: Any) -> Any:
    """The content of a file."""
    if isinstance(value, Score):
        return asdict(value)
    if is_dataclass(value):
        values = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: as_json(each) for name, each in values.items() if each not in (None, "", {}, [], ())}
    return {key: as_json(each) for key, each in value.items()} if isinstance(value, Mapping) else value
