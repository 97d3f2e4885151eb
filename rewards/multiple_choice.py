"""Reward a turn that states the right choice, by its letter or its text: 1 or 0.

"The answer is (C).", "**C**", "Answer: C) Paris", "\\boxed{C}", "<answer>C</answer>" and "Paris" state C.
`rlvr.verifiers.choices` names all forms. Several letters, "A or B", and a letter within a word earn nothing.

Exploits: a guess is right in a quarter of the rows with four choices. Where one letter is right more often than others,
it is guessed: the task `multiple_choice` can shuffle the choices.
"""

from __future__ import annotations

from typing import Any

from rlvr import InputError, completion_text, own_turn
from rlvr.verifiers.choices import LETTERS, read_choice, reference_fault, reference_letter


def multiple_choice(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[str],
    choices: list[Any] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Compare the choice that the model's own turn states with the column `final_answer`.

    Args:
        completions: strings, or lists of chat messages.
        final_answer: the letter of the right choice, or its text.
        choices: an optional column: the texts of the choices A, B, … of each row. Without it, only letters are right.

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: the lists differ in length, or a row's reference is no choice (with the row).
    """
    for name, column in (("final_answer", final_answer), ("choices", choices)):
        if column is not None and len(column) != len(completions):
            message = (
                f"Reward multiple_choice: the column {name} has {len(column)} entries for {len(completions)} rows."
            )
            raise InputError(f"{message} Pass one each.", kind="length-mismatch", key=name)
    rewards: list[float | None] = []
    for row, completion in enumerate(completions):
        row_choices = None if choices is None else choices[row]
        if fault := _row_fault(final_answer[row], row_choices):
            message = f"Reward multiple_choice, row {row} of the batch: {fault}"
            raise InputError(message, kind="invalid-row", key="final_answer", row=row)
        rewards.append(_score(completion, final_answer[row], row_choices)[0])
    return rewards


def validate_rows(*, final_answer: list[str], choices: list[Any] | None = None, **kwargs: Any) -> list[str | None]:
    """Return for each row what is wrong with its reference or its choices, or None. Called once before training."""
    rows = [None] * len(final_answer) if choices is None else choices
    return [_row_fault(gold, row_choices) for gold, row_choices in zip(final_answer, rows, strict=True)]


def explain(completion: Any, *, final_answer: str, choices: list[str] | None = None, **kwargs: Any) -> list[str]:
    """Explain the reward of `multiple_choice`, one sentence a step; the last one is the reward.

    Args: as `multiple_choice`, for one row.
    """
    if fault := _row_fault(final_answer, choices):
        raise InputError(f"Reward multiple_choice: {fault}", kind="invalid-row", key="final_answer")
    reward, steps = _score(completion, final_answer, choices)
    return [*steps, f"Reward: {reward:g}"]


# ----------------------------------------------------------------------------------------------------------------------


def _score(completion: Any, gold: str, choices: list[str] | None) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    reading = read_choice(own_turn(completion_text(completion)), choices or ())
    right = reference_letter(gold, choices)
    return float(reading.letter == right), [reading.why, f"The right choice is {right}."]


def _row_fault(gold: Any, choices: Any) -> str | None:
    fault = reference_fault(gold, choices)
    return fault and (
        f"it has {fault}. Write choices as a list of 2 to {len(LETTERS)} different texts, and final_answer as a letter "
        "(A is the first) or one of these texts."
    )
