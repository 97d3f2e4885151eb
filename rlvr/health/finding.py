"""What the health of a run is told in: a finding, its level, and where the documentation explains it."""

from __future__ import annotations

import re
from dataclasses import dataclass

PAGE = "docs/metrics.md"
LEVELS = ("alarm", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """Something that the metrics show.

    Attributes:
        level: "alarm" (the run is wasting its time), "warning" (look at it soon) or "note" (worth knowing).
        metric: the name in metrics.jsonl that shows it.
        text: what is seen, with its figure.
        advice: what to do; names the recipe's keys.
        since_step: the step from which on it is so.
    """

    level: str
    metric: str
    text: str
    advice: str
    since_step: int

    @property
    def page(self) -> str:
        """Where the metric is explained."""
        return f"{PAGE}#{anchor(self.metric)}"


def anchor(metric: str) -> str:
    """The metric's anchor in the page; all rewards share theirs, whatever they are called."""
    return re.sub(r"^rewards/.+/(?:mean|std|min|max)$", "rewards-name", metric).replace("/", "-")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
