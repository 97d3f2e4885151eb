"""Reward a correct final answer: 1 or 0. Numbers are compared exactly, expressions by algebra.

docs/verifiers.md#math-answers lists which answers count as correct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr import check_answers
from rlvr.verifiers.math import DEADLINE_S, row_faults
from rlvr.verifiers.math.lenient_match import match_leniently as match_leniently  # evaluation finds it here


def math_correctness(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[str],
    completion_ended: list[bool] | None = None,
    prose: bool = True,
    tolerance: float | None = None,
    deadline_s: float = DEADLINE_S,
    budget_s: float | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Compare the final answer with the column `final_answer`. Thoughts and invented next problems don't count.

    Args:
        completions: strings, or lists of chat messages.
        final_answer: the reference answer of each row: a number, LaTeX, or a word or two.
        completion_ended: passed by training and evaluation. The last sentence of a completion that was cut off does not
            count.
        prose: also accept "The answer is 18.". False requires `#### 18`, a box or an <answer> tag.
        tolerance: relative tolerance. 0.01 also accepts numbers within 1 % of the reference. None compares exactly.
        deadline_s: limit of algebra on one answer, in seconds. An answer that exceeds the limit is wrong.
        budget_s: limit of all algebra of a batch, in seconds. Rows beyond the limit get None. See `check_answers`.
        log_metric: passed by the trainer. Logs math_correctness/timed_out, the share of completions that exceeded the
            deadline, and math_correctness/unscored, the share of None.
        log_extra: passed by the trainer. `scripts/score.py --why` and `scripts/chat.py` show the reasons.

    Returns:
        1.0 or 0.0 for each completion. None if the reference answer is unreadable or not text, if `budget_s` ran out,
        or if a worker failed.
    """
    verdicts = check_answers(
        completions,
        final_answer,
        prose=prose,
        tolerance=tolerance,
        ended=completion_ended,
        deadline_s=deadline_s,
        budget_s=budget_s,
    )
    if log_metric is not None and verdicts:
        log_metric("math_correctness/timed_out", sum(verdict.timed_out for verdict in verdicts) / len(verdicts))
        log_metric("math_correctness/unscored", sum(verdict.correct is None for verdict in verdicts) / len(verdicts))
    if log_extra is not None:
        log_extra("math_correctness/why", [verdict.why for verdict in verdicts])
    return [None if verdict.correct is None else float(verdict.correct) for verdict in verdicts]


def validate_rows(*, final_answer: list[str], **kwargs: Any) -> list[str | None]:
    """Return for each row why its reference answer cannot be verified, or None. Called before training."""
    return row_faults(final_answer)
