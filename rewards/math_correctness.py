"""1 where the completion's final answer is the right one, else 0: numbers exactly, expressions by algebra.

docs/math-rewards.md says what counts as right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr.errors import InputError
from rlvr.verifiers.math import DEADLINE_S, check_answers, explain_answer, gold_faults


def math_correctness(
    prompts: list[Any],
    completions: list[Any],
    *,
    final_answer: list[str],
    prose: bool = True,
    tolerance: float | None = None,
    deadline_s: float = DEADLINE_S,
    budget_s: float | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Compares the first final answer of the model's own turn with the column `final_answer`.

    Args:
        completions: strings, or lists of chat messages.
        final_answer: the gold of each row: a number, LaTeX, or a word or two.
        prose: whether "The answer is 18." counts. False asks for `#### 18`, a box or an <answer> tag.
        tolerance: relative: 0.01 also accepts numbers that differ from the gold by 1 %. None compares exactly.
        deadline_s: seconds after which algebra on one answer is given up, and the answer wrong.
        budget_s: seconds for all algebra of a batch; rows that are not reached get None. See `check_answers`.
        log_metric: given by GRPOTrainer. Logged are math_correctness/timed_out, the share of completions that are wrong
            because they ran into the deadline, and math_correctness/unscored, the share that got None.

    Returns:
        1.0 or 0.0 for each completion; None where the gold can't be read (or is None), or the workers failed.

    Raises:
        InputError: the lists differ in length, a gold is no text, or an option is out of its range.
    """
    if len(final_answer) != len(completions):
        raise InputError(
            f"Reward math_correctness: {len(completions)} completions, but {len(final_answer)} entries in the column "
            "final_answer. Give one for each completion."
        )
    for row, gold in enumerate(final_answer):
        if gold is not None and not isinstance(gold, str):
            raise InputError(
                f"Reward math_correctness, column final_answer, row {row}: {gold!r} is {type(gold).__name__}, but "
                "should be text. Write str(…) where the data is read."
            )
    try:
        verdicts = check_answers(
            completions, final_answer, prose=prose, tolerance=tolerance, deadline_s=deadline_s, budget_s=budget_s
        )
    except ValueError as error:
        raise InputError(f"Reward math_correctness: {error}.") from error
    if log_metric is not None and verdicts:
        log_metric("math_correctness/timed_out", sum(verdict.timed_out for verdict in verdicts) / len(verdicts))
        log_metric("math_correctness/unscored", sum(verdict.correct is None for verdict in verdicts) / len(verdicts))
    return [None if verdict.correct is None else float(verdict.correct) for verdict in verdicts]


def validate_rows(*, final_answer: list[str], **kwargs: Any) -> list[str | None]:
    """For each row of the data, why its gold can't be verified against, or None. Called once, before training."""
    faults = gold_faults(final_answer)
    return [
        None if fault is None else f"no completion can be verified against its final_answer '{gold}': {fault}"
        for gold, fault in zip(final_answer, faults, strict=True)
    ]


def explain(
    completion: Any, *, final_answer: str, prose: bool = True, tolerance: float | None = None, **kwargs: Any
) -> list[str]:
    """How the verdict on one completion comes about, a sentence a step."""
    return explain_answer(completion, final_answer, prose=prose, tolerance=tolerance)
