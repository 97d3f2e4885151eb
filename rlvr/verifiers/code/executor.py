"""A slot: the warm processes of one judging thread, and what it does with them.

From facts (a status, seconds, megabytes, bytes) this makes verdicts. What the program says about itself can turn one
failure into another, never into success: that takes the right output, which is compared here.
"""

from __future__ import annotations

import os
import signal
import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rlvr.sandbox import python_modules
from rlvr.sandbox.capabilities import SandboxCapabilities
from rlvr.sandbox.compiler import Compiled, Compiler, launcher
from rlvr.sandbox.guest import values
from rlvr.sandbox.guest.protocol import CALL as CALL_MODE
from rlvr.sandbox.guest.protocol import CODE, EXAMINE, SCRIPT, SERVE, SOURCE, TRANSLATE
from rlvr.sandbox.languages import Language
from rlvr.sandbox.limits import Limits
from rlvr.sandbox.zygote import ExecutionResult, ResourceLimits, Zygote, ZygoteError, ZygoteSpec
from rlvr.verifiers.code.cases import ASSERT, CALL, Test
from rlvr.verifiers.code.compare_output import same_output, same_value
from rlvr.verifiers.code.compare_values import named
from rlvr.verifiers.code.types import AC, CE, MLE, OLE, RE, SE, TLE, WA, Submission

_MOST_ZYGOTES = 5  # a slot keeps warm
_TESTER = Limits(time_s=10.0, wall_s=60.0, memory_mb=512, output_kb=1024)
_T = TypeVar("_T")


@dataclass
class Program:
    """A submission as it is worked on.

    Attributes:
        code: what Python made of the source, if it is to run many times.
        compiled: a descriptor of what a compiler made of it.
    """

    submission: Submission
    row: Language
    source: bytes
    checker: bytes | None = None
    code: bytes | None = None
    compiled: int | None = None


@dataclass(frozen=True)
class Outcome:
    """One test's verdict and figures."""

    verdict: str
    reason: str = ""
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    stderr: str = ""


class Executor:
    """Used by one thread at a time."""

    def __init__(self, found: SandboxCapabilities) -> None:
        self.found = found
        self.running: list[Zygote] = []
        self._zygotes: OrderedDict[tuple[str, ...], Zygote] = OrderedDict()
        self._compiler: Compiler | None = None

    def interrupt(self) -> None:
        """From another thread: asks for the end of what runs here."""
        for zygote in list(self.running):
            zygote.interrupt()

    def close(self) -> None:
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    # ------------------------------------------------------------------------------------------------------------------

    def compile(self, program: Program) -> Compiled:
        """Compiles a program.

        Raises:
            ZygoteError: compilers can't do their work here at present.
        """

        submission = program.submission

        def attempt() -> Compiled:
            if self._compiler is None or not self._compiler.alive():
                self._drop_compiler()
                try:
                    self._compiler = Compiler(self.found, allow_weak_sandbox=submission.allow_weak_sandbox)
                except OSError as error:
                    raise ZygoteError(str(error)) from error
            self.running = [self._compiler.zygote]
            signature = submission.signature if submission.entry_point else None
            return self._compiler.compile(program.row, program.source, submission.limits, signature)

        return self._twice(attempt)

    def test(self, program: Program, test: Test) -> Outcome:
        """Runs one test."""
        try:
            return self._twice(lambda: self._test(program, test))
        except _Fatal as error:
            return Outcome(RE, f"two processes ended over it: {error}")
        except ZygoteError as error:
            return Outcome(SE, str(error))

    def translate(self, program: Program) -> bytes | None:
        """What Python makes of the source, for a program that is to run many times; None where it can't tell."""

        def attempt() -> bytes | None:
            zygote = self._python(program.source.decode(errors="replace"))
            zygote.load(program.source)
            self.running = [zygote]
            ran = zygote.run(_allowance(program.submission.limits), mode=TRANSLATE)
            self.running = []
            return ran.exchange[1:] if ran.status == 0 and ran.exchange[:1] == b"C" and not ran.stopped else None

        try:
            return self._twice(attempt)
        except ZygoteError:
            return None

    def _twice(self, action: Callable[[], _T]) -> _T:
        """A process that starts programs may go once through anybody's fault; the second time is the program's doing.

        Raises:
            _Fatal: two processes went while the program ran.
            ZygoteError: none could be had.
        """
        try:
            return action()
        except ZygoteError:
            self._drop_all()
        started = False

        def note() -> None:
            nonlocal started
            started = True

        self._on_start = note
        try:
            return action()
        except ZygoteError as error:
            self._drop_all()
            raise (_Fatal(str(error)) if started else error) from error
        finally:
            self._on_start = None

    _on_start: Callable[[], None] | None = None

    def _drop_compiler(self) -> None:
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    def _drop_all(self) -> None:
        self.running = []
        self.close()

    def _zygote(self, key: tuple[str, ...], make: Callable[[], ZygoteSpec]) -> Zygote:
        zygote = self._zygotes.get(key)
        if zygote is not None and not zygote.alive():
            zygote.close()
            del self._zygotes[key]
            zygote = None
        if zygote is None:
            zygote = self._zygotes[key] = Zygote(make(), self.found.confinement)
            while len(self._zygotes) > _MOST_ZYGOTES:
                self._zygotes.popitem(last=False)[1].close()
        self._zygotes.move_to_end(key)
        if self._on_start is not None:
            self._on_start()
        return zygote

    def _python(self, source: str, *, remote: bool = False, tester: bool = False) -> Zygote:
        wanted = python_modules.RICH if tester else python_modules.wanted(source)
        preload = (
            python_modules.BASE
            + wanted
            + (python_modules.ASSERT_RUNNER if tester else python_modules.RPC_SERVER if remote else ())
        )
        site = next(
            (
                found
                for name in reversed(wanted)
                if name in python_modules.PACKAGES and (found := python_modules.site(name))
            ),
            None,
        )
        key = ("tester" if tester else "python", "remote" if remote else "", *wanted)
        return self._zygote(key, lambda: ZygoteSpec("python", preload=preload, site=site))

    # ------------------------------------------------------------------------------------------------------------------

    def _test(self, program: Program, test: Test) -> Outcome:
        submission, row, limits = program.submission, program.row, program.submission.limits
        if row.compiled:
            zygote = self._zygote(("launch",), lambda: ZygoteSpec("launch", launcher=str(launcher())))
        else:
            zygote = self._python(program.source.decode(errors="replace"), remote=test.form == ASSERT)
            zygote.load(program.code or program.source, CODE if program.code else SOURCE)
        if test.form == ASSERT:
            return self._examine(zygote, submission, test)
        mode = CALL_MODE if test.form == CALL else SCRIPT
        ran = self._run(
            zygote,
            limits,
            mode=mode,
            given=b"" if mode else test.given,
            exchange=test.given if mode else b"",
            attached=program.compiled if zygote.loaded is not program else None,
        )
        zygote.loaded = program  # the launcher keeps it
        failed = _failure(ran, limits, row)
        if failed is not None:
            return failed
        reason = self._difference(submission, test, ran, program.checker)
        return _outcome(AC if reason is None else WA, reason or "", ran)

    def _run(self, zygote: Zygote, limits: Limits, **how: Any) -> ExecutionResult:
        """One run; or two, where the first one was killed by nobody here and within its limits.

        The kernel kills whom it likes when the machine has no memory left. Whoever is killed again has done it himself.
        """
        for _ in range(2):
            self.running = [zygote]
            ran = zygote.run(_allowance(limits), **how)
            self.running = []
            if not _killed_within(ran, limits):
                break
        return ran

    def _difference(
        self, submission: Submission, test: Test, ran: ExecutionResult, checker: bytes | None
    ) -> str | None:
        """Why the result is not the expected one, or None."""
        tolerance = test.tolerance if test.tolerance is not None else submission.tolerance
        comparison = test.comparison or submission.comparison
        if test.form != CALL:
            if checker is not None:
                return self._check(submission, checker, test, ran.output)
            return same_output(test.expected, ran.output, comparison, tolerance)
        if ran.exchange[:1] != b"V":
            return "the program ended before the function returned"
        try:
            got = values.decode(ran.exchange[1:].decode())
        except ValueError as error:
            return f"the result can't be read ({error})"
        if test.python_equality:
            return None if _equal(test.expected, got) else f"expected {named(test.expected)}, got {named(got)}"
        if comparison not in ("float", "unordered"):
            comparison = "exact"
        return same_value(test.expected, got, comparison=comparison, tolerance=tolerance)

    def _check(self, submission: Submission, checker: bytes, test: Test, output: bytes) -> str | None:
        """Why a checker refuses an output, or None. It runs in a process that never holds a program."""
        arguments = [text.decode("utf-8", "surrogateescape") for text in (test.given, output, test.expected)]
        zygote = self._python("", tester=True)
        zygote.load(checker)
        exchange = values.encode({"entry_point": "check", "arguments": arguments}).encode()
        # A program must not be able to keep a checker busy for much longer than itself.
        limits = replace(_TESTER, time_s=min(max(2 * submission.limits.time_s, 1.0), _TESTER.time_s))
        ran = self._run(zygote, limits, mode=CALL_MODE, exchange=exchange)
        try:
            verdict = values.decode(ran.exchange[1:].decode()) if ran.exchange[:1] == b"V" and ran.status == 0 else None
        except ValueError:
            verdict = None
        if verdict is True or (isinstance(verdict, (int, float)) and not isinstance(verdict, bool) and verdict >= 1):
            return None
        if isinstance(verdict, (bool, int, float)):
            return "the checker says no"
        words = ran.stderr.decode(errors="replace").strip().splitlines()
        return f"the checker fails on it: {words[-1] if words else 'no result'}"[:300]

    def _examine(self, zygote: Zygote, submission: Submission, test: Test) -> Outcome:
        """An assert that is not a plain call: the program at one end of a line, the tester at the other."""
        limits = submission.limits
        tester = self._python("", tester=True)
        tester.load(test.given)
        for _ in range(2):
            ran, examined = self._run_both(zygote, tester, limits, test)
            if not _killed_within(ran, limits) and not _killed_within(examined, _TESTER):
                break
        note, words = examined.exchange[:1], examined.exchange[1:].decode(errors="replace")[:300]
        if note == b"P" and examined.status == 0 and not ran.stopped and ran.cpu_s <= limits.time_s:
            return _outcome(AC, "", ran)
        failed = _failure(ran, limits, None)
        if failed is not None:
            return failed
        if examined.stopped:
            return _outcome(TLE, "the test itself did not end", ran)
        return _outcome(WA if note == b"F" else RE, words or "the test did not run through", ran)

    def _run_both(
        self, zygote: Zygote, tester: Zygote, limits: Limits, test: Test
    ) -> tuple[ExecutionResult, ExecutionResult]:
        """What came of the program and of its tester."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            exchange = values.encode({"entry_point": test.entry_point}).encode()
            self.running = [zygote, tester]
            zygote.begin(_allowance(limits), mode=SERVE, attached=ours.fileno())
            tester.begin(_allowance(_TESTER), mode=EXAMINE, exchange=exchange, attached=theirs.fileno())
        # The tester ends when the program does, and the other way round, since the line breaks.
        ran = zygote.finish(_allowance(limits))
        if ran.stopped:
            tester.interrupt()
        examined = tester.finish(_allowance(_TESTER))
        self.running = []
        return ran, examined


class _Fatal(ZygoteError):
    """Two fresh processes went over one program."""


def _allowance(limits: Limits) -> ResourceLimits:
    return ResourceLimits(limits.time_s, limits.idle_s, limits.memory_mb, limits.output_kb << 10, limits.processes)


def _killed_within(ran: ExecutionResult, limits: Limits) -> bool:
    """Whether it was killed, and by no limit of its own."""
    return ran.killed and not ran.too_much and ran.cpu_s <= limits.time_s and ran.memory_mb <= limits.memory_mb


def _failure(ran: ExecutionResult, limits: Limits, row: Language | None) -> Outcome | None:
    """The verdict on a run that did not end as it should, or None."""
    words = _last_line(ran.stderr)
    if ran.too_much:
        return _outcome(OLE, f"more than {limits.output_kb} kB", ran)
    if ran.memory_mb > limits.memory_mb:
        return _outcome(MLE, f"{ran.memory_mb:.0f} MB of {limits.memory_mb:g} MB", ran)
    if ran.cpu_s > limits.time_s or ran.stopped == "cpu":
        return _outcome(TLE, f"{ran.cpu_s:.2f} s of {limits.time_s:g} s", ran)
    if ran.stopped:
        return _outcome(TLE, f"neither done nor busy after {ran.wall_s:.1f} s", ran)
    note = ran.exchange[:1]
    if row is None or not row.compiled:
        if note == b"S":
            return _outcome(CE, words, ran)
        starved = note == b"M"
    else:
        starved = b"std::bad_alloc" in ran.stderr and os.WIFSIGNALED(ran.status)
    killed = os.WIFSIGNALED(ran.status) and os.WTERMSIG(ran.status) == signal.SIGKILL
    if (starved and ran.status) or (killed and ran.memory_mb > limits.memory_mb / 2):
        return _outcome(MLE, f"no more memory at {ran.memory_mb:.0f} MB of {limits.memory_mb:g} MB", ran)
    if os.WIFSIGNALED(ran.status):
        number = os.WTERMSIG(ran.status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        if number == signal.SIGSEGV and ran.memory_mb > limits.memory_mb * 0.9:
            return _outcome(MLE, f"{ran.memory_mb:.0f} MB of {limits.memory_mb:g} MB", ran)
        return _outcome(RE, f"{name}{': ' + words if words else ''}", ran)
    if ran.status != 0:
        return _outcome(RE, words or f"exit status {os.WEXITSTATUS(ran.status)}", ran)
    return None


def _equal(expected: object, got: object) -> bool:
    """Python's own equality, of builtin types: what was decoded holds no others."""
    try:
        return bool(expected == got)
    except RecursionError:
        return False


def _outcome(verdict: str, reason: str, ran: ExecutionResult) -> Outcome:
    # Some of the words are the program's: they must not steer a terminal.
    reason = "".join(character if character.isprintable() else " " for character in reason)
    return Outcome(verdict, reason, ran.cpu_s, ran.memory_mb, ran.stderr.decode(errors="replace"))


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
