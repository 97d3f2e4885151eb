"""A run's metrics as the health checks read them, and what a check finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rlvr.formatting import is_number
from rlvr.health.trends import (
    MIN_LINES,
    SHORT_WINDOW,
    WINDOW,
    Average,
    MeanChange,
    MetricSeries,
    above_since,
    combine,
    compare_means,
    drop_from_best,
    metric_series,
)

LEVELS = ("alarm", "warning", "note")
EDGE = 0.05  # of a reward's range: within this distance of an end, the reward counts as being there
FIRST_GENERATIONS = 3
LOW_ENTROPY = 0.005  # nats a token: the model samples the same text again and again


@dataclass(frozen=True)
class Finding:
    """A problem that the metrics show.

    Attributes:
        level: "alarm" (the run wastes its time), "warning" (look at it soon) or "note" (worth knowing).
        kind: short stable slug, such as "entropy-collapsed".
        metric: the metric in metrics.jsonl that shows it.
        problem: what is wrong, with its figure; a clause without a full stop.
        fix: what to do, in sentences that name the recipe's keys.
        since_step: the first step that it counts from.
    """

    level: str
    kind: str
    metric: str
    problem: str
    fix: str
    since_step: int

    @property
    def page(self) -> str:
        """The section that explains the metric. All rewards share one."""
        anchor = re.sub(r"^rewards/.+/(?:mean|std|min|max)$", "rewards-name", self.metric).replace("/", "-")
        return f"docs/monitoring.md#{anchor}"

    def __str__(self) -> str:
        return f"{self.problem}. {self.fix} See {self.page}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


class RunMetrics:
    """The lines of metrics.jsonl, with what several checks compute from them. Each metric's series is made once.

    Args:
        started_at: the step that the latest start of the run began from. Levels are judged by the steps after it.
    """

    def __init__(self, lines: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], started_at: int = 0) -> None:
        self.lines, self.settings, self.started_at = lines, settings, started_at
        self._series: dict[str, MetricSeries] = {}

    def __getitem__(self, key: str) -> MetricSeries:
        if key not in self._series:
            self._series[key] = metric_series(self.lines, key)
        return self._series[key]

    def recent(self, key: str, average: Average = fmean) -> float:
        series = self[key]
        return average((series.since(self.started_at) or series).last(SHORT_WINDOW))

    def reward_names(self) -> list[str]:
        """The names of the single rewards in the latest lines."""
        return logged_rewards(self.lines[-WINDOW:])

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
        latest = self[f"rewards/{name}/mean" if name else "reward"].last(SHORT_WINDOW)
        if not latest:
            return None
        low, high = self.reward_range(name)
        return (fmean(latest) - low) / (high - low) if high > low else float(high > 0)

    def is_at_maximum(self, name: str = "") -> bool:
        """Whether nearly every completion gets the highest reward so far."""
        return (self.position(name) or 0.0) >= 1 - EDGE

    def reward_drop(self) -> MeanChange | None:
        """The reward's drop from its best window. It must exceed four errors: the best of many windows was lucky."""
        drop = drop_from_best(self["reward"], WINDOW)
        return drop if drop and -drop.size > 0.1 * self.range_width() and drop.is_significant(4.0) else None

    def relative_rise(self) -> float:
        """The reward's rise since the first lines, as a share of its range; 0 if it may be chance."""
        reward = self["reward"]
        size = min(SHORT_WINDOW, len(reward) // 2)
        rise = compare_means(reward.first(size), reward.last(size)) if size >= MIN_LINES else None
        return rise.size / self.range_width() if rise and rise.is_significant() and self.range_width() else 0.0

    def has_risen(self) -> bool:
        return self.relative_rise() > EDGE

    def constant_rewards(self) -> dict[str, float]:
        """The rewards with one value for all completions of the first generations, and for 99 % of the latest."""
        constant = {}
        for name in self.reward_names():
            mean, lowest, highest = (self[f"rewards/{name}/{part}"] for part in ("mean", "min", "max"))
            if min(len(mean), len(lowest), len(highest)) < FIRST_GENERATIONS:
                continue
            value, *others = {*lowest.first(FIRST_GENERATIONS), *highest.first(FIRST_GENERATIONS)}
            if not others and abs(fmean(mean.last(SHORT_WINDOW)) - value) <= 0.01 * self.range_width(name) + 1e-6:
                constant[name] = value
        return constant

    def main_rewards(self) -> set[str]:
        """The rewards with the largest weight, by their names in metrics; none without a recipe."""
        weights = reward_weights(self.settings)
        return {name for name, weight in weights.items() if weight == max(weights.values())}

    def is_repetitive(self) -> bool:
        """Whether a group's completions are almost the same: hardly any entropy, or nearly all are duplicates."""
        duplicates = "completions/duplicate_fraction"
        if self["entropy"] and self.recent("entropy") < LOW_ENTROPY:
            return True
        return bool(self[duplicates]) and self.recent(duplicates) >= 0.9 * self.max_duplicates()

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
        series = (self[metric] if isinstance(metric, str) else metric).since(self.started_at)
        steps = ((name, above_since(series, enter, leave, average)) for name, enter, leave in levels)
        return next(((name, since) for name, since in steps if since is not None), None)

    def level_findings(
        self,
        kind: str,
        metric: str,
        levels: Sequence[tuple[str, float, float]],
        problem: str,
        fix: str,
        *,
        series: MetricSeries | None = None,
        average: Average = fmean,
        show: Callable[[float], str] = percent,
    ) -> Iterator[Finding]:
        """Yield a finding if the metric is at one of the levels. `{}` in `problem` is its recent value.

        Args:
            series: judged in place of the metric itself.
        """
        if at_level := self.level(metric if series is None else series, levels, average):
            level, since = at_level
            yield Finding(level, kind, metric, problem.format(show(self.recent(metric, average))), fix, since)


def logged_rewards(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the rewards in lines of metrics.jsonl, in the order of their first line."""
    keys = dict.fromkeys(key for line in lines for key in line)
    return [match[1] for key in keys if (match := re.fullmatch(r"rewards/(.+)/mean", key))]


def short_name(reward: str) -> str:
    """The reward's name in metrics. A recipe may use a path, a dotted name or a function in a file."""
    return re.split(r"[/.:]", reward.removesuffix(".py"))[-1]


def reward_weights(recipe: Mapping[str, Any]) -> dict[str, float]:
    """The weight of every reward in a recipe, by the reward's name in metrics."""
    entries = recipe.get("rewards")
    known = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    weights = {short_name(str(entry.get("name"))): entry.get("weight", 1.0) for entry in known}
    return {name: float(weight) for name, weight in weights.items() if is_number(weight)}
