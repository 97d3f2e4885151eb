"""Small bonuses for programs next to correctness: they compile, run without errors, print no warnings.

    compiles    it compiles (in Python: no syntax error)
    runs        no test ends in an error or beyond a limit of time, memory or output
    quiet       and nothing is written to standard error: no warnings, no debugging output

Each is an option with the value of its bonus. The reward is their sum, 0.3 by default.

By default only programs that pass all tests get them (`gated`). GRPO divides the rewards of a group by their spread. In
a group without a right program, 0.1 for compiling becomes an advantage as large as that of a right program among wrong
ones: the gradient pulls towards empty programs that compile. Policies trained like this have collapsed within 40 steps.
For the same reason, filter groups by correctness and not by this reward. Among right programs the effect is intended:
it prefers the tidy ones.

Known weakness: without the gate, `pass` gets everything. With it, as `code_execution`. Keep the weight small, so that a
quiet program that solves few cases is never worth more than a right one.
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
    validate_rows,
)
from rlvr.verifiers.code.options import JudgeOptions, with_judge_options

__all__ = ["WORKER_GROUP", "code_quality", "environment_info", "validate_rows"]

MAX_TIMEOUTS = 1  # one test over the time limit decides every bonus
_FAILURES = {"RE", "TLE", "MLE", "OLE"}


@with_judge_options
def code_quality(
    prompts: list[Any],
    completions: list[Any],
    *,
    options: JudgeOptions,
    compiles: float = 0.1,
    runs: float = 0.1,
    quiet: float = 0.1,
    gated: bool = True,
    log_metric: LogMetric | None = None,
    log_extra: LogExtra | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Run each program against the tests of its row, once for all code rewards of a recipe.

    Args:
        completions: strings, or lists of chat messages.
        options: columns and options of `JudgeOptions`, each passed as a keyword argument.
        compiles, runs, quiet: the value of each bonus; 0 disables it.
        gated: whether only programs that pass all tests get bonuses. Leave it on; see above.
        log_metric: given by GRPOTrainer. Logs code_quality/compiles and so on: the share of completions that have each
            bonus, gate or not.

    Returns:
        0 to the sum of the bonuses per completion; None if there are no tests or the sandbox failed.

    Raises:
        InputError: a column or an option is invalid, or programs can't be confined on this machine.
    """
    values = {"compiles": compiles, "runs": runs, "quiet": quiet}
    rows = judge_completions(
        "code_quality", prompts, completions, options, max_timeouts=MAX_TIMEOUTS, log_extra=log_extra
    )
    bonuses = [_bonuses(row) for row in rows]
    scored = [names for row, names in zip(rows, bonuses, strict=True) if row.can_be_scored]
    if log_metric is not None and scored:
        for name in values:
            log_metric(f"code_quality/{name}", sum(name in names for names in scored) / len(scored))
    return [
        None if not row.can_be_scored else 0.0 if gated and not row.passed_all else sum(values[name] for name in names)
        for row, names in zip(rows, bonuses, strict=True)
    ]


def _bonuses(row: JudgedRow) -> list[str]:
    """Return the bonuses that a program has. `runs` needs `compiles`, and `quiet` needs `runs`."""
    if row.judgement is None or "CE" in row.verdicts:
        return []
    names = ["compiles"]
    if _FAILURES.isdisjoint(row.verdicts):
        names.append("runs")
        if not any(text.strip() for text in row.judgement.stderr):
            names.append("quiet")
    return names
