"""A run's metrics as the health checks read them: series, the range of each reward, the recipe's settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from rlvr.formatting import is_number
from rlvr.health.trends import (
    MeanChange,
    MetricSeries,
    above_since,
    combine,
    compare_means,
    drop_from_best,
    metric_series,
)

MIN_LINES = 5  # a level needs at least so many
EDGE = 0.05  # of a reward's range: within this distance of an end, the reward counts as being there
LOW_ENTROPY = 0.005  # nats a token: the model samples the same text again and again
Average = Callable[[Sequence[float]], float]


class RunMetrics:
    """The lines of metrics.jsonl, with what several checks compute from them. Each metric's series is made once."""

    def __init__(self, lines: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], window: int) -> None:
        self.lines, self.settings, self.window = lines, settings, window
        self.short_window = max(MIN_LINES, window // 2)
        self._series: dict[str, MetricSeries] = {}

    def __getitem__(self, key: str) -> MetricSeries:
        if key not in self._series:
            self._series[key] = metric_series(self.lines, key)
        return self._series[key]

    def recent(self, key: str, average: Average = fmean) -> float:
        return average(self[key].last(self.short_window))

    def reward_names(self) -> list[str]:
        """The names of the single rewards in the latest lines."""
        keys = dict.fromkeys(key for line in self.lines[-self.window :] for key in line)
        return [match[1] for key in keys if (match := re.fullmatch(r"rewards/(.+)/mean", key))]

    def reward_range(self, name: str = "") -> tuple[float, float]:
        """The lowest and the highest value of a reward (without a name: of the total) that any completion got so far.

        Without these metrics, an estimate from mean and deviation.
        """
        keys = ["reward", "reward_std", "reward/min", "reward/max"]
        if name:
            keys = [f"rewards/{name}/{part}" for part in ("mean", "std", "min", "max")]
        mean, deviation, lowest, highest = (self[key] for key in keys)
        if not lowest or not highest:
            # The mean of the squares over the mean: for rewards that aren't negative never more than the highest, and
            # exactly the highest if all others are 0.
            highest = combine([mean, deviation], lambda at, by: max(at, at + by * by / at) if at > 0 else at)
            return min([0.0, *mean.values]), max([0.0, *highest.values])
        return min(lowest.values), max(highest.values)

    def range_width(self, name: str = "") -> float:
        low, high = self.reward_range(name)
        return high - low

    def position(self, name: str = "") -> float | None:
        """Where a reward lies in its range: 0 for the lowest value so far, 1 for the highest; None if unknown.

        A reward that never differed is at its highest if it is positive, else at its lowest.
        """
        latest = self[f"rewards/{name}/mean" if name else "reward"].last(self.short_window)
        if not latest:
            return None
        low, high = self.reward_range(name)
        return (fmean(latest) - low) / (high - low) if high > low else float(high > 0)

    def is_at_maximum(self, name: str = "") -> bool:
        """Whether nearly every completion gets the highest reward so far."""
        return (self.position(name) or 0.0) >= 1 - EDGE

    def reward_drop(self) -> MeanChange | None:
        """The reward's drop from its best window. It must exceed four errors: the best of many windows was lucky."""
        drop = drop_from_best(self["reward"], self.window)
        return drop if drop and -drop.size > 0.1 * self.range_width() and drop.is_significant(4.0) else None

    def relative_rise(self) -> float:
        """The reward's rise since the first lines, as a share of its range; 0 if it may be chance."""
        reward = self["reward"]
        size = min(self.short_window, len(reward) // 2)
        rise = compare_means(reward.first(size), reward.last(size)) if size >= MIN_LINES else None
        return rise.size / self.range_width() if rise and rise.is_significant() and self.range_width() else 0.0

    def has_risen(self) -> bool:
        return self.relative_rise() > EDGE

    def never_earned(self) -> list[str]:
        """The rewards that were 0 for every completion, over at least one window."""
        return [
            name
            for name in self.reward_names()
            if len(self[f"rewards/{name}/mean"]) >= self.window
            and not any(self[f"rewards/{name}/mean"].values)
            and not any(self.reward_range(name))
        ]

    def main_rewards(self) -> set[str]:
        """The rewards with the largest weight, by their names in metrics; none without a recipe."""
        entries = self.settings.get("rewards")
        weights = {
            re.split(r"[/.:]", str(entry.get("name")).removesuffix(".py"))[-1]: entry.get("weight", 1.0)
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, Mapping)
        }
        known = {name: weight for name, weight in weights.items() if is_number(weight)}
        return {name for name, weight in known.items() if weight == max(known.values())}

    def is_repetitive(self) -> bool:
        """Whether a group's completions are almost the same: hardly any entropy, or nearly all are duplicates."""
        duplicates = "completions/duplicate_fraction"
        return bool(self["entropy"] and self.recent("entropy") < LOW_ENTROPY) or bool(
            self[duplicates] and self.recent(duplicates) >= 0.9 * self.max_duplicates()
        )

    def max_duplicates(self) -> float:
        """The largest possible share of duplicates: seven of eight equal completions repeat the first."""
        generations = self.settings.get("num_generations")
        return 1 - 1 / generations if isinstance(generations, int) and generations > 1 else 0.875

    def key(self, name: str) -> str:
        """`name (value)` of a recipe key, or the name alone without a recipe."""
        return f"{name} ({self.settings[name]})" if self.settings.get(name) is not None else name

    def level(
        self, metric: str | MetricSeries, levels: Sequence[tuple[str, float, float]], average: Average = fmean
    ) -> tuple[str, int] | None:
        """The first of the levels (name, enter, leave) that the metric is at, and the step since which it is."""
        series = self[metric] if isinstance(metric, str) else metric
        for name, enter, leave in levels:
            since = above_since(series, enter, leave, window=self.short_window, min_lines=MIN_LINES, average=average)
            if since is not None:
                return name, since
        return None
