"""Reward programs that compile, run without errors and print no warnings, with small bonuses.

    compiles    the program compiles (in Python: no syntax error)
    runs        no test ends in an error or exceeds a limit of time, memory or output
    quiet       and nothing is written to standard error: no warnings, no debugging output

Each option sets the value of its bonus. The reward is the sum of the bonuses, 0.3 by default.

By default, only programs that pass all tests get bonuses (`gated`). GRPO divides the rewards of a group by their
spread. In a group without a correct program, a bonus of 0.1 for compiling becomes a large advantage. The gradient then
favors empty programs that compile. For the same reason, filter groups by correctness and not by this reward. Among
correct programs, the reward prefers programs without warnings, as intended.

Known weaknesses: without the gate, the program `pass` gets every bonus. With the gate, see `code_execution`. Keep the
weight small, so that a quiet program that solves few cases never scores more than a correct program.
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
        compiles, runs, quiet: the value of this bonus. 0 disables the bonus.
        gated: give bonuses only to programs that pass all tests. Without this gate, empty programs get bonuses.
        log_metric: passed by the trainer. Logs code_quality/compiles and so on: the share of completions that have each
            bonus, before the gate.

    Returns:
        0 to the sum of the bonuses for each completion. None if there are no tests or the sandbox failed.

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
