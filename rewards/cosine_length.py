"""Scale the reward by length, as open-r1's cosine-scaled reward does: long answers gain less or lose less.

    reward = end + (start - end) / 2 * (1 + cos(pi * length / max_len))

The formula is CosFn of arXiv 2502.03373, appendix C.1, as in `trl.rewards.get_cosine_scaled_reward`. A correct answer
goes from `max_value_correct` at length 0 to `min_value_correct` at `max_len`. A wrong answer goes from
`min_value_wrong` to `max_value_wrong`. Beyond `max_len`, the reward stays constant. In open-r1 and TRL, the cosine
rises again. There, a correct answer of twice `max_len` scores as much as an answer of length 0.

The verifier of math_correctness decides whether an answer is correct.

Known weaknesses: padding. A wrong answer loses less the longer it is, as the paper intends. To avoid this, set
`min_value_wrong` equal to `max_value_wrong`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from rlvr import check_answers
from rlvr.verifiers.completion_text import text_lengths
from rlvr.verifiers.math import row_faults


def cosine_length(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[str],
    max_len: int = 1000,
    completion_ids: list[list[int]] | None = None,
    completion_ended: list[bool] | None = None,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    unit: Literal["tokens", "characters"] = "tokens",
    prose: bool = True,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Scale the verdict on each completion by its length.

    Args:
        completions: strings, or lists of chat messages. The whole text counts, thoughts included.
        final_answer: the reference answer of each row, as for math_correctness.
        max_len: the length from which the reward stays constant.
        completion_ids: the tokens of each completion, passed by the trainer.
        completion_ended: False for a completion that was cut off, as for math_correctness.
        min_value_wrong, max_value_wrong: reward of a wrong answer at length 0, and at `max_len`, in this order.
        min_value_correct, max_value_correct: reward of a correct answer at `max_len`, and at length 0, in this order.
        unit: unit of `max_len`. open-r1 counts characters. Without `completion_ids`, as in evaluation, four characters
            count as a token.
        prose: also accept "The answer is 18.", as math_correctness does.

    Returns:
        A reward for each completion. None if its reference answer is unreadable or None, or the workers failed.
    """
    verdicts = check_answers(completions, final_answer, prose=prose, ended=completion_ended)
    lengths = text_lengths(completions, completion_ids, unit)
    rewards: list[float | None] = []
    for verdict, length in zip(verdicts, lengths, strict=True):
        start, end = (max_value_correct, min_value_correct) if verdict.correct else (min_value_wrong, max_value_wrong)
        scaled = end + (start - end) / 2 * (1 + math.cos(math.pi * min(1.0, length / max_len)))
        rewards.append(None if verdict.correct is None else scaled)
    if log_extra is not None:
        reasons = [f"{length:,} {unit}; {verdict.why}" for verdict, length in zip(verdicts, lengths, strict=True)]
        log_extra("cosine_length/why", reasons)
    return rewards


def validate_rows(*, final_answer: list[str], **kwargs: Any) -> list[str | None]:
    """Return for each row why its reference answer cannot be verified, or None. Called before training."""
    return row_faults(final_answer)
