"""Hostile programs, judged: each with its right verdict, in time, and with nothing left of them on the machine."""

from __future__ import annotations

import pytest

from tests.support.attacks import (
    comparison,
    compiler_bombs,
    compiler_reading,
    endings,
    escapes_cpp,
    floods,
    forged_values,
    forgeries_cpp,
    harness,
    leaks,
    left_behind,
    memory,
    outputs,
    processes,
    reaching,
    reading,
    resources_cpp,
    slowness,
    statement_harness,
    statements,
    system_calls,
)
from tests.support.attacks.case import Case
from tests.support.attacks.suite import SuiteResult, run_suite, selected, why_not

MODULES = [
    memory,
    slowness,
    processes,
    floods,
    reading,
    reaching,
    system_calls,
    left_behind,
    leaks,
    endings,
    forged_values,
    harness,
    outputs,
    statements,
    statement_harness,
    comparison,
    resources_cpp,
    escapes_cpp,
    forgeries_cpp,
    compiler_reading,
    compiler_bombs,
]
ATTACKS = [case for module in MODULES for case in module.CASES]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(request: pytest.FixtureRequest) -> SuiteResult:
    return run_suite(selected(request, ATTACKS))


@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case.name)
def test_an_attack_earns_no_more_than_it_should(case: Case, result: SuiteResult) -> None:
    if reason := why_not(case):
        pytest.skip(reason)
    judgement = result.judgements[case.name]
    assert case.surprises(judgement.verdicts) == [], f"{case.why}; {judgement.feedback}"


def test_nothing_is_left_of_the_programs(result: SuiteResult) -> None:
    assert result.left_behind == []


def test_nobody_came_over_the_network(result: SuiteResult) -> None:
    assert result.visitors == []


def test_no_secret_is_in_what_the_judge_says(result: SuiteResult) -> None:
    assert result.leaks == []


def test_what_the_judge_says_is_short(result: SuiteResult) -> None:
    assert result.too_long == []


def test_what_the_judge_says_can_be_printed(result: SuiteResult) -> None:
    assert result.unprintable == []


def test_the_whole_suite_ends_in_time(result: SuiteResult) -> None:
    # Half a second of CPU time or two of waiting is the most that a program may take, two of CPU time a compilation.
    assert result.elapsed_s < 10 + 2.0 * len(result.judgements)


def test_every_attack_has_a_name_of_its_own() -> None:
    names = [case.name for case in ATTACKS]
    assert sorted(names) == sorted(set(names))
