"""Run a program against one test at a time, in warm zygotes that belong to one judging thread.

This module handles processes. verdict.py decides what their results mean.
"""

from __future__ import annotations

import functools
import signal
import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rlvr.sandbox import python_modules
from rlvr.sandbox.capabilities import SandboxCapabilities
from rlvr.sandbox.compiler import Compiled, Compiler
from rlvr.sandbox.compiler_cache import launcher
from rlvr.sandbox.guest import protocol, values
from rlvr.sandbox.languages import Language
from rlvr.sandbox.limits import Limits
from rlvr.sandbox.zygote_client import ExecutionResult, Zygote, ZygoteError, ZygoteSpec
from rlvr.verifiers.code import cases, verdict
from rlvr.verifiers.code.cases import Test
from rlvr.verifiers.code.types import RE, SE, Submission
from rlvr.verifiers.code.verdict import Outcome

_MAX_ZYGOTES = 5
_MAX_SPARE_MB = 4096
# Limits of the processes that run checkers and asserts.
_RUNNER_LIMITS = Limits(time_s=10.0, wall_s=60.0, memory_mb=512, output_kb=1024)
_T = TypeVar("_T")


@dataclass
class Program:
    """A submission in work."""

    submission: Submission
    language: Language
    bytecode: bytes | None = None  # of a Python program that runs many times, if it could be made
    compiled: int | None = None  # descriptor of a compiled program

    @functools.cached_property
    def source(self) -> bytes:
        text = self.submission.program
        return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text

    @functools.cached_property
    def text(self) -> str:
        return self.source.decode(errors="replace")


class Executor:
    """Warm zygotes and a compiler. Use it from one thread at a time; only `interrupt` may come from another."""

    def __init__(self, capabilities: SandboxCapabilities) -> None:
        self.capabilities = capabilities
        self._running: list[Zygote] = []
        self._zygotes: OrderedDict[tuple[str, ...], Zygote] = OrderedDict()
        self._compiler: Compiler | None = None

    def interrupt(self) -> None:
        """Kill the running programs; call it from another thread."""
        for zygote in list(self._running):
            zygote.interrupt()

    def close(self) -> None:
        self._running = []
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()
        self._close_compiler()

    def compile(self, program: Program) -> Compiled:
        """Compile a program.

        Raises:
            ZygoteError: the compiler can't work, through no fault of the program.
        """
        return self._retry_once(lambda: self._compile(program))

    def _compile(self, program: Program) -> Compiled:
        submission = program.submission
        if self._compiler is None or not self._compiler.alive():
            self._close_compiler()
            try:
                self._compiler = Compiler(self.capabilities, allow_weak_sandbox=submission.allow_weak_sandbox)
            except OSError as error:
                raise ZygoteError(str(error), kind="work-folder") from error
        self._running = [self._compiler.zygote]
        signature = submission.signature if submission.entry_point else None
        return self._compiler.compile(program.language, program.source, submission.limits, signature)

    def run_test(self, program: Program, test: Test) -> Outcome:
        """Run one test and return its verdict."""
        try:
            return self._retry_once(lambda: self._run_test(program, test))
        except ZygoteError as error:
            if error.kind == "zygote-ended":
                return Outcome(RE, f"two processes ended over it: {error}")
            return Outcome(SE, str(error))

    def run(self, program: Program, stdin: bytes) -> ExecutionResult:
        """Run a Python program once, without a test.

        Raises:
            ZygoteError: it can't be run, through no fault of the program, or two processes ended over it.
        """

        def once() -> ExecutionResult:
            zygote = self._python_zygote(program.text)
            zygote.load(program.source)
            return self._run(zygote, program.submission.limits, stdin=stdin)

        return self._retry_once(once)

    def make_bytecode(self, program: Program) -> bytes | None:
        """Compile Python source once for many runs; None if that fails. It happens inside the sandbox."""
        try:
            result = self._retry_once(lambda: self._make_bytecode(program))
        except ZygoteError:
            return None
        made = result.status == 0 and result.exchange[:1] == protocol.NOTE_BYTECODE and not result.stopped
        return result.exchange[1:] if made else None

    def _make_bytecode(self, program: Program) -> ExecutionResult:
        zygote = self._python_zygote(program.text)
        zygote.load(program.source)
        return self._run_once(zygote, program.submission.limits, mode=protocol.MAKE_BYTECODE)

    def _run_test(self, program: Program, test: Test) -> Outcome:
        submission, limits = program.submission, program.submission.limits
        compiled = program.language.compiled
        if compiled:
            zygote = self._zygote(("launch",), lambda: ZygoteSpec("launch", launcher=str(launcher())))
        else:
            zygote = self._python_zygote(program.text, rpc=test.form == cases.ASSERT)
            zygote.load(program.bytecode or program.source, protocol.BYTECODE if program.bytecode else protocol.SOURCE)
        if test.form == cases.ASSERT:
            return self._run_assert(zygote, limits, test)
        descriptor = program.compiled if zygote.loaded is not program else None
        arguments: dict[str, Any] = {"stdin": test.content}
        if test.form == cases.CALL:
            arguments = {"mode": protocol.CALL, "exchange": test.content}
        result = self._run(zygote, limits, descriptor=descriptor, **arguments)
        zygote.loaded = program  # the launcher keeps the descriptor
        if compiled and result.signal == signal.SIGSEGV and result.cpu_s < limits.time_s / 4:
            # Perhaps the kernel refused a large array. The program may have it, if it uses no more than its limit.
            result = self._run(zygote, limits, spare_mb=_MAX_SPARE_MB, **arguments)
        failed = verdict.failure(result, limits, compiled=compiled)
        if failed is not None:
            return failed
        if submission.checker is not None and test.form != cases.CALL:
            fault = self._run_checker(submission.checker.encode(), limits, test, result.output)
            return verdict.compared(result, fault)
        return verdict.output_verdict(result, test, submission.comparison, submission.tolerance)

    def _run(self, zygote: Zygote, limits: Limits, **arguments: Any) -> ExecutionResult:
        """Run once, or twice if the machine may have failed. What happens twice is the program's doing."""
        result = self._run_once(zygote, limits, **arguments)
        if verdict.machine_may_have_failed(result, limits):
            result = self._run_once(zygote, limits, **arguments)
        return result

    def _run_once(self, zygote: Zygote, limits: Limits, **arguments: Any) -> ExecutionResult:
        self._running = [zygote]
        result = zygote.run(limits, **arguments)
        self._running = []
        return result

    def _run_checker(self, checker: bytes, limits: Limits, test: Test, output: bytes) -> str | None:
        """Return why a checker rejects an output, or None. Its process never runs a program."""
        arguments = [text.decode("utf-8", "surrogateescape") for text in (test.content, output, test.expected)]
        zygote = self._python_zygote(checker.decode(errors="replace"), runner=True)
        zygote.load(checker)
        # A program's output must not keep the checker busy for much longer than the program itself ran.
        time_s = min(max(2 * limits.time_s, 1.0), _RUNNER_LIMITS.time_s)
        result = self._run(
            zygote,
            replace(_RUNNER_LIMITS, time_s=time_s),
            mode=protocol.CALL,
            exchange=values.encode({"entry_point": "check", "arguments": arguments}).encode(),
        )
        return verdict.checker_fault(result)

    def _run_assert(self, zygote: Zygote, limits: Limits, test: Test) -> Outcome:
        """Run an assert that is not a plain call: in a second process, which calls the program over a connection."""
        runner_zygote = self._python_zygote(test.content.decode(errors="replace"), runner=True)
        runner_zygote.load(test.content)
        program, runner = self._run_connected(zygote, runner_zygote, limits, test)
        if verdict.machine_may_have_failed(program, limits) or verdict.machine_may_have_failed(runner, _RUNNER_LIMITS):
            program, runner = self._run_connected(zygote, runner_zygote, limits, test)
        return verdict.assert_verdict(program, runner, limits)

    def _run_connected(
        self, zygote: Zygote, runner_zygote: Zygote, limits: Limits, test: Test
    ) -> tuple[ExecutionResult, ExecutionResult]:
        """Run the program and the assert runner at the same time; return both results."""
        program_end, runner_end = socket.socketpair()
        with program_end, runner_end:
            exchange = values.encode({"entry_point": test.entry_point}).encode()
            self._running = [zygote, runner_zygote]
            zygote.start_run(limits, mode=protocol.SERVE, descriptor=program_end.fileno())
            runner_zygote.start_run(
                _RUNNER_LIMITS, mode=protocol.RUN_ASSERTS, exchange=exchange, descriptor=runner_end.fileno()
            )
        # Each ends when the other does, since the connection breaks.
        program = zygote.finish_run()
        if program.stopped:
            runner_zygote.interrupt()
        runner = runner_zygote.finish_run()
        self._running = []
        return program, runner

    def _retry_once(self, action: Callable[[], _T]) -> _T:
        """Repeat an action in fresh processes if a zygote fails. The first failure may have any cause."""
        try:
            return action()
        except ZygoteError:
            self.close()
        try:
            return action()
        except ZygoteError:
            self.close()
            raise

    def _close_compiler(self) -> None:
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    def _zygote(self, key: tuple[str, ...], make_spec: Callable[[], ZygoteSpec]) -> Zygote:
        """Return a warm zygote; keep those used last."""
        zygote = self._zygotes.get(key)
        if zygote is not None and not zygote.alive():
            zygote.close()
            del self._zygotes[key]
            zygote = None
        if zygote is None:
            zygote = self._zygotes[key] = Zygote(make_spec(), self.capabilities.confinement)
            while len(self._zygotes) > _MAX_ZYGOTES:
                self._zygotes.popitem(last=False)[1].close()
        self._zygotes.move_to_end(key)
        return zygote

    def _python_zygote(self, source: str, *, rpc: bool = False, runner: bool = False) -> Zygote:
        """Return a zygote with the modules that a Python source imports.

        It may serve calls of an assert runner (`rpc`), or run asserts and checkers, but never programs (`runner`).
        """
        wanted = python_modules.wanted(source) or (python_modules.RICH if runner else ())
        extra = python_modules.ASSERT_RUNNER if runner else python_modules.RPC_SERVER if rpc else ()
        packages = [name for name in wanted if name in python_modules.PACKAGES]
        site = next((folder for name in reversed(packages) if (folder := python_modules.site(name))), None)
        key = ("runner" if runner else "program", "rpc" if rpc else "", *wanted)
        return self._zygote(
            key, lambda: ZygoteSpec("python", preload=(*python_modules.BASE, *wanted, *extra), site=site)
        )
