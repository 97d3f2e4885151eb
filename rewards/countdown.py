"""Reward an equation that reaches the target from the given numbers: 1 or 0.

The answer is one expression of the row's numbers, + - * / and brackets. The place is <answer> tags, or a line that
begins with `####`. The expression may end in "= TARGET". Its value is computed exactly, and never as code. Minus signs
before numbers, powers, decimals, joined digits, functions, names and a second equation score 0.

Known weaknesses: none known. Several different answers in one turn score 0, so trying many answers does not help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr import completion_text
from rlvr.verifiers.arithmetic import expression_fault
from rlvr.verifiers.completion_text import tagged_answer


def countdown(
    prompts: list[Any],
    completions: list[Any],
    *,
    numbers: list[list[int]],
    target: list[int],
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Compute the expression of each completion.

    Args:
        completions: strings, or lists of chat messages.
        numbers: the numbers of each row. An expression uses each number as often as the row lists it.
        target: the target of each row.

    Returns:
        1.0 or 0.0 for each completion. None if a row has no valid numbers or no valid target.
    """
    rewards: list[float | None] = []
    reasons: list[str] = []
    for completion, given, goal in zip(completions, numbers, target, strict=True):
        row_fault = _row_fault(given, goal)
        fault = row_fault or expression_fault(tagged_answer(completion_text(completion)), given, goal)
        rewards.append(None if row_fault else float(not fault))
        reasons.append(fault or f"The expression reaches {goal}.")
    if log_extra is not None:
        log_extra("countdown/why", reasons)
    return rewards


def validate_rows(*, numbers: list[Any], target: list[Any], **kwargs: Any) -> list[str | None]:
    """Return for each row why it can't be scored, or None. Called before training."""
    return [_row_fault(given, goal) for given, goal in zip(numbers, target, strict=True)]


def _row_fault(numbers: Any, target: Any) -> str | None:
    values = [*numbers, target] if isinstance(numbers, list | tuple) and numbers else [None]
    if all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values):
        return None
    return f"numbers {numbers!r:.80} and target {target!r:.40} are not whole numbers of 0 or more"
