"""Judge the programs in completions: what the rewards for programs have in common.

    rows = judge_completions("code_execution", prompts, completions, JudgeOptions(tests=tests, language="cpp"))
    rows[0].judgement.score

Rewards of one recipe (code_execution, code_tiered, code_quality) judge the same programs by the same tests. The latest
judgements are cached here, so each program runs once.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlvr.errors import InputError, error_context
from rlvr.formatting import count
from rlvr.sandbox.capabilities import detect_capabilities
from rlvr.verifiers.code.cases import digest, names_under_test
from rlvr.verifiers.code.code_extraction import answer_prefill, extract_program, with_prefix
from rlvr.verifiers.code.judge import judge_many
from rlvr.verifiers.code.options import JudgeOptions
from rlvr.verifiers.code.problems import read_problems
from rlvr.verifiers.code.types import AC, CE, SE, SKIP, VERDICTS, Judgement, Submission
from rlvr.verifiers.code.verdict import CHECKER_FAILS, Outcome, columns, final_outcomes, tests_to_run

_log = logging.getLogger(__name__)
LogMetric = Callable[[str, float], None]
LogExtra = Callable[[str, list[Any]], None]
WORKER_GROUP = "judgements"  # one worker calls all rewards of this group, so that they share the cache
ALARM_SHARE = 0.5  # share of completions with a sandbox failure from which the log message is an error


@dataclass(frozen=True)
class JudgedRow:
    """The result for one completion."""

    tests: int  # their number; 0: the row can't be scored
    program: str | None  # None if the completion has none
    why: str  # which block the program is, or why there is none
    judgement: Judgement | None = None  # None without a program or without tests
    time_s: float = 0.0  # time limit per test

    @property
    def can_be_scored(self) -> bool:
        """Whether there were tests and the sandbox did not fail."""
        return self.tests > 0 and not (self.judgement is not None and self.judgement.sandbox_failed)

    @property
    def verdicts(self) -> list[str]:
        """Verdicts of the tests, in order."""
        return self.judgement.verdicts if self.judgement is not None else []

    @property
    def passed_all(self) -> bool:
        """Whether the program passes every test."""
        return bool(self.verdicts) and all(verdict == AC for verdict in self.verdicts)


def judge_completions(
    reward: str,
    prompts: Sequence[Any],
    completions: Sequence[Any],
    options: JudgeOptions,
    *,
    stop_early: bool = False,
    max_timeouts: int | None = None,
    log_metric: LogMetric | None = None,
    log_extra: LogExtra | None = None,
) -> list[JudgedRow]:
    """Extract the programs of completions and judge each once.

    Args:
        reward: name of the calling reward, for messages and metrics.
        stop_early: whether a program's tests after its first failure are not run.
        max_timeouts: default of the option.

    Raises:
        InputError: a column or an option is invalid.
        SandboxUnavailable: programs can't be confined on this machine.
    """
    with error_context(f"Reward {reward}"):
        problems = read_problems(options, len(completions))
    rows: list[JudgedRow] = []
    submissions: dict[int, Submission] = {}
    for number, (prompt, completion, problem) in enumerate(zip(prompts, completions, problems, strict=True)):
        submission = problem.submission
        extraction = extract_program(
            completion,
            language=submission.language,
            names=names_under_test(submission.tests, submission.entry_point),
            bare=options.bare,
            prefill=answer_prefill(prompt, options.opened),
        )
        tests, time_s = len(submission.tests), submission.limits.time_s
        rows.append(JudgedRow(tests, extraction.program, extraction.why, time_s=time_s))
        if extraction.program is not None and tests:
            program = with_prefix(extraction.program, problem.prefix, submission.entry_point, submission.language)
            submissions[number] = replace(
                submission, program=program, stop_early=stop_early, max_timeouts=options.max_timeouts or max_timeouts
            )
    started = time.perf_counter()
    with error_context(f"Reward {reward}"):
        judgements = _judge_cached(submissions)
    seconds = time.perf_counter() - started
    rows = [replace(row, judgement=judgements.get(number)) for number, row in enumerate(rows)]
    _log_sandbox_failures(reward, rows)
    if log_metric is not None:
        for name, value in batch_metrics([row for row in rows if row.tests], seconds).items():
            log_metric(f"{reward}/{name}", value)
    if log_extra is not None:
        log_extra(f"{reward}/why", [describe(row) for row in rows])
    return rows


def batch_metrics(rows: Sequence[JudgedRow], seconds: float) -> dict[str, float]:
    """Return the metrics of the completions that had tests; judging them took so many seconds."""
    if not rows:
        return {}
    verdicts = Counter(verdict for row in rows for verdict in row.verdicts)
    metrics = {f"verdict_{verdict.lower()}": verdicts[verdict] / verdicts.total() for verdict in VERDICTS if verdicts}
    metrics["no_program"] = sum(row.program is None for row in rows) / len(rows)
    metrics["compile_errors"] = sum(CE in row.verdicts for row in rows) / len(rows)
    metrics["sandbox_errors"] = sum(SE in row.verdicts for row in rows) / len(rows)
    judgements = [row.judgement for row in rows if row.judgement is not None]
    failing = [any(reason.startswith(CHECKER_FAILS) for reason in judgement.reasons) for judgement in judgements]
    metrics["checker_errors"] = sum(failing) / len(rows)
    runs = [run for judgement in judgements for run in zip(judgement.verdicts, judgement.cpu_s, strict=True)]
    cpu_s = [used_s for verdict, used_s in runs if verdict not in (CE, SE, SKIP)]
    if cpu_s:
        metrics["cpu_s"] = sum(cpu_s) / len(cpu_s)
    metrics["judge_s"] = seconds
    return metrics


def describe(row: JudgedRow) -> str:
    """Describe how a program was found and judged, a line each. The text quotes expected outputs: it is for people."""
    lines = [f"{'The program is' if row.program is not None else 'No program:'} {row.why}."]
    if not row.tests:
        lines.append("The row has no tests.")
    if row.judgement is not None:
        verdicts = Counter(row.verdicts)
        listed = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
        lines.append(f"{count(row.tests, 'test')}, {row.time_s:g} s each: {listed}")
        lines += [line for line in row.judgement.feedback.splitlines()[1:] if line]
        if CE in verdicts:
            lines += row.judgement.compile_output.splitlines()[:5]
    return "\n".join(lines)


def environment_info(**kwargs: Any) -> dict[str, str]:
    """Return the sandbox's capabilities, for a run's metadata: a companion of every reward for programs."""
    return detect_capabilities().metadata()


MAX_CACHED = 4096
MAX_STDERR = 200  # characters per test, since thousands are kept
_cache: OrderedDict[bytes, Judgement] = OrderedDict()
_lock = threading.Lock()


def _judge_cached(submissions: Mapping[int, Submission]) -> dict[int, Judgement]:
    """Judge submissions, except those whose judgement is cached."""
    test_lists = {id(submission.tests): submission.tests for submission in submissions.values()}
    digests = {number: digest(tests) for number, tests in test_lists.items()}
    keys = {}
    for number, submission in submissions.items():
        parts = (replace(submission, tests=(), stop_early=False, max_timeouts=None), digests[id(submission.tests)])
        keys[number] = hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).digest()
    judgements: dict[int, Judgement] = {}
    with _lock:
        for number, key in keys.items():
            cached = _as_requested(_cache[key], submissions[number]) if key in _cache else None
            if cached is not None:
                judgements[number] = cached
                _cache.move_to_end(key)
    missing = [number for number in keys if number not in judgements]
    try:
        judged = judge_many([submissions[number] for number in missing])  # equal ones once
    except InputError as error:  # its row is an index of `missing`
        problems = [
            replace(problem, row=None if problem.row is None else missing[problem.row]) for problem in error.problems
        ]
        raise type(error)(str(error), problems=problems) from error
    with _lock:
        for number, judgement in zip(missing, judged, strict=True):
            stderr = [text.strip()[-MAX_STDERR:] for text in judgement.stderr]
            judgements[number] = replace(judgement, stderr=stderr)
            if not judgement.sandbox_failed:
                _cache[keys[number]] = judgements[number]
                _cache.move_to_end(keys[number])
        while len(_cache) > MAX_CACHED:
            _cache.popitem(last=False)
    return judgements


def _as_requested(judgement: Judgement, submission: Submission) -> Judgement | None:
    """Return a cached judgement as it would be with a submission's stops; None if it lacks tests for that."""
    stops: dict[str, Any] = {"stop_early": submission.stop_early, "max_timeouts": submission.max_timeouts}
    verdicts = judgement.verdicts
    if CE in verdicts:
        return judgement
    if SKIP in verdicts[: tests_to_run(verdicts, **stops)]:
        return None
    names = ("verdicts", "reasons", "cpu_s", "memory_mb", "stderr")
    outcomes = [Outcome(*row) for row in zip(*(getattr(judgement, name) for name in names), strict=True)]
    return replace(judgement, **columns(final_outcomes(outcomes, **stops)))


def _log_sandbox_failures(reward: str, rows: Sequence[JudgedRow]) -> None:
    """Log sandbox failures once per batch, as an error if most programs are affected."""
    failed = [row.judgement for row in rows if row.judgement is not None and row.judgement.sandbox_failed]
    if failed:
        reason = failed[0].reasons[failed[0].verdicts.index(SE)] or "no reason given"
        _log.log(
            logging.ERROR if len(failed) >= ALARM_SHARE * len(rows) else logging.WARNING,
            "Reward %s: the sandbox failed on %d of %d completions (%s). They get no reward and leave the update. See "
            '"What can\'t be scored" in docs/verifiers.md#programs.',
            reward,
            len(failed),
            len(rows),
            reason,
        )
