"""What a noisy series of figures says: a level that is really reached, a change that is more than chance.

A metric of a run jumps from line to line, because every step has other prompts. So nothing here looks at one value: a
level is the mean of some lines and has two thresholds, one to enter a state and a laxer one to leave it, and a change
must be several times its own standard error. Pure arithmetic on lists; no numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rlvr.formatting import is_number


@dataclass(frozen=True)
class Track:
    """The finite values of one metric and their steps, oldest first; lines without the metric are not in it."""

    steps: Sequence[int] = ()
    values: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def last(self, count: int) -> Sequence[float]:
        return self.values[-count:]

    def first(self, count: int) -> Sequence[float]:
        return self.values[:count]

    def since(self, step: int) -> Sequence[float]:
        return [value for at, value in zip(self.steps, self.values, strict=True) if at > step]

    def until(self, step: int) -> Sequence[float]:
        return [value for at, value in zip(self.steps, self.values, strict=True) if at <= step]


@dataclass(frozen=True)
class Change:
    """From one stretch of lines to another: the means, their difference, and what chance alone does to it."""

    before: float
    after: float
    standard_error: float
    since_step: int = 0

    @property
    def size(self) -> float:
        return self.after - self.before

    def is_real(self, errors: float = 3.0) -> bool:
        """Whether the difference is that many times its standard error."""
        return abs(self.size) > errors * self.standard_error


def track(lines: Iterable[Mapping[str, Any]], key: str) -> Track:
    """The metric's values, without those whose square is not finite: they measure nothing."""
    found = [
        (line["step"], float(value))
        for line in lines
        if is_number(value := line.get(key)) and abs(value) < 1e100 and isinstance(line.get("step"), int)
    ]
    return Track([step for step, _ in found], [value for _, value in found])


def joined(tracks: Sequence[Track], combine: Callable[..., float]) -> Track:
    """One value for every step at which all of the tracks have one and the combination is finite."""
    by_step = [dict(zip(each.steps, each.values, strict=True)) for each in tracks]
    steps = [step for step in by_step[0] if all(step in each for each in by_step)]
    values = [combine(*(each[step] for each in by_step)) for step in steps]
    return track(({"step": step, "joined": value} for step, value in zip(steps, values, strict=True)), "joined")


def held_since(
    series: Track,
    enter: float,
    leave: float,
    *,
    window: int,
    least: int,
    average: Callable[[Sequence[float]], float] = fmean,
) -> int | None:
    """The step since which the series counts as above a level, or None if it does not.

    It counts from the line at which the average of the last `window` lines (at least `least` of them) reached `enter`,
    until that average falls below `leave`. So a level that hovers around `enter` does not come and go.
    """
    entered = None
    for end in range(len(series), least - 1, -1):
        now = average(series.values[max(0, end - window) : end])
        if now < leave:
            break
        if now >= enter:
            entered = series.steps[end - 1]
    return entered


def change(before: Sequence[float], after: Sequence[float], since_step: int = 0) -> Change:
    """How two stretches of lines differ."""
    error = math.sqrt(sum(noise(part) ** 2 / len(part) for part in (before, after)))
    return Change(fmean(before), fmean(after), error, since_step)


def noise(values: Sequence[float]) -> float:
    """The standard deviation of a single value around a series' own slope.

    From how far each value is off the mean of its two neighbours, so that a trend is not taken for noise: for
    independent values with deviation s, first - 2 * second + third has the deviation sqrt(6) * s.
    """
    off = [first - 2 * second + third for first, second, third in zip(values, values[1:], values[2:], strict=False)]
    return math.sqrt(fmean(value * value for value in off) / 6) if off else 0.0


def fall(series: Track, window: int, history: int = 25) -> Change | None:
    """From the best earlier window to the latest one; None where there are not two whole windows yet.

    Windows are taken backwards from the end without overlap, and only the last `history` of them.
    """
    ends = range(len(series) - window, window - 1, -window)[:history]
    parts = [(series.values[end - window : end], series.steps[end - 1]) for end in ends]
    if not parts:
        return None
    best, step = max(parts, key=lambda part: fmean(part[0]))
    return change(best, series.last(window), step)
