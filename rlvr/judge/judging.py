"""The judge: submissions in, judgements out, spread over this machine's processors.

Each slot is a thread with warm processes of its own. Threads of the caller that judge at the same time take turns, so
that a small batch does not wait for a large one. Threads and processes start at the first call and end with the
process; a process that is forked from it starts its own.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr.errors import InputError
from rlvr.judge.comparison import check_comparison
from rlvr.judge.compiling import Compiled, function_name
from rlvr.judge.languages import Language, compiler_path, language
from rlvr.judge.rungs import WEAK, rungs
from rlvr.judge.slots import Outcome, Program, Slot
from rlvr.judge.testing import ASSERT, CALL, Test, digest, read_tests
from rlvr.judge.verdicts import (
    AC,
    CE,
    LARGEST_SOURCE,
    SE,
    SKIP,
    Judgement,
    Limits,
    SandboxUnavailable,
    Submission,
)
from rlvr.judge.zygotes import ZygoteError

_log = logging.getLogger(__name__)
_Unit = Callable[[Slot], None]
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
    found = rungs()
    if found.tier == WEAK and not all(submission.allow_weak_sandbox for submission in asked):
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
    _pool().run(list(jobs.values()))
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

    def start(self, call: _Call, chunk: int) -> None:
        """Puts its first pieces of work into the call's queue."""
        if not self.chosen:
            return
        if len(self.program.source) > LARGEST_SOURCE:
            self._all(CE, f"the program is larger than {LARGEST_SOURCE >> 20} MB")
        elif self.program.row.compiled:
            call.add(lambda slot: self._compile(slot, call, chunk))
        else:
            self._add_tests(call, chunk)

    def _add_tests(self, call: _Call, chunk: int) -> None:
        for start in range(0, len(self.chosen), chunk):
            part = self.chosen[start : start + chunk]
            call.add(functools.partial(self._run, call, part))

    def _compile(self, slot: Slot, call: _Call, chunk: int) -> None:
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

    def _run(self, call: _Call, part: list[int], slot: Slot) -> None:
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


class _Call:
    """One caller's batch: its waiting pieces of work, and how many are unfinished."""

    def __init__(self, pool: _Pool) -> None:
        self.pool = pool
        self.waiting: deque[_Unit] = deque()
        self.unfinished = 0
        self.cancelled = False
        self.error: BaseException | None = None
        self.done = threading.Event()

    def add(self, unit: _Unit) -> None:
        with self.pool.changed:
            self.waiting.append(unit)
            self.unfinished += 1
            self.pool.changed.notify()


class _Pool:
    """The slots, each with its thread, and the callers whose work they do in turns."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.calls: deque[_Call] = deque()
        self.slots: list[Slot] = []
        self.threads: list[threading.Thread] = []
        self.closed = False

    def run(self, jobs: list[_Job]) -> None:
        """Has the jobs done; returns when they are.

        Raises:
            BaseException: whatever a piece of work raised that is no verdict (SandboxUnavailable, a defect here).
        """
        call = _Call(self)
        tests = sum(len(job.chosen) for job in jobs)
        chunk = max(1, min(16, tests // (4 * self.size)))
        with self.changed:
            call.unfinished = 1  # for the filling itself, so that it is not done before it has begun
            self.calls.append(call)
        try:
            self._start(tests)
            for job in jobs:
                job.start(call, chunk)
            self._finish(call)
            while not call.done.wait(1.0):
                pass
        except BaseException:
            self._cancel(call)
            raise
        finally:
            with self.changed:
                if call in self.calls:
                    self.calls.remove(call)
        if call.error is not None:
            raise call.error

    def _start(self, tests: int) -> None:
        with self.changed:
            if self.closed:
                raise RuntimeError("the judge was closed while it was about to start")
            for _ in range(min(self.size, max(tests, 1)) - len(self.threads)):
                slot = Slot(rungs())
                thread = threading.Thread(target=self._work, args=(slot,), name="judge", daemon=True)
                self.slots.append(slot)
                self.threads.append(thread)
                thread.start()

    def _work(self, slot: Slot) -> None:
        while True:
            with self.changed:
                while not self.closed and not any(call.waiting for call in self.calls):
                    self.changed.wait()
                if self.closed:
                    return
                while not self.calls[0].waiting:
                    self.calls.rotate(-1)
                call = self.calls[0]
                unit = call.waiting.popleft()
                self.calls.rotate(-1)
            try:
                if not call.cancelled:
                    unit(slot)
            except BaseException as error:  # to be raised where the caller waits; this thread goes on
                call.error = call.error or error
                call.cancelled = True
            self._finish(call)

    def _finish(self, call: _Call) -> None:
        with self.changed:
            call.unfinished -= 1
            if call.unfinished == 0:
                call.done.set()

    def _cancel(self, call: _Call) -> None:
        """Ends what runs for a caller that no longer waits (Ctrl-C), and waits for that."""
        with self.changed:
            call.cancelled = True
            call.unfinished -= len(call.waiting)
            call.waiting.clear()
            for slot in self.slots:
                slot.interrupt()
        call.done.wait(10.0)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            for slot in self.slots:
                slot.interrupt()
            self.changed.notify_all()
        for thread in self.threads:
            thread.join(10.0)
        for slot in self.slots:
            slot.close()

    def forget(self) -> None:
        """In a forked child: the parent's processes are not ours, and holding their lines would keep them alive."""
        for slot in self.slots:
            slot.close()


_the_pool: _Pool | None = None
_pool_lock = threading.Lock()


def _pool() -> _Pool:
    global _the_pool
    with _pool_lock:
        if _the_pool is None:
            _the_pool = _Pool(slots())
        return _the_pool


def slots() -> int:
    """How many programs run at once: the processors of this machine, shared among the processes of a launcher."""
    chosen = os.environ.get("GRPO_JUDGE_SLOTS", "")
    if chosen:
        if not chosen.isdigit() or int(chosen) < 1:
            raise InputError(f"GRPO_JUDGE_SLOTS is {chosen!r}, but should be a number from 1 on.")
        return int(chosen)
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, len(os.sched_getaffinity(0)) // (int(ranks) if ranks.isdigit() and int(ranks) else 1))


def close() -> None:
    """Ends the judge's threads and processes; the next call starts new ones."""
    global _the_pool
    with _pool_lock:
        pool, _the_pool = _the_pool, None
    if pool is not None:
        pool.close()


def _after_fork() -> None:
    global _the_pool, _pool_lock
    pool, _the_pool = _the_pool, None
    _pool_lock = threading.Lock()
    if pool is not None:
        pool.forget()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close)
