"""A run as the checks of its health see it: its metrics as tracks, the range of its rewards, what the recipe says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from rlvr.formatting import is_number
from rlvr.health.trends import Change, Track, change, fall, held_since, joined, track

LEAST = 5  # lines below which a level says nothing
NEAR = 0.05  # of the range of rewards: this close to its end counts as being there
SURE = 0.005  # nats a token: a model that samples the same again and again
Average = Callable[[Sequence[float]], float]


class RunMetrics:
    """The lines, with what several checks ask of them; a metric's track is made once."""

    def __init__(self, lines: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], window: int) -> None:
        self.lines, self.settings, self.window = lines, settings, window
        self.short = max(LEAST, window // 2)
        self._tracks: dict[str, Track] = {}

    def __getitem__(self, key: str) -> Track:
        if key not in self._tracks:
            self._tracks[key] = track(self.lines, key)
        return self._tracks[key]

    def now(self, key: str, average: Average = fmean) -> float:
        return average(self[key].last(self.short))

    def names(self) -> list[str]:
        """The names of the single rewards that were logged lately."""
        keys = dict.fromkeys(key for line in self.lines[-self.window :] for key in line)
        return [match[1] for key in keys if (match := re.fullmatch(r"rewards/(.+)/mean", key))]

    def ends(self, name: str = "") -> tuple[float, float]:
        """The lowest and the highest value of a reward (of the total, without a name) that any completion got so far.

        Where those are not logged, an estimate from mean and deviation.
        """
        keys = ["reward", "reward_std", "reward/min", "reward/max"]
        if name:
            keys = [f"rewards/{name}/{part}" for part in ("mean", "std", "min", "max")]
        mean, deviation, lowest, highest = (self[key] for key in keys)
        if not lowest or not highest:
            # The mean of the squares over the mean: of rewards that aren't negative never more than the highest, and
            # exactly that where all the others are 0.
            highest = joined([mean, deviation], lambda at, by: max(at, at + by * by / at) if at > 0 else at)
            return min([0.0, *mean.values]), max([0.0, *highest.values])
        return min(lowest.values), max(highest.values)

    def span(self, name: str = "") -> float:
        low, high = self.ends(name)
        return high - low

    def place(self, name: str = "") -> float | None:
        """Where a reward lies in its range: 0 for the lowest, 1 for the highest that was ever seen; None if unknown.

        One that never differed is at its highest if it is positive, else at its lowest.
        """
        latest = self[f"rewards/{name}/mean" if name else "reward"].last(self.short)
        if not latest:
            return None
        low, high = self.ends(name)
        return (fmean(latest) - low) / (high - low) if high > low else float(high > 0)

    def is_at_top(self, name: str = "") -> bool:
        """Whether nearly every completion gets the highest reward that was ever seen."""
        return (self.place(name) or 0.0) >= 1 - NEAR

    def has_fallen(self) -> Change | None:
        """The reward's fall from its best window, if it is one. Four errors, for the best of many windows was lucky."""
        fell = fall(self["reward"], self.window)
        return fell if fell and -fell.size > 0.1 * self.span() and fell.is_real(4.0) else None

    def since_start(self) -> float:
        """By how much of its range the reward is higher now than at the very beginning; 0 where that may be chance."""
        reward = self["reward"]
        size = min(self.short, len(reward) // 2)
        moved = change(reward.first(size), reward.last(size)) if size >= LEAST else None
        return moved.size / self.span() if moved and moved.is_real() and self.span() else 0.0

    def has_risen(self) -> bool:
        return self.since_start() > NEAR

    def unearned(self) -> list[str]:
        """The rewards that have been 0 for every completion over a whole window and before it."""
        return [
            name
            for name in self.names()
            if len(self[f"rewards/{name}/mean"]) >= self.window
            and not any(self[f"rewards/{name}/mean"].values)
            and not any(self.ends(name))
        ]

    def heaviest(self) -> set[str]:
        """The rewards with the largest weight, by the names that metrics carry; none where the recipe is not known."""
        entries = self.settings.get("rewards")
        weights = {
            re.split(r"[/.:]", str(entry.get("name")).removesuffix(".py"))[-1]: entry.get("weight", 1.0)
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, Mapping)
        }
        known = {name: weight for name, weight in weights.items() if is_number(weight)}
        return {name for name, weight in known.items() if weight == max(known.values())}

    def is_repetitive(self) -> bool:
        """Whether a group's completions are almost the same: hardly any entropy, or nearly all repeated."""
        unsure, repeats = self["entropy"], self["completions/duplicate_fraction"]
        return bool(unsure and self.now("entropy") < SURE) or bool(
            repeats and self.now("completions/duplicate_fraction") >= 0.9 * self.most_repeats()
        )

    def most_repeats(self) -> float:
        """The largest share of completions that can repeat another one of their group: seven of eight equal ones."""
        generations = self.settings.get("num_generations")
        return 1 - 1 / generations if isinstance(generations, int) and generations > 1 else 0.875

    def setting(self, key: str) -> str:
        """`key (its value)`, or the key alone where the recipe is not known."""
        return f"{key} ({self.settings[key]})" if self.settings.get(key) is not None else key

    def held(
        self, key: str | Track, levels: Sequence[tuple[str, float, float]], average: Average = fmean
    ) -> tuple[str, int] | None:
        """The first of the levels (its name, from where on, until where) that the metric is at, and since when."""
        series = self[key] if isinstance(key, str) else key
        for level, enter, leave in levels:
            since = held_since(series, enter, leave, window=self.short, least=LEAST, average=average)
            if since is not None:
                return level, since
        return None
