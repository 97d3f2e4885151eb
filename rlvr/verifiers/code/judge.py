"""The judge: submissions in, judgements out, spread over this machine's processors.

Threads and processes (rlvr/verifiers/code/scheduler.py) start at the first call and end with the process; a process
that is forked from it starts its own.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.errors import InputError
from rlvr.sandbox.capabilities import WEAK, detect_capabilities
from rlvr.sandbox.compiler import Compiled, function_name
from rlvr.sandbox.languages import Language, compiler_path, language
from rlvr.sandbox.limits import Limits, SandboxUnavailable
from rlvr.sandbox.zygote import ZygoteError
from rlvr.verifiers.code.cases import ASSERT, CALL, Test, digest, read_tests
from rlvr.verifiers.code.compare_output import check_comparison
from rlvr.verifiers.code.executor import Executor, Outcome, Program
from rlvr.verifiers.code.scheduler import JudgeJob, pool
from rlvr.verifiers.code.types import AC, CE, LARGEST_SOURCE, SE, SKIP, Judgement, Submission

_TRANSLATED_FROM = 4  # tests, from which on it pays to compile a Python program once for all of them


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
    sample: int | None = None,
    seed: int = 0,
    allow_weak_sandbox: bool = False,
) -> Judgement:
    """Runs a program against tests, confined, and says how it did.

    Args:
        program: its source.
        language: "python", "cpp", or another name of languages.LANGUAGES.
        tests: each is {"input": str, "output": str}: standard input and output; or {"call": [arguments], "expected":
            value}: calls `entry_point`; or {"assert": "code"}: Python statements that are run against the program. A
            test may name its own "comparison" and "tolerance".
        limits: for each test, and for the compiler.
        entry_point: the function that tests call; also "Class.method".
        signature: of that function in a compiled language: "int add(int, int)".
        checker: Python source of `check(input, output, expected)`, true (or at least 1) for an output that is right;
            used instead of a comparison.
        comparison: of outputs: "lines", "tokens", "exact", "float", "unordered" or "yes_no"; of the values of calls:
            "float" and "unordered", anything else compares exactly.
        tolerance: of "float", absolute or relative.
        stop_early: whether tests after the first failure are left out (SKIP).
        sample: run only so many of the tests, drawn with `seed`; the others are SKIP and don't count.
        allow_weak_sandbox: whether to run programs where they can't be confined. They can then do whatever you can.

    Raises:
        InputError: an argument is wrong, or the language's compiler is missing.
        SandboxUnavailable: programs can't be confined here.
    """
    given = dict(locals())
    given["limits"] = limits or Limits()
    return judge_many([given])[0]


def judge_many(submissions: Sequence[Submission | Mapping[str, Any]]) -> list[Judgement]:
    """Judges a batch on all processors; the arguments of `judge` in each, the judgements in the same order.

    The same program with the same tests is judged once.

    Raises:
        InputError: an argument is wrong; with the submission's number. Nothing was judged then.
        SandboxUnavailable: programs can't be confined here.
    """
    asked = read_submissions(submissions)
    if not asked:
        return []
    found = detect_capabilities()
    if found.level == WEAK and not all(submission.allow_weak_sandbox for submission in asked):
        raise SandboxUnavailable(
            f"Programs can't be confined here ({found.describe()}), so none is run. Use Linux with seccomp on x86-64 "
            "or aarch64, or accept that programs can do whatever you can with allow_weak_sandbox: true; see "
            "docs/sandbox.md."
        )
    prepared: dict[Any, list[Test]] = {}
    digests: dict[int, str] = {}  # of tests that several submissions share
    jobs: dict[Any, _Job] = {}
    keys = []
    for index, submission in enumerate(asked):
        if id(submission.tests) not in digests:
            digests[id(submission.tests)] = digest(submission.tests)
        about = (submission.language, submission.entry_point, submission.checker is None)
        tests_key = (*about, digests[id(submission.tests)])
        row = language(submission.language)
        if tests_key not in prepared:
            where = f"Submission {index + 1} of {len(asked)}" if len(asked) > 1 else "The submission"
            prepared[tests_key] = read_tests(
                submission.tests,
                language=row,
                entry_point=submission.entry_point,
                checker=submission.checker is not None,
                where=where,
            )
            _check_calls(submission, row, prepared[tests_key], where)
        rest = tuple(getattr(submission, name) for name in _TELLING)
        key = (submission.program, rest, tests_key)
        keys.append(key)
        if key not in jobs:
            jobs[key] = _Job(submission, row, prepared[tests_key])
    _run(list(jobs.values()))
    judgements = {key: job.judgement() for key, job in jobs.items()}
    return [judgements[key] for key in keys]


_TELLING = ("limits", "signature", "checker", "comparison", "tolerance", "stop_early", "sample", "seed")


def read_submissions(
    submissions: Sequence[Submission | Mapping[str, Any]], *, judged_here: bool = True
) -> list[Submission]:
    """Submissions whose arguments are what they should be, but for their tests.

    Args:
        judged_here: whether compilers that they need must be on this machine.

    Raises:
        InputError: an argument is wrong; with the submission's number.
    """
    return [_submission(given, index, len(submissions), judged_here) for index, given in enumerate(submissions)]


def _submission(given: Submission | Mapping[str, Any], index: int, of: int, judged_here: bool) -> Submission:
    where = f"Submission {index + 1} of {of}" if of > 1 else "The submission"
    if not isinstance(given, Submission):
        try:
            given = Submission(**{"limits": Limits(), **{k: v for k, v in given.items() if v is not None}})
        except TypeError as error:
            raise InputError(f"{where}: {error}.") from error
    if not isinstance(given.program, (str, bytes)):
        raise InputError(f"{where}: the program should be text, but is {type(given.program).__name__}.")
    if not isinstance(given.limits, Limits):
        raise InputError(f"{where}: limits should be a Limits, but is {type(given.limits).__name__}.")
    try:
        row = language(given.language)
        if row.compiled and judged_here:
            compiler_path(row)
        check_comparison(given.comparison, given.tolerance)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if given.sample is not None and (isinstance(given.sample, bool) or given.sample < 1):
        raise InputError(f"{where}: sample is {given.sample!r}, but should be a number of tests from 1 on.")
    if given.checker is not None:
        try:
            compile(given.checker, "checker", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise InputError(f"{where}: the checker is no Python: {error}.") from error
        if "check" not in given.checker:
            raise InputError(f"{where}: the checker defines no function check(input, output, expected).")
    return given


def _check_calls(submission: Submission, row: Language, tests: Sequence[Test], where: str) -> None:
    if not row.compiled or not any(test.form in (CALL, ASSERT) for test in tests):
        return
    if row.name != "cpp":
        raise InputError(f"{where}: function calls are known for Python and C++, not for {row.name}.")
    if not submission.signature:
        raise InputError(f"{where} calls a function in C++: give its signature, as in 'int add(int, int)'.")
    try:
        name = function_name(submission.signature)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if name != submission.entry_point:
        raise InputError(f"{where}: the signature is that of {name!r}, but entry_point is {submission.entry_point!r}.")
    if any(test.form != CALL for test in tests):
        raise InputError(
            f"{where} mixes calls with tests of standard input and output; a C++ program has one or the other."
        )


# ----------------------------------------------------------------------------------------------------------------------
# The work


def _run(jobs: Sequence[_Job]) -> None:
    turns = pool()
    tests = sum(len(job.chosen) for job in jobs)
    chunk = max(1, min(16, tests // (4 * turns.size)))

    def begin(call: JudgeJob) -> None:
        for job in jobs:
            job.start(call, chunk)

    turns.run(begin, tests)


class _Job:
    """A submission on its way: which tests are to run, what has come of them."""

    def __init__(self, submission: Submission, row: Language, tests: list[Test]) -> None:
        self.submission = submission
        self.tests = tests
        text = submission.program
        source = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        checker = submission.checker.encode() if submission.checker is not None else None
        self.program = Program(submission, row, source, checker)
        self.outcomes: list[Outcome | None] = [None] * len(tests)
        self.chosen = list(range(len(tests)))
        self.sampled: list[int] | None = None
        if submission.sample is not None and submission.sample < len(tests):
            self.sampled = sorted(random.Random(submission.seed).sample(self.chosen, submission.sample))
            self.chosen = self.sampled
        self.compile_output = ""
        self.compile_s = 0.0
        self.failed_at = len(tests)  # the first test known to have failed

    def start(self, call: JudgeJob, chunk: int) -> None:
        """Puts its first pieces of work into the call's queue."""
        if not self.chosen:
            return
        if len(self.program.source) > LARGEST_SOURCE:
            self._all(CE, f"the program is larger than {LARGEST_SOURCE >> 20} MB")
        elif self.program.row.compiled:
            call.add(lambda slot: self._compile(slot, call, chunk))
        else:
            self._add_tests(call, chunk)

    def _add_tests(self, call: JudgeJob, chunk: int) -> None:
        for start in range(0, len(self.chosen), chunk):
            part = self.chosen[start : start + chunk]
            call.add(functools.partial(self._run, call, part))

    def _compile(self, slot: Executor, call: JudgeJob, chunk: int) -> None:
        try:
            compiled = slot.compile(self.program)
        except ZygoteError as error:
            self._all(SE, str(error))
            return
        self._compiled(compiled)
        if self.program.compiled is not None:
            self._add_tests(call, chunk)

    def _compiled(self, compiled: Compiled) -> None:
        self.program.compiled = compiled.program
        self.compile_output, self.compile_s = compiled.output, compiled.cpu_s
        if compiled.program is None:
            lines = compiled.output.splitlines()
            self._all(CE, next((line for line in lines if "error" in line), lines[0] if lines else "")[:300])

    def _run(self, call: JudgeJob, part: list[int], slot: Executor) -> None:
        if len(self.chosen) >= _TRANSLATED_FROM and self.program.code is None and not self.program.row.compiled:
            self.program.code = slot.translate(self.program)
        for index in part:
            if call.cancelled or (self.failed_at < index and self._stops()):
                return
            outcome = slot.test(self.program, self.tests[index])
            self.outcomes[index] = outcome
            if outcome.verdict != AC:
                self.failed_at = min(self.failed_at, index)
            if outcome.verdict == CE:
                self._all(CE, outcome.reason)
                self.compile_output = outcome.stderr[-2000:].strip()
                return

    def _stops(self) -> bool:
        """Whether tests after a failed one are left out: asked for, or the program does not even compile."""
        return self.submission.stop_early or any(outcome and outcome.verdict == CE for outcome in self.outcomes)

    def _all(self, verdict: str, reason: str) -> None:
        for index in self.chosen:
            self.outcomes[index] = Outcome(verdict, reason)
        self.failed_at = -1

    def judgement(self) -> Judgement:
        """What came of it; closes the compiled program."""
        if self.program.compiled is not None:
            os.close(self.program.compiled)
            self.program.compiled = None
        if any(outcome and outcome.verdict == CE for outcome in self.outcomes):
            # Pieces that ran at the same time may have been told otherwise; a program compiles or it does not.
            reason = next(outcome.reason for outcome in self.outcomes if outcome and outcome.verdict == CE)
            self._all(CE, reason)
        elif self.submission.stop_early:
            # Which tests had been begun elsewhere when one failed is chance; what is told is not.
            first = next((i for i in self.chosen if (o := self.outcomes[i]) is None or o.verdict != AC), None)
            for index in self.chosen:
                if first is not None and index > first:
                    self.outcomes[index] = None
        outcomes = [outcome or Outcome(SKIP) for outcome in self.outcomes]
        return Judgement(
            [outcome.verdict for outcome in outcomes],
            [outcome.reason for outcome in outcomes],
            [outcome.cpu_s for outcome in outcomes],
            [outcome.memory_mb for outcome in outcomes],
            [outcome.stderr for outcome in outcomes],
            self.compile_output,
            self.compile_s,
            self.sampled,
        )
