"""Reward a turn that states the correct choice, by its letter or its text: 1 or 0.

"The answer is (C).", "**C**", "Answer: C) Paris", "\\boxed{C}", "<answer>C</answer>" and "Paris" state C.
`rlvr.verifiers.choices` lists all forms. Several letters, "A or B", and a letter within a word score 0.

Known weaknesses: with four choices, a guess is correct in a quarter of the rows. If one letter is correct more often,
the policy guesses this letter. The task `multiple_choice` can shuffle the choices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr import completion_text, own_turn
from rlvr.verifiers.choices import LETTERS, read_choice, reference_fault, reference_letter


def multiple_choice(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[str],
    choices: list[Any] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Compare the choice that the model's own turn states with the column `final_answer`.

    Args:
        completions: strings, or lists of chat messages.
        final_answer: the letter of the correct choice, or its text.
        choices: an optional column: the texts of the choices A, B, … of each row. Without it, only letters count.

    Returns:
        1.0 or 0.0 for each completion. None if the row's reference is not one of the choices.
    """
    rewards: list[float | None] = []
    reasons: list[str] = []
    for completion, gold, texts in zip(completions, final_answer, choices or [None] * len(completions), strict=True):
        if fault := _row_fault(gold, texts):
            rewards.append(None)
            reasons.append(fault)
            continue
        reading, right = read_choice(own_turn(completion_text(completion)), texts or ()), reference_letter(gold, texts)
        rewards.append(float(reading.letter == right))
        reasons.append(f"{reading.why} The right choice is {right}.")
    if log_extra is not None:
        log_extra("multiple_choice/why", reasons)
    return rewards


def validate_rows(*, final_answer: list[str], choices: list[Any] | None = None, **kwargs: Any) -> list[str | None]:
    """Return for each row what is wrong with its reference or its choices, or None. Called before training."""
    rows = zip(final_answer, choices or [None] * len(final_answer), strict=True)
    return [_row_fault(gold, texts) for gold, texts in rows]


def _row_fault(gold: Any, choices: Any) -> str | None:
    fault = reference_fault(gold, choices)
    return fault and (
        f"it has {fault}. Write choices as a list of 2 to {len(LETTERS)} different texts, and final_answer as a letter "
        "(A is the first) or one of these texts."
    )
