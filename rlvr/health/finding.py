"""A finding about a run's metrics: its level, its sentence and the section of the documentation that explains it."""

from __future__ import annotations

import re
from dataclasses import dataclass

PAGE = "docs/metrics.md"
LEVELS = ("alarm", "warning", "note")


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
        """The section that explains the metric."""
        return f"{PAGE}#{anchor(self.metric)}"


def anchor(metric: str) -> str:
    """The metric's anchor in the page. All rewards share one."""
    return re.sub(r"^rewards/.+/(?:mean|std|min|max)$", "rewards-name", metric).replace("/", "-")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
