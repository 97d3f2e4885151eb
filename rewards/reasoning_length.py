"""Penalize completions that are too long or too short: 0 within the limits, down to -1 outside.

The upper limit is DAPO's soft over-long punishment (arXiv 2503.14476, equation 13). L_max is `longest`, and L_cache is
`ramp`:

    0                                   up to longest - ramp
    (longest - ramp - length) / ramp    from there to longest
    -1                                  above

Below `shortest`, the reward is (length - shortest) / shortest.

`trl.rewards.get_soft_overlong_punishment` gives the same numbers for tokens. TRL's reward needs the trainer's
`completion_ids`, which an evaluation lacks, and has no lower limit.

Known weaknesses: padding satisfies a lower limit (use `repetition` and a small weight). Correct and wrong answers are
penalized equally. The key `gate` restricts the penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from rlvr import InputError
from rlvr.verifiers.completion_text import text_lengths


def reasoning_length(
    prompts: list[Any],
    completions: list[Any],
    *,
    completion_ids: list[list[int]] | None = None,
    longest: int | None = None,
    ramp: int = 0,
    shortest: int = 0,
    unit: Literal["tokens", "characters"] = "tokens",
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Return 0 within the limits, and down to -1 outside.

    Args:
        completions: strings, or lists of chat messages. The whole text counts, an invented next problem included.
        completion_ids: the tokens of each completion, passed by the trainer.
        longest: the upper limit. A longer completion gets -1. Default: no limit.
        ramp: the number of units below `longest` over which the penalty grows.
        shortest: the length below which there is a penalty. 0 means no lower limit.
        unit: unit of these numbers. Without `completion_ids`, as in evaluation, four characters count as a token.

    Returns:
        From 0 down to -1 for each completion.

    Raises:
        InputError: the options penalize every length, or no length.
    """
    free = math.inf if longest is None else longest - ramp
    if free < shortest or (longest is None and not shortest):
        raise InputError(
            "Reward reasoning_length: every length is penalized, or none. Set longest, shortest or both, with "
            "longest - ramp at least at shortest.",
            kind="invalid-value",
            key="longest",
        )
    lengths = text_lengths(completions, completion_ids, unit)
    if log_extra is not None:
        log_extra("reasoning_length/why", [f"Counted {length:,} {unit}." for length in lengths])
    return [_penalty(length, free, ramp, shortest) for length in lengths]


def _penalty(length: int, free: float, ramp: int, shortest: int) -> float:
    if length < shortest:
        return (length - shortest) / shortest
    if length <= free:
        return 0.0
    return (free - length) / ramp if length <= free + ramp else -1.0
