"""Tiered reward for competitive programs, as published for CodeFu-7B: -1, -0.5, 0, or the share of tests passed.

    no code block                       -1
    it does not compile                 -0.5    (in Python: a syntax error)
    a test exceeds the time limit        0
    otherwise                           the share of the private tests passed, 0 to 1

The published code differs from the publication: it pays 0 for anything short of all tests, so its rewards are -1, -0.5,
0 and 1. Set `published: false` for that.

Known weakness: as `code_execution`. Also, among programs that solve nothing, one that compiles earns more than one that
does not. In a group without a right program that difference is the whole signal, until every program compiles. Watch
the share of tests passed, not the mean of this reward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr.verifiers.code.completion_judge import (
    WORKER_GROUP,
    JudgedRow,
    environment_info,
    explain_row,
    judge_completions,
    validate_rows,
)
from rlvr.verifiers.code.options import JudgeOptions, with_judge_options

__all__ = ["WORKER_GROUP", "code_tiered", "environment_info", "explain", "validate_rows"]

MAX_TIMEOUTS = 1  # one test over the time limit decides the reward


@with_judge_options
def code_tiered(
    prompts: list[Any],
    completions: list[Any],
    *,
    options: JudgeOptions,
    published: bool = True,
    log_metric: Callable[[str, float], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Run each program against the tests of its row, once for all code rewards of a recipe.

    Args:
        completions: strings, or lists of chat messages.
        options: columns and options of `JudgeOptions`, each passed as a keyword argument.
        published: whether a program that passes some tests earns their share, as published, or 0, as the published
            code has it.
        log_metric: given by GRPOTrainer. Logs the metrics of `code_execution` under code_tiered/.

    Returns:
        -1 to 1 per completion; None if there are no tests or the sandbox failed.

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
    )
    return [_tier(row, published)[0] for row in rows]


@with_judge_options
def explain(
    completion: Any, *, options: JudgeOptions, prompt: Any = None, published: bool = True, **kwargs: Any
) -> list[str]:
    """Describe the steps that lead to the reward of one completion; the last line is the reward.

    Args: as `code_tiered`, for one row. The lines quote expected outputs: they are for people.
    """
    row, steps = explain_row(
        "code_tiered", completion, prompt, options, stop_early=not published, max_timeouts=MAX_TIMEOUTS
    )
    reward, why = _tier(row, published)
    return [*steps, f"Tier: {why}.", "Reward: none" if reward is None else f"Reward: {reward:g}"]


def _tier(row: JudgedRow, published: bool) -> tuple[float | None, str]:
    if not row.can_be_scored:
        return None, "none, through no fault of the program"
    if row.judgement is None:
        return -1.0, "no code"
    if "CE" in row.verdicts:
        return -0.5, "it does not compile"
    if "TLE" in row.verdicts:
        return 0.0, "over the time limit"
    if not published:
        return float(row.passed_all), "all tests or nothing"
    return row.judgement.score, "the share of the tests passed"
