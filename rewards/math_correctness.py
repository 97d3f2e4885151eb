"""1 where the completion's final answer is the right number, else 0."""

from __future__ import annotations

from typing import Any

from rlvr.answers import check_answer


def math_correctness(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[str],
    prose: bool = True,
    **kwargs: Any,
) -> list[float | None]:
    """Compares the first final answer of the model's own turn with the column `final_answer`, exactly.

    Args:
        completions: strings, or lists of chat messages.
        final_answer: the gold of each row.
        prose: whether "The answer is 18." counts. False asks for `#### 18`, a box or an <answer> tag.

    Returns:
        1.0 or 0.0 for each completion; None where the gold itself is not a number that can be read.
    """
    rewards: list[float | None] = []
    for completion, gold in zip(completions, final_answer, strict=True):
        correct = check_answer(completion, gold, prose=prose).correct
        rewards.append(None if correct is None else float(correct))
    return rewards
