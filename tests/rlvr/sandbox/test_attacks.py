"""Hostile programs get an allowed verdict in time and leave nothing on the machine."""

from __future__ import annotations

import pytest

from tests.support.attacks import (
    assert_forgeries,
    assert_tampering,
    comparison,
    compiler_bombs,
    compiler_reading,
    early_exits,
    escapes_cpp,
    file_reads,
    floods,
    forged_values,
    forgeries_cpp,
    harness_tampering,
    leaks,
    memory,
    network_and_signals,
    outputs,
    persistence,
    processes,
    resources_cpp,
    slowness,
    system_calls,
)
from tests.support.attacks.case import Case
from tests.support.attacks.suite import SuiteResult, run_suite, selected, skip_reason

MODULES = [
    memory,
    slowness,
    processes,
    floods,
    file_reads,
    network_and_signals,
    system_calls,
    persistence,
    leaks,
    early_exits,
    forged_values,
    harness_tampering,
    outputs,
    assert_forgeries,
    assert_tampering,
    comparison,
    resources_cpp,
    escapes_cpp,
    forgeries_cpp,
    compiler_reading,
    compiler_bombs,
]
ATTACKS = [case for module in MODULES for case in module.CASES]
SMOKE = {module.CASES[0].name for module in MODULES}  # one attack of each family

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(request: pytest.FixtureRequest) -> SuiteResult:
    return run_suite(selected(request, ATTACKS))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[pytest.mark.smoke] if case.name in SMOKE else []) for case in ATTACKS],
)
def test_an_attack_gets_an_allowed_verdict(case: Case, result: SuiteResult) -> None:
    if reason := skip_reason(case):
        pytest.skip(reason)
    judgement = result.judgements[case.name]
    assert case.unexpected_verdicts(judgement.verdicts) == [], f"{case.why}; {judgement.feedback}"


@pytest.mark.smoke
def test_no_file_process_or_kernel_object_is_left(result: SuiteResult) -> None:
    assert result.traces == []


def test_no_program_reached_a_socket(result: SuiteResult) -> None:
    assert result.contacted == []


def test_no_message_contains_a_secret(result: SuiteResult) -> None:
    assert result.leaks == []


def test_messages_are_short(result: SuiteResult) -> None:
    assert result.too_long == []


def test_feedback_is_printable(result: SuiteResult) -> None:
    assert result.unprintable == []


def test_the_whole_suite_ends_in_time(result: SuiteResult) -> None:
    # A program may compute for half a second or wait for two; a compilation may compute for two.
    assert result.elapsed_s < 10 + 2.0 * len(result.judgements)


def test_attack_names_are_unique() -> None:
    names = [case.name for case in ATTACKS]
    assert sorted(names) == sorted(set(names))
