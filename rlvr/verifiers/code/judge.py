"""Judge programs: check submissions, run their tests on all processors, return judgements.

Threads and processes (scheduler.py) start at the first call and end with the process. A forked process starts its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from rlvr.errors import InputError, error_context
from rlvr.sandbox.capabilities import WEAK, detect_capabilities
from rlvr.sandbox.languages import Language, compiler_path, find_language
from rlvr.sandbox.limits import Limits, SandboxUnavailable
from rlvr.sandbox.zygote_client import ZygoteError
from rlvr.verifiers.code.cases import Test, check_checker, digest, read_tests
from rlvr.verifiers.code.executor import Executor, Program
from rlvr.verifiers.code.options import is_count
from rlvr.verifiers.code.scheduler import JudgeJob, JudgeTask, get_scheduler
from rlvr.verifiers.code.tolerance import check_comparison
from rlvr.verifiers.code.types import AC, CE, MAX_SOURCE_BYTES, SE, Judgement, Submission
from rlvr.verifiers.code.verdict import Outcome, columns, final_outcomes, tests_to_run

_MIN_TESTS_FOR_BYTECODE = 4  # from here on, compiling a Python program once for all tests is faster
_MAX_TESTS_PER_TASK = 16


def judge(
    program: str,
    *,
    language: str,
    tests: Sequence[Mapping[str, Any]],
    limits: Limits | None = None,
    entry_point: str | None = None,
    signature: str | None = None,
    checker: str | None = None,
    comparison: str = "lines",
    tolerance: float = 1e-6,
    stop_early: bool = False,
    max_timeouts: int | None = None,
    allow_weak_sandbox: bool = False,
) -> Judgement:
    """Run a program against tests, confined, and return its judgement.

    Args:
        program: source code.
        language: "python", "cpp", or another name in rlvr/sandbox/languages.py.
        tests: each is {"input": str, "output": str} (standard input and output), {"call": [arguments], "expected":
            value} (calls `entry_point`), or {"assert": "code"} (Python statements that test the program). A test may
            have its own "comparison" and "tolerance".
        limits: of each test, and of the compiler.
        entry_point: the function that tests call, also "Class.method".
        signature: of that function in a compiled language: "int add(int, int)".
        checker: Python source of `check(input, output, expected)`, used instead of a comparison. It returns True (or a
            number from 1 on) for a right output.
        comparison: of outputs: "lines", "tokens", "exact", "float", "unordered" or "yes_no". Of the values of calls:
            "float" and "unordered"; anything else compares exactly.
        tolerance: of "float", absolute or relative.
        stop_early: whether tests after the first failure are not run (SKIP).
        max_timeouts: so many tests may exceed the time limit; those after them are not run (SKIP). None: all are run.
        allow_weak_sandbox: whether to run programs where they can't be confined. They can then do whatever you can.

    Raises:
        InputError: an argument is wrong, or the language's compiler is missing.
        SandboxUnavailable: programs can't be confined on this machine.
    """
    return judge_many([dict(locals())])[0]


def judge_many(submissions: Sequence[Submission | Mapping[str, Any]]) -> list[Judgement]:
    """Judge a batch on all processors; each submission has the arguments of `judge`.

    Judgements are in the order of the submissions. A program that occurs several times with the same tests is judged
    once.

    Raises:
        InputError: an argument is wrong. `row` is the submission's index; nothing was judged.
        SandboxUnavailable: programs can't be confined on this machine.
    """
    checked = read_submissions(submissions)
    if not checked:
        return []
    check_confinement(checked)
    tests_by_key: dict[Any, list[Test]] = {}
    digests: dict[int, str] = {}  # by id, since submissions share test lists
    runs: dict[Any, _SubmissionRun] = {}
    keys = []
    for index, submission in enumerate(checked):
        if id(submission.tests) not in digests:
            digests[id(submission.tests)] = digest(submission.tests)
        language = find_language(submission.language)
        tests_key = (
            language.name,
            submission.entry_point,
            submission.signature,
            submission.comparison,
            submission.tolerance,
            submission.checker is None,
            digests[id(submission.tests)],
        )
        if tests_key not in tests_by_key:
            with _location(index, len(checked)):
                tests_by_key[tests_key] = read_tests(submission, language)
        key = (replace(submission, tests=(), allow_weak_sandbox=False), tests_key)
        keys.append(key)
        if key not in runs:
            runs[key] = _SubmissionRun(submission, language, tests_by_key[tests_key])
    scheduler = get_scheduler()
    tests = sum(len(run.tests) for run in runs.values())
    tests_per_task = max(1, min(_MAX_TESTS_PER_TASK, tests // (4 * scheduler.size)))
    scheduler.run([task for run in runs.values() for task in run.tasks(tests_per_task)], tests)
    judgements = {key: run.judgement() for key, run in runs.items()}
    return [judgements[key] for key in keys]


def check_confinement(submissions: Sequence[Submission]) -> None:
    """Raise SandboxUnavailable if programs can't be confined on this machine and a submission does not allow that."""
    capabilities = detect_capabilities()
    if capabilities.level == WEAK and not all(submission.allow_weak_sandbox for submission in submissions):
        raise SandboxUnavailable(
            f"Programs can't be confined here ({capabilities.describe()}), so none is run. Use Linux with seccomp on "
            "x86-64 or aarch64, or accept that programs can do whatever you can, with allow_weak_sandbox: true "
            "(docs/verifiers.md#sandbox)."
        )


def read_submissions(submissions: Sequence[Submission | Mapping[str, Any]]) -> list[Submission]:
    """Check the arguments of submissions, all but their tests.

    Raises:
        InputError: an argument is wrong, or a compiler is missing. `row` is the submission's index.
    """
    checked = []
    for index, submission in enumerate(submissions):
        with _location(index, len(submissions)):
            checked.append(_read_submission(submission))
    return checked


def _location(index: int, count: int) -> AbstractContextManager[None]:
    return error_context(f"Submission {index + 1} of {count}" if count > 1 else "The submission", row=index)


def _read_submission(submission: Submission | Mapping[str, Any]) -> Submission:
    if not isinstance(submission, Submission):
        fields = {name: value for name, value in submission.items() if value is not None}
        try:
            submission = Submission(**{"limits": Limits(), **fields})
        except TypeError as error:
            raise InputError(f"{error}.", kind="invalid-submission") from error
    for name, expected, valid in (("program", "text", (str, bytes)), ("limits", "a Limits", Limits)):
        value = getattr(submission, name)
        if not isinstance(value, valid):
            raise InputError(f"{name} is {type(value).__name__}. Use {expected}.", kind="wrong-type", key=name)
    language = find_language(submission.language)
    if language.compiled:
        compiler_path(language)
    check_comparison(submission.comparison, submission.tolerance)
    stop = submission.max_timeouts
    if stop is not None and not is_count(stop):
        message = f"max_timeouts is {stop!r}. Use a number of tests from 1 on."
        raise InputError(message, kind="invalid-limit", key="max_timeouts")
    if submission.checker is not None:
        check_checker(submission.checker)
    return submission


class _SubmissionRun:
    """A submission in work: the tests to run and their outcomes so far."""

    def __init__(self, submission: Submission, language: Language, tests: list[Test]) -> None:
        self.submission = submission
        self.tests = tests
        self.program = Program(submission, language)
        self.outcomes: list[Outcome | None] = [None] * len(tests)
        self.compile_output = ""
        self.compile_s = 0.0
        self.last_test = len(tests)  # index of the last test to run, from what is known

    def tasks(self, tests_per_task: int) -> list[JudgeTask]:
        """Return the first task, if any; tasks add the next ones."""
        if len(self.program.source) > MAX_SOURCE_BYTES:
            self._set_all(CE, f"the program is larger than {MAX_SOURCE_BYTES >> 20} MB")
            return []
        if not self.tests:
            return []
        first = functools.partial(self._run_tests, 0, tests_per_task)
        return [functools.partial(self._compile, first) if self.program.language.compiled else first]

    def _compile(self, first: JudgeTask, executor: Executor, job: JudgeJob) -> None:
        try:
            compiled = executor.compile(self.program)
        except ZygoteError as error:
            self.compile_output = f"The compiler could not work: {error}."
            self._set_all(SE, str(error))
            return
        self.program.compiled = compiled.program
        self.compile_output, self.compile_s = compiled.output, compiled.cpu_s
        if compiled.program is not None:
            job.add(first)
        else:
            lines = compiled.output.splitlines() or [""]
            self._set_all(CE, next((line for line in lines if "error" in line), lines[0])[:300])

    def _run_tests(self, start: int, count: int, executor: Executor, job: JudgeJob) -> None:
        program = self.program
        if start + count < len(self.tests) and start <= self.last_test:
            # Behind the waiting tasks of other submissions, so that a stop after this one's failures saves most.
            job.add(functools.partial(self._run_tests, start + count, count))
        if len(self.tests) >= _MIN_TESTS_FOR_BYTECODE and program.bytecode is None and not program.language.compiled:
            program.bytecode = executor.make_bytecode(program)
        for index in range(start, min(start + count, len(self.tests))):
            if job.cancelled or self.last_test < index:
                return
            outcome = executor.run_test(program, self.tests[index])
            self.outcomes[index] = outcome
            if outcome.verdict == CE:
                self._set_all(CE, outcome.reason)
                self.compile_output = outcome.stderr[-2000:].strip()
                return
            if outcome.verdict != AC:
                verdicts = [known.verdict if known else None for known in self.outcomes]
                self.last_test = tests_to_run(verdicts, **self._stops) - 1

    @property
    def _stops(self) -> dict[str, Any]:
        return {"stop_early": self.submission.stop_early, "max_timeouts": self.submission.max_timeouts}

    def _set_all(self, verdict: str, reason: str) -> None:
        self.outcomes = [Outcome(verdict, reason)] * len(self.tests)
        self.last_test = -1

    def judgement(self) -> Judgement:
        """Return the judgement; close the compiled program."""
        if self.program.compiled is not None:
            os.close(self.program.compiled)
            self.program.compiled = None
        outcomes = final_outcomes(self.outcomes, **self._stops)
        return Judgement(**columns(outcomes), compile_output=self.compile_output, compile_s=self.compile_s)
