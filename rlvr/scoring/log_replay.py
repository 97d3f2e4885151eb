"""Log in the trainer what reward functions logged in other processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from rlvr.scoring.results import CallResult
from rlvr.scoring.reward import LogExtra, Reward

_log = logging.getLogger(__name__)


def replay(
    reward: Reward,
    result: CallResult,
    completions: list[Any],
    columns: Mapping[str, Any],
    log_extra: LogExtra | None,
    log_metric: Callable[[str, float], None] | None,
    logged: set[str],
) -> None:
    """Log the columns that a reward asks for, and the notes of its function. The first column of a name wins.

    Args:
        logged: names of columns that are logged already; updated.
    """
    if log_extra is not None:
        log_extra = reward.log_columns(completions, columns, log_extra)
    for what, name, value in result.notes:
        if what == "metric" and log_metric is not None:
            log_metric(name, value)
        elif what == "extra" and log_extra is not None and name not in logged:
            if len(value) == len(completions):
                logged.add(name)
                log_extra(name, value)
            else:
                _log.warning(
                    "The reward %s logged %d values for %d completions under %s. The table of completions leaves them "
                    "out.", reward.name, len(value), len(completions), name,
                )  # fmt: skip
