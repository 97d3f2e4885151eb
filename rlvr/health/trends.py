"""Detect levels and changes in noisy metrics.

A metric jumps from line to line, because every step has other prompts. So no function here judges a single value. A
level is the mean of several lines, with one threshold to enter it and a lower one to leave it. A change must be several
times its own standard error. Pure arithmetic on lists, without numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from statistics import fmean
from typing import Any

from rlvr.formatting import is_number, number

WINDOW = 20  # lines that a trend is judged on
SHORT_WINDOW = 10  # lines that a level is judged on
MIN_LINES = 5  # a level needs at least so many
Average = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class MetricSeries:
    """The finite values of one metric and their steps, oldest first. Lines without the metric are left out."""

    steps: Sequence[int] = ()
    values: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.values)

    def last(self, count: int) -> Sequence[float]:
        return self.values[-count:]

    def first(self, count: int) -> Sequence[float]:
        return self.values[:count]

    def since(self, step: int) -> MetricSeries:
        """The values after a step."""
        kept = [at > step for at in self.steps]
        return MetricSeries(list(compress(self.steps, kept)), list(compress(self.values, kept)))

    def after(self, step: int) -> Sequence[float]:
        return self.since(step).values

    def until(self, step: int) -> Sequence[float]:
        return [value for at, value in zip(self.steps, self.values, strict=True) if at <= step]


@dataclass(frozen=True)
class MeanChange:
    """The difference between the means of two stretches of lines, with its standard error."""

    before: float
    after: float
    standard_error: float
    since_step: int = 0

    @property
    def size(self) -> float:
        return self.after - self.before

    def __str__(self) -> str:
        return f"{number(self.before)} → {number(self.after)}"

    def is_significant(self, errors: float = 3.0) -> bool:
        """Whether the difference exceeds that many standard errors."""
        return abs(self.size) > errors * self.standard_error


def metric_series(lines: Iterable[Mapping[str, Any]], key: str) -> MetricSeries:
    """Select a metric's values, without those whose square is not finite."""
    pairs = [
        (line["step"], float(value))
        for line in lines
        if is_number(value := line.get(key)) and abs(value) < 1e100 and isinstance(line.get("step"), int)
    ]
    return MetricSeries([step for step, _ in pairs], [value for _, value in pairs])


def combine(series: Sequence[MetricSeries], operation: Callable[..., float]) -> MetricSeries:
    """Apply an operation at every step at which all series have a value and the result is finite."""
    by_step = [dict(zip(each.steps, each.values, strict=True)) for each in series]
    steps = [step for step in by_step[0] if all(step in each for each in by_step)]
    values = [operation(*(each[step] for each in by_step)) for step in steps]
    return metric_series(({"step": step, "result": value} for step, value in zip(steps, values, strict=True)), "result")


def above_since(series: MetricSeries, enter: float, leave: float, average: Average = fmean) -> int | None:
    """The step since which the series is above a level, or None if it is not.

    A level is entered when the average of the last SHORT_WINDOW lines (at least MIN_LINES) reaches `enter`, and left
    when that average falls below `leave`. So a metric that hovers around `enter` does not alternate.
    """
    entered = None
    for end in range(len(series), MIN_LINES - 1, -1):
        recent = average(series.values[max(0, end - SHORT_WINDOW) : end])
        if recent < leave:
            break
        if recent >= enter:
            entered = series.steps[end - 1]
    return entered


def compare_means(before: Sequence[float], after: Sequence[float], since_step: int = 0) -> MeanChange:
    error = math.sqrt(sum(noise(part) ** 2 / len(part) for part in (before, after)))
    return MeanChange(fmean(before), fmean(after), error, since_step)


def noise(values: Sequence[float]) -> float:
    """The standard deviation of a single value around the trend of its series.

    It uses the distance of each value from the mean of its two neighbours, so that a trend does not count as noise: for
    independent values with deviation s, first - 2 * second + third has the deviation sqrt(6) * s.
    """
    neighbours = zip(values, values[1:], values[2:], strict=False)
    squares = [(first - 2 * second + third) ** 2 for first, second, third in neighbours]
    return math.sqrt(fmean(squares) / 6) if squares else 0.0


def drop_from_best(series: MetricSeries, window: int, history: int = 25) -> MeanChange | None:
    """Compare the latest window with the best earlier one; None without two whole windows.

    Windows are taken backwards from the end without overlap, and only the last `history` of them.
    """
    ends = range(len(series) - window, window - 1, -window)[:history]
    windows = [(series.values[end - window : end], series.steps[end - 1]) for end in ends]
    if not windows:
        return None
    best, step = max(windows, key=lambda window: fmean(window[0]))
    return compare_means(best, series.last(window), step)
