"""Share of a problem's tests that the program in a completion passes, run in the sandbox.

    tests: [{"input": "1 2\n", "output": "3\n"}]      # a column of the data; or calls, or asserts: docs/code-rewards.md

The program is the last complete code block of the model's own turn. It sees neither the expected outputs nor anything
else of the machine (docs/sandbox.md). A completion without a program earns 0, and so does one that does not compile.

Known weakness: few or weak tests. A program that prints the one expected answer passes a problem with one test. If the
prompt shows tests, judge by others (`tests`, not `public_tests`). A share also pays wrong programs for the easy cases;
`all_or_nothing` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlvr.verifiers.code.completion_judge import (
    WORKER_GROUP,
    JudgedRow,
    environment_info,
    explain_row,
    judge_completions,
    validate_rows,
)
from rlvr.verifiers.code.options import JudgeOptions, with_judge_options

__all__ = ["WORKER_GROUP", "code_execution", "environment_info", "explain", "validate_rows"]


@with_judge_options
def code_execution(
    prompts: list[Any],
    completions: list[Any],
    *,
    options: JudgeOptions,
    all_or_nothing: bool = False,
    stop_early: bool = False,
    log_metric: Callable[[str, float], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Run each program against the tests of its row.

    Args:
        completions: strings, or lists of chat messages.
        options: columns and options of `JudgeOptions`, each passed as a keyword argument.
        all_or_nothing: whether to pay 1 for passing all tests and 0 otherwise. Implies `stop_early`.
        stop_early: whether a program's tests after its first failure are not run. Its share ends there.
        log_metric: given by GRPOTrainer. Logs code_execution/verdict_ac and so on (shares of all tests), /no_program,
            /compile_errors, /sandbox_errors and /checker_errors (shares of completions), /cpu_s (mean per test),
            /judge_s (per batch).

    Returns:
        0 to 1 per completion; None if there are no tests or the sandbox failed.

    Raises:
        InputError: a column or an option is invalid, or programs can't be confined on this machine.
    """
    rows = judge_completions(
        "code_execution", prompts, completions, options, stop_early=stop_early or all_or_nothing, log_metric=log_metric
    )
    return [_reward(row, all_or_nothing) for row in rows]


@with_judge_options
def explain(
    completion: Any,
    *,
    options: JudgeOptions,
    prompt: Any = None,
    all_or_nothing: bool = False,
    stop_early: bool = False,
    **kwargs: Any,
) -> list[str]:
    """Describe the steps that lead to the reward of one completion; the last line is the reward.

    Args: as `code_execution`, for one row. The lines quote expected outputs: they are for people.
    """
    row, steps = explain_row("code_execution", completion, prompt, options, stop_early=stop_early or all_or_nothing)
    reward = _reward(row, all_or_nothing)
    return [*steps, "Reward: none" if reward is None else f"Reward: {reward:g}"]


def _reward(row: JudgedRow, all_or_nothing: bool) -> float | None:
    if not row.can_be_scored:
        return None
    if row.judgement is None:
        return 0.0
    return float(row.passed_all) if all_or_nothing else row.judgement.score
