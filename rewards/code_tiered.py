"""Reward competitive programs as published for CodeFu-7B: -1, -0.5, 0, or the share of tests passed.

    no program                          -1
    it does not compile                 -0.5    (in Python: a syntax error)
    a test exceeds the time limit        0
    otherwise                           the share of the tests that pass, 0 to 1

The published code differs from the publication: every program that fails a test scores 0. The possible rewards of the
code are -1, -0.5, 0 and 1. Set `published: false` for these rewards.

Known weaknesses: see `code_execution`. Also, among programs that solve nothing, a program that compiles scores more
than a program that does not. In a group without a correct program, this difference is the whole signal, until every
program compiles. Watch the share of tests passed, not the mean of this reward.
"""

from __future__ import annotations

from typing import Any

from rlvr.verifiers.code.completion_judge import (
    WORKER_GROUP,
    JudgedRow,
    LogExtra,
    LogMetric,
    environment_info,
    judge_completions,
)
from rlvr.verifiers.code.options import JudgeOptions, with_judge_options
from rlvr.verifiers.code.problems import validate_rows

# Found in this file by their names (docs/rewards.md): the process that rewards share, and two optional functions.
__all__ = ["WORKER_GROUP", "code_tiered", "environment_info", "validate_rows"]

MAX_TIMEOUTS = 1  # one test over the time limit decides the reward


@with_judge_options
def code_tiered(
    prompts: list[Any],
    completions: list[Any],
    *,
    options: JudgeOptions,
    published: bool = True,
    log_metric: LogMetric | None = None,
    log_extra: LogExtra | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Run each program against the tests of its row, once for all code rewards of a recipe.

    Args:
        completions: strings, or lists of chat messages.
        options: columns and options of `JudgeOptions`, each passed as a keyword argument.
        published: True: a program that passes some tests scores their share. False: such a program scores 0, as in the
            published code.
        log_metric: passed by the trainer. Logs the metrics of `code_execution` under code_tiered/.

    Returns:
        -1 to 1 for each completion. None if there are no tests or the sandbox failed.

    Raises:
        InputError: a column or an option is invalid, or programs can't be confined on this machine.
    """
    rows = judge_completions(
        "code_tiered",
        prompts,
        completions,
        options,
        stop_early=not published,
        max_timeouts=MAX_TIMEOUTS,
        log_metric=log_metric,
        log_extra=log_extra,
    )
    return [_tier(row, published) for row in rows]


def _tier(row: JudgedRow, published: bool) -> float | None:
    if not row.can_be_scored:
        return None
    if row.judgement is None:
        return -1.0
    if "CE" in row.verdicts:
        return -0.5
    if "TLE" in row.verdicts:
        return 0.0
    return row.judgement.score if published else float(row.passed_all)
