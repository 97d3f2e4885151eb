"""Reward the share of a problem's tests that the completion's program passes in the sandbox.

    tests: [{"input": "1 2\\n", "output": "3\\n"}]    # a column. Tests can also be calls or asserts: docs/verifiers.md

The program is the last complete code block of the model's own turn. If the tests name functions, a block that only uses
the functions may follow. The program sees neither the expected outputs nor anything else of the machine
(docs/verifiers.md). A completion without a program scores 0. A program that does not compile also scores 0.

Known weaknesses: few or weak tests. A program that prints the expected answer passes a problem with one test. If the
prompt shows tests, score with hidden tests: the column `tests`, not `public_tests`. A share also rewards wrong programs
for the easy cases. The option `all_or_nothing` does not.
"""

from __future__ import annotations

from typing import Any

from rlvr.verifiers.code.completion_judge import (
    WORKER_GROUP,
    JudgedRow,
    LogExtra,
    LogMetric,
    environment_info,
    judge_completions,
)
from rlvr.verifiers.code.options import JudgeOptions, with_judge_options
from rlvr.verifiers.code.problems import validate_rows

# Found in this file by their names (docs/rewards.md): the process that rewards share, and two optional functions.
__all__ = ["WORKER_GROUP", "code_execution", "environment_info", "validate_rows"]


@with_judge_options
def code_execution(
    prompts: list[Any],
    completions: list[Any],
    *,
    options: JudgeOptions,
    all_or_nothing: bool = False,
    log_metric: LogMetric | None = None,
    log_extra: LogExtra | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Run each program against the tests of its row.

    Args:
        completions: strings, or lists of chat messages.
        options: columns and options of `JudgeOptions`, each passed as a keyword argument.
        all_or_nothing: return 1 if all tests pass, and 0 otherwise. The tests after a failure are not run.
        log_metric: passed by the trainer. Logs code_execution/verdict_ac and so on (shares of all tests), /no_program,
            /compile_errors, /sandbox_errors and /checker_errors (shares of completions), /cpu_s (mean per test),
            /judge_s (per batch).
        log_extra: passed by the trainer. `scripts/score.py --why` and `scripts/chat.py` show the reasons.

    Returns:
        0 to 1 for each completion. None if there are no tests or the sandbox failed.

    Raises:
        InputError: a column or an option is invalid, or programs can't be confined on this machine.
    """
    rows = judge_completions(
        "code_execution",
        prompts,
        completions,
        options,
        stop_early=all_or_nothing,
        log_metric=log_metric,
        log_extra=log_extra,
    )
    return [_score(row, all_or_nothing) for row in rows]


def _score(row: JudgedRow, all_or_nothing: bool) -> float | None:
    if not row.can_be_scored:
        return None
    if row.judgement is None:  # no program
        return 0.0
    return float(row.passed_all) if all_or_nothing else row.judgement.score
