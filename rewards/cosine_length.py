"""Reward right answers less the longer they are, and penalize wrong ones less: open-r1's cosine-scaled reward.

    reward = end + (start - end) / 2 * (1 + cos(pi * length / max_len))

CosFn of arXiv 2502.03373, appendix C.1, as in `trl.rewards.get_cosine_scaled_reward`. A right answer goes from
`max_value_correct` at length 0 to `min_value_correct` at `max_len`, a wrong one from `min_value_wrong` to
`max_value_wrong`. From `max_len` on the reward stays as it is there; the cosine of open-r1 and TRL rises again, so a
right answer of twice `max_len` scores most.

Whether an answer is right is decided as by math_correctness. For another verifier set `assume_correct: true` and name
it as the reward's `gate`: the reward then depends on the length of right answers, and is 0 for wrong ones.

Exploit: padding. A wrong answer loses less the longer it is, which the paper intends (think on, if unsure). Without it:
set `min_value_wrong` to the value of `max_value_wrong`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from rlvr import InputError, check_answers
from rlvr.verifiers.completion_text import text_lengths
from rlvr.verifiers.math import row_faults


def cosine_length(
    prompts: list[Any],
    completions: list[Any],
    *,
    max_len: int = 1000,
    final_answer: list[str] | None = None,
    completion_ids: list[list[int]] | None = None,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    unit: Literal["tokens", "characters"] = "tokens",
    assume_correct: bool = False,
    prose: bool = True,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Scale the verdict on each completion by its length.

    Args:
        completions: strings, or lists of chat messages. The whole text counts, thoughts included.
        max_len: the length at which the second value is reached.
        final_answer: the gold of each row, as for math_correctness. Not needed with `assume_correct`.
        completion_ids: the tokens of each completion, passed by the trainer.
        min_value_wrong, max_value_wrong: of a wrong answer at length 0, and at `max_len`.
        min_value_correct, max_value_correct: of a right answer at `max_len`, and at length 0.
        unit: unit of `max_len`; open-r1 counts characters. Without `completion_ids`, as in evaluation, four characters
            count as a token.
        assume_correct: take every answer as right, because the reward's `gate` decides.
        prose: as for math_correctness.

    Returns:
        A reward for each completion; None if its gold is unreadable or None, or the workers failed.
    """
    verdicts: list[tuple[bool | None, str]] = [(True, "the gate decides")] * len(completions)
    if not assume_correct:
        if final_answer is None:
            message = "the column final_answer is missing. Add it, or set assume_correct and a gate."
            raise InputError(f"Reward cosine_length: {message}", kind="missing-column", key="final_answer")
        verdicts = [(one.correct, one.why) for one in check_answers(completions, final_answer, prose=prose)]
    lengths = text_lengths(completions, completion_ids, unit)
    rewards: list[float | None] = []
    for (correct, _), length in zip(verdicts, lengths, strict=True):
        start, end = (max_value_correct, min_value_correct) if correct else (min_value_wrong, max_value_wrong)
        scaled = end + (start - end) / 2 * (1 + math.cos(math.pi * min(1.0, length / max_len)))
        rewards.append(None if correct is None else scaled)
    if log_extra is not None:
        reasons = [f"{length:,} {unit}; {why}" for (_, why), length in zip(verdicts, lengths, strict=True)]
        log_extra("cosine_length/why", reasons)
    return rewards


def validate_rows(
    *, final_answer: list[str] | None = None, assume_correct: bool = False, **kwargs: Any
) -> list[str | None]:
    """Return for each row why its gold cannot be verified, or None. Called once before training."""
    return [] if assume_correct else row_faults(final_answer or [])
