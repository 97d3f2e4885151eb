"""Verdicts as a function of execution results, without processes."""

from __future__ import annotations

import signal
import tracemalloc
from dataclasses import replace

import pytest

from rlvr.sandbox.guest import values
from rlvr.sandbox.limits import Limits
from rlvr.sandbox.zygote_client import ExecutionResult
from rlvr.verifiers.code import verdict
from rlvr.verifiers.code.cases import CALL, STDIO, Test
from rlvr.verifiers.code.verdict import Outcome
from tests.support.cases import cases

LIMITS = Limits(time_s=1.0, memory_mb=100, output_kb=10)
WELL = ExecutionResult(0, "", 0.1, 0.2, 10.0, b"", False, b"", b"")
EXIT_1, SEGFAULT, KILLED = 1 << 8, signal.SIGSEGV, signal.SIGKILL

FAILURES = [
    # changes of a run that ends well, compiled, verdict, why it is here
    ({}, False, None, "nothing failed"),
    ({"output_exceeded": True, "cpu_s": 2.0}, False, "OLE", "output first: flooding it takes time"),
    ({"memory_mb": 101.0, "cpu_s": 2.0}, False, "MLE", "memory before time"),
    ({"cpu_s": 1.1}, False, "TLE", "ended by itself, but too late"),
    ({"stopped": "cpu", "status": KILLED}, False, "TLE", "the watchdog killed it"),
    ({"stopped": "idle", "status": KILLED}, False, "TLE", "it did nothing"),
    ({"status": EXIT_1, "exchange": b"S"}, False, "CE", "Python's parser refused it"),
    ({"status": EXIT_1, "exchange": b"S"}, True, "RE", "a compiled program's notes mean nothing"),
    ({"status": EXIT_1, "exchange": b"M"}, False, "MLE", "a MemoryError ended it"),
    ({"exchange": b"M"}, False, None, "a note without a failure"),
    ({"status": signal.SIGABRT, "stderr": b"std::bad_alloc"}, True, "MLE", "an allocation failed"),
    ({"status": signal.SIGABRT}, True, "RE", "another abort"),
    ({"status": KILLED, "memory_mb": 60.0}, False, "MLE", "killed with much memory"),
    ({"status": KILLED, "memory_mb": 40.0}, False, "RE", "killed with little memory"),
    ({"status": SEGFAULT, "memory_mb": 95.0}, True, "MLE", "an allocation that was not checked"),
    ({"status": SEGFAULT}, True, "RE", "an ordinary segmentation fault"),
    ({"status": 64}, True, "RE", "a real-time signal has no name"),
    ({"status": EXIT_1}, False, "RE", "an exit status"),
]


@pytest.mark.parametrize("changes, compiled, expected, why", FAILURES, ids=[why for *_, why in FAILURES])
def test_failures(changes: dict, compiled: bool, expected: str | None, why: str) -> None:
    outcome = verdict.failure(replace(WELL, **changes), LIMITS, compiled=compiled)
    assert (outcome and outcome.verdict) == expected


ASSERTS = [
    # changes of the program's run, changes of the runner's run, verdict, why it is here
    ({}, {"exchange": b"P"}, "AC", "all asserts hold"),
    ({}, {"exchange": b"FAssertionError"}, "WA", "an assert fails"),
    ({}, {"exchange": b"RKeyError"}, "RE", "the program raises"),
    ({}, {}, "RE", "the runner wrote nothing"),
    ({}, {"exchange": b"P", "status": EXIT_1}, "RE", "the runner failed after its note"),
    ({"cpu_s": 2.0}, {"exchange": b"P"}, "TLE", "right, but too late"),
    ({"exchange": b"P"}, {"exchange": b"F"}, "WA", "the program claims success"),
    ({}, {"stopped": "cpu", "status": KILLED}, "TLE", "the asserts never end"),
]


@pytest.mark.parametrize("program, runner, expected, why", ASSERTS, ids=[why for *_, why in ASSERTS])
def test_assert_verdicts(program: dict, runner: dict, expected: str, why: str) -> None:
    outcome = verdict.assert_verdict(replace(WELL, **program), replace(WELL, **runner), LIMITS)
    assert outcome.verdict == expected


def test_a_returned_value_much_larger_than_the_expected_one_is_not_decoded() -> None:
    result = replace(WELL, exchange=b"V[" + b"[]," * 1_000_000 + b"1]")
    tracemalloc.start()
    outcome = verdict.output_verdict(result, Test(CALL, b"", [1]), "lines", 1e-6)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome.verdict == "WA" and peak < 10 << 20


def test_a_large_returned_value_equals_a_large_expected_one() -> None:
    expected = list(range(30_000))
    result = replace(WELL, exchange=b"V" + values.encode(tuple(map(float, expected))).encode())
    assert verdict.output_verdict(result, Test(CALL, b"", expected), "lines", 1e-6).verdict == "AC"


def test_an_output_that_breaks_the_comparison_costs_its_own_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "output_fault", lambda *arguments: 1 / 0)
    outcome = verdict.output_verdict(WELL, Test(STDIO, b"1", b"1"), "lines", 1e-6)
    assert outcome.verdict == "WA" and "ZeroDivisionError" in outcome.reason


def test_a_compile_error_holds_for_all_tests() -> None:
    outcomes = [Outcome("AC"), Outcome("CE", "line 1"), None]
    final = verdict.final_outcomes(outcomes, stop_early=False)
    assert [outcome.verdict for outcome in final] == ["CE", "CE", "CE"]


REPEATED = [
    # changes of a run that ends well, whether it is repeated, why it is here
    ({}, False, "nothing failed"),
    ({"status": KILLED}, True, "the kernel may have been out of memory"),
    ({"status": KILLED, "memory_mb": 101.0}, False, "killed with too much memory"),
    ({"status": KILLED, "stopped": "cpu", "cpu_s": 1.02}, False, "the watchdog killed it in time"),
    ({"status": KILLED, "stopped": "cpu", "cpu_s": 9.0}, True, "the pause of a virtual machine counts as CPU time"),
]


@pytest.mark.parametrize("changes, repeated, why", REPEATED, ids=[why for *_, why in REPEATED])
def test_a_run_is_repeated_if_the_machine_may_have_failed(changes: dict, repeated: bool, why: str) -> None:
    assert verdict.machine_may_have_failed(replace(WELL, **changes), LIMITS) == repeated


STOPS = cases(__file__, "stops")


@pytest.mark.parametrize("verdicts, stop_early, max_timeouts, expected, why", STOPS, ids=[why for *_, why in STOPS])
def test_a_stop_drops_results_behind_it(
    verdicts: str, stop_early: bool, max_timeouts: int | None, expected: str, why: str
) -> None:
    outcomes = [None if name == "-" else Outcome(name) for name in verdicts.split()]
    final = verdict.final_outcomes(outcomes, stop_early=stop_early, max_timeouts=max_timeouts)
    assert [outcome.verdict for outcome in final] == expected.split()


def test_reasons_are_printable() -> None:
    outcome = verdict.failure(replace(WELL, status=EXIT_1, stderr=b"\x1b[2Jbad"), LIMITS)
    assert outcome is not None and outcome.reason.isprintable() and "bad" in outcome.reason
