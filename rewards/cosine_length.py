"""Pay right answers less the longer they are, and charge wrong ones less: open-r1's cosine-scaled reward.

    reward = end + (start - end) / 2 * (1 + cos(pi * length / max_len))

CosFn of arXiv 2502.03373, appendix C.1, as in open-r1's `get_cosine_scaled_reward`. A right answer goes from
`max_value_correct` at length 0 to `min_value_correct` at `max_len`, a wrong one from `min_value_wrong` to
`max_value_wrong`. From `max_len` on the reward stays as it is there; the cosine of open-r1 and TRL rises again, so a
right answer of twice `max_len` earns the most. The paper's penalty for cut-off completions is left to reasoning_length.

Whether an answer is right is decided as by math_correctness. For another verifier set `assume_correct: true` and name
it as the reward's `gate`: it then pays right answers by their length, and 0 for wrong ones.

Exploit: padding. A wrong answer loses less the longer it is, which the paper intends (think on, if unsure). Without it:
set `min_value_wrong` to the value of `max_value_wrong`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from rlvr import InputError, check_answers, explain_answer
from rlvr.verifiers.completion_text import full_text, prompt_opens_think
from rlvr.verifiers.math import gold_faults

CHARACTERS_PER_TOKEN = 4  # an estimate for callers without token ids, as in reasoning_length


def cosine_length(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[str] | None = None,
    completion_ids: list[list[int]] | None = None,
    max_len: int | None = None,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    unit: Literal["tokens", "characters"] = "tokens",
    assume_correct: bool = False,
    prose: bool = True,
    **kwargs: Any,
) -> list[float | None]:
    """Scale the verdict on each completion by its length.

    Args:
        completions: strings, or lists of chat messages. The whole text counts, thoughts included.
        final_answer: the gold of each row, as for math_correctness.
        completion_ids: the tokens of each completion, passed by the trainer.
        max_len: required: the length at which the second value is reached.
        min_value_wrong, max_value_wrong: of a wrong answer at length 0, and at `max_len`.
        min_value_correct, max_value_correct: of a right answer at `max_len`, and at length 0.
        unit: unit of `max_len`; open-r1 counts characters. Without `completion_ids`, as in evaluation, four characters
            count as a token.
        assume_correct: take every answer as right, because the reward's `gate` decides.
        prose: as for math_correctness.

    Returns:
        A reward for each completion; None if its gold is unreadable or None, or the workers failed.

    Raises:
        InputError: an option is invalid, the column final_answer is missing, or the lists differ in length.
    """
    values = (min_value_wrong, max_value_wrong, min_value_correct, max_value_correct)
    top = _check(max_len, values, unit)
    for name, column in (("completion_ids", completion_ids), ("final_answer", final_answer)):
        if column is not None and len(column) != len(completions):
            message = f"Reward cosine_length: {len(column)} {name} for {len(completions)} completions. Pass one each."
            raise InputError(message, kind="length-mismatch", key=name)
    verdicts: list[bool | None] = [True] * len(completions)
    if not assume_correct:
        if final_answer is None:
            raise InputError(
                "Reward cosine_length: the column final_answer is missing. Add it, or set assume_correct and a gate.",
                kind="missing-column",
                key="final_answer",
            )
        verdicts = [verdict.correct for verdict in check_answers(completions, final_answer, prose=prose)]
    rewards: list[float | None] = []
    for row, (verdict, completion) in enumerate(zip(verdicts, completions, strict=True)):
        length = _length(prompts[row], completion, completion_ids[row] if completion_ids else None, unit)
        rewards.append(None if verdict is None else _scale(verdict, length, top, values))
    return rewards


def validate_rows(
    *, final_answer: list[str] | None = None, assume_correct: bool = False, **kwargs: Any
) -> list[str | None]:
    """Return for each row why its gold cannot be verified, or None. Called once before training."""
    faults = gold_faults(final_answer or [])
    return [
        None if fault is None or assume_correct else f"its final_answer '{gold}' can't be verified: {fault}"
        for gold, fault in zip(final_answer or [], faults, strict=True)
    ]


def explain(
    completion: Any,
    *,
    final_answer: str | None = None,
    prompt: Any = None,
    completion_ids: list[int] | None = None,
    max_len: int | None = None,
    unit: Literal["tokens", "characters"] = "tokens",
    assume_correct: bool = False,
    prose: bool = True,
    **options: Any,
) -> list[str]:
    """Explain the reward of one completion, one sentence a step; the last one is the reward."""
    (reward,) = cosine_length(
        [prompt],
        [completion],
        final_answer=None if final_answer is None else [final_answer],
        completion_ids=None if completion_ids is None else [completion_ids],
        max_len=max_len,
        unit=unit,
        assume_correct=assume_correct,
        prose=prose,
        **options,
    )
    steps = ["It is taken as right: the gate decides."]
    if not assume_correct:
        steps = explain_answer(completion, str(final_answer), prose=prose)
    length = _length(prompt, completion, completion_ids, unit)
    steps.append(f"Counted {length:,} {unit}, and max_len is {max_len:,}.")
    return [*steps, "Reward: none" if reward is None else f"Reward: {reward:g}"]


def _length(prompt: Any, completion: Any, tokens: list[int] | None, unit: str) -> int:
    if unit == "tokens" and tokens is not None:
        return len(tokens)
    characters = len(full_text(completion, think_opened=prompt_opens_think(prompt)))
    return characters if unit == "characters" else math.ceil(characters / CHARACTERS_PER_TOKEN)


def _scale(correct: bool, length: int, max_len: int, values: tuple[float, float, float, float]) -> float:
    start, end = (values[3], values[2]) if correct else (values[0], values[1])
    return end + 0.5 * (start - end) * (1.0 + math.cos(math.pi * min(1.0, length / max_len)))


def _check(max_len: int | None, values: tuple[float, ...], unit: str) -> int:
    """Check the options, and return `max_len`."""
    if isinstance(max_len, bool) or not isinstance(max_len, int) or max_len < 1:
        raise _option_error("max_len", f"{max_len!r} is not a whole number of 1 or more.")
    names = ("min_value_wrong", "max_value_wrong", "min_value_correct", "max_value_correct")
    for name, value in zip(names, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise _option_error(name, f"{value!r} is not a number.")
    if unit not in ("tokens", "characters"):
        raise _option_error("unit", f"{unit!r} is neither tokens nor characters.")
    return max_len


def _option_error(option: str, problem: str) -> InputError:
    return InputError(f"Reward cosine_length, option {option}: {problem}", kind="invalid-value", key=option)
