"""Decide the verdict of one test from the facts of its execution. No process is started here.

What a program says about itself (exit status, notes) can turn one failure into another, never into AC. AC takes the
right output, which is compared in this process.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.sandbox.guest import protocol, values
from rlvr.sandbox.limits import Limits
from rlvr.sandbox.zygote_client import ExecutionResult
from rlvr.verifiers.code.cases import CALL, Test
from rlvr.verifiers.code.compare_output import output_fault
from rlvr.verifiers.code.compare_values import describe_value, value_fault
from rlvr.verifiers.code.types import AC, CE, MLE, OLE, RE, SKIP, TLE, WA

CHECKER_FAILS = "the checker fails: "  # start of a reason
_MIN_LARGE = 100_000  # bytes of a returned value
_MAX_EXCESS_S = 0.25  # CPU time beyond the limit until the watchdog kills, on a machine that is only busy


@dataclass(frozen=True)
class Outcome:
    """One test's verdict, its reason and its figures."""

    verdict: str
    reason: str = ""
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    stderr: str = ""


def failure(result: ExecutionResult, limits: Limits, *, compiled: bool = False) -> Outcome | None:
    """Return the verdict on an execution that did not end well, or None if it ended with status 0 within its limits.

    The notes of a compiled program mean nothing.
    """
    memory = f"{result.memory_mb:.0f} MB of {limits.memory_mb:g} MB"
    last_line = last_line_of(result.stderr)
    if result.output_exceeded:
        return _outcome(OLE, f"more than {limits.output_kb} kB", result)
    if result.memory_mb > limits.memory_mb or result.stopped == "memory":
        return _outcome(MLE, memory, result)
    if result.cpu_s > limits.time_s or result.stopped == "cpu":
        return _outcome(TLE, f"{result.cpu_s:.2f} s of {limits.time_s:g} s", result)
    if result.stopped:
        return _outcome(TLE, f"neither done nor busy after {result.wall_s:.1f} s", result)
    note = b"" if compiled else result.exchange[:1]
    if note == protocol.NOTE_SYNTAX:
        return _outcome(CE, last_line, result)
    if compiled:
        allocation_failed = b"std::bad_alloc" in result.stderr and result.signal is not None
    else:
        allocation_failed = note == protocol.NOTE_MEMORY and result.status != 0
    if allocation_failed or (result.signal == signal.SIGKILL and result.memory_mb > limits.memory_mb / 2):
        return _outcome(MLE, f"no more memory at {memory}", result)
    if result.signal == signal.SIGSEGV and result.memory_mb > limits.memory_mb * 0.9:
        return _outcome(MLE, memory, result)
    if result.signal is not None:
        known = result.signal in set(signal.Signals)
        name = signal.Signals(result.signal).name if known else f"signal {result.signal}"
        return _outcome(RE, f"{name}{': ' + last_line if last_line else ''}", result)
    if result.status != 0:
        return _outcome(RE, last_line or f"exit status {result.status >> 8}", result)
    return None


def output_verdict(result: ExecutionResult, test: Test, comparison: str, tolerance: float) -> Outcome:
    """Compare the output or the returned value of an execution that ended well."""
    comparison = test.comparison or comparison
    tolerance = tolerance if test.tolerance is None else test.tolerance
    try:
        if test.form == CALL:
            return compared(result, _call_fault(result, test, comparison, tolerance))
        return compared(result, output_fault(test.expected, result.output, comparison, tolerance))
    except Exception as error:  # an output made to break the comparison costs its own test, and not the run
        return compared(result, f"the output can't be compared: {type(error).__name__}: {error}"[:300])


def compared(result: ExecutionResult, fault: str | None) -> Outcome:
    """Return AC, or WA with what is wrong."""
    return _outcome(AC if fault is None else WA, fault or "", result)


def checker_fault(result: ExecutionResult) -> str | None:
    """Return why a checker rejects an output, from the checker's own execution; None if it accepts."""
    verdict: Any = None
    why = "no result"
    if result.exchange[:1] == protocol.NOTE_VALUE and result.status == 0:
        with contextlib.suppress(ValueError):
            verdict = values.decode(result.exchange[1:].decode())
            why = f"it returned {verdict!r:.60}, but should return True, False or a number"
    if verdict is True or (isinstance(verdict, (int, float)) and not isinstance(verdict, bool) and verdict >= 1):
        return None
    if isinstance(verdict, (bool, int, float)):
        return "the checker rejects the output"
    return f"{CHECKER_FAILS}{last_line_of(result.stderr) or why}"[:300]


def assert_verdict(program: ExecutionResult, runner: ExecutionResult, limits: Limits) -> Outcome:
    """Decide on an assert, from the execution of the program and that of the assert runner."""
    note, message = runner.exchange[:1], runner.exchange[1:].decode(errors="replace")[:300]
    if note == protocol.NOTE_PASSED and runner.status == 0 and not program.stopped and program.cpu_s <= limits.time_s:
        return _outcome(AC, "", program)
    failed = failure(program, limits)
    if failed is not None:
        return failed
    if runner.stopped:
        return _outcome(TLE, "the test itself did not end", program)
    return _outcome(WA if note == protocol.NOTE_FAILED else RE, message or "the test did not run to its end", program)


def machine_may_have_failed(result: ExecutionResult, limits: Limits) -> bool:
    """Whether an execution deserves a second one: the machine may have failed, and not the program."""
    killed_within_limits = (  # perhaps by a kernel that was out of memory
        result.killed
        and not result.output_exceeded
        and result.cpu_s <= limits.time_s
        and result.memory_mb <= limits.memory_mb
    )
    # The watchdog kills sooner. If a virtual machine pauses, its kernel may charge the pause to what runs.
    return killed_within_limits or result.cpu_s > limits.time_s + _MAX_EXCESS_S


def tests_to_run(verdicts: Sequence[str | None], *, stop_early: bool, max_timeouts: int | None) -> int:
    """Return how many tests of a submission are run, from its verdicts in order. None: not known, or not run."""
    timeouts = 0
    for place, verdict in enumerate(verdicts, start=1):
        timeouts += verdict == TLE
        if timeouts == max_timeouts or (stop_early and verdict not in (AC, SKIP, None)):
            return place
    return len(verdicts)


def final_outcomes(
    outcomes: Sequence[Outcome | None], *, stop_early: bool, max_timeouts: int | None = None
) -> list[Outcome]:
    """Return the outcomes of all tests of a submission, independent of the order in which they ran.

    Tests of one submission run at the same time. So some tests behind the last one to run have run, by chance.
    """
    compile_error = next((outcome for outcome in outcomes if outcome and outcome.verdict == CE), None)
    if compile_error is not None:  # a program compiles for all tests or for none
        return [Outcome(CE, compile_error.reason)] * len(outcomes)
    verdicts = [outcome.verdict if outcome else None for outcome in outcomes]
    end = tests_to_run(verdicts, stop_early=stop_early, max_timeouts=max_timeouts)
    stopped = max_timeouts is not None and verdicts[:end].count(TLE) == max_timeouts
    skipped = Outcome(SKIP, f"{max_timeouts} exceeded the time limit" if stopped else "")
    return [outcome or Outcome(SKIP) for outcome in outcomes[:end]] + [skipped] * (len(outcomes) - end)


def columns(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the lists of a `Judgement`."""
    return {
        "verdicts": [outcome.verdict for outcome in outcomes],
        "reasons": [outcome.reason for outcome in outcomes],
        "cpu_s": [outcome.cpu_s for outcome in outcomes],
        "memory_mb": [outcome.memory_mb for outcome in outcomes],
        "stderr": [outcome.stderr for outcome in outcomes],
    }


def last_line_of(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def _call_fault(result: ExecutionResult, test: Test, comparison: str, tolerance: float) -> str | None:
    if result.exchange[:1] != protocol.NOTE_VALUE:
        return "the program ended before the function returned"
    encoded = result.exchange[1:]
    # Decoded, a hostile text takes 50 times its size in this process. An equal value is at most some 40 times longer.
    if len(encoded) > _MIN_LARGE and len(encoded) > 40 * len(values.encode(test.expected)):
        return f"expected {describe_value(test.expected)}, got a much larger value"
    try:
        returned = values.decode(encoded.decode())
    except ValueError as error:
        return f"the result can't be read ({error})"
    if test.python_equality:
        with contextlib.suppress(RecursionError):
            if test.expected == returned:  # decoded values have builtin types only
                return None
        return f"expected {describe_value(test.expected)}, got {describe_value(returned)}"
    if comparison not in ("float", "unordered"):
        comparison = "exact"
    return value_fault(test.expected, returned, comparison=comparison, tolerance=tolerance)


def _outcome(verdict: str, reason: str, result: ExecutionResult) -> Outcome:
    # Parts of the reason may come from the program. They must not send control sequences to a terminal.
    reason = "".join(character if character.isprintable() else " " for character in reason)
    return Outcome(verdict, reason, result.cpu_s, result.memory_mb, result.stderr.decode(errors="replace"))
