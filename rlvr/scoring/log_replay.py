"""What reward functions have logged where they were called, logged where the trainer is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from rlvr.scoring.failures import RewardResult
from rlvr.scoring.reward import LogExtra, Reward

_log = logging.getLogger(__name__)


def replay(
    reward: Reward,
    finding: RewardResult,
    completions: list[Any],
    columns: Mapping[str, Any],
    log_extra: LogExtra | None,
    log_metric: Callable[[str, float], None] | None,
    logged: set[str],
) -> None:
    """Logs the columns that a reward asks for, and what its function has logged, if no other has under that name."""
    if log_extra is not None:
        log_extra = reward.log_columns(completions, columns, log_extra)
    for what, name, value in finding.notes:
        if what == "metric" and log_metric is not None:
            log_metric(name, value)
        elif what == "extra" and log_extra is not None and name not in logged:
            if len(value) == len(completions):
                logged.add(name)
                log_extra(name, value)
            else:
                _log.warning(
                    "The reward %s logged %d values for %d completions under %s, which the table of completions can't "
                    "hold.", reward.name, len(value), len(completions), name,
                )  # fmt: skip
