"""Honest programs, judged: none may suffer from what is done against the others."""

from __future__ import annotations

import pytest

from tests.support.attacks.case import Case
from tests.support.attacks.suite import SuiteResult, run_suite, selected, why_not
from tests.support.honest import (
    cpp_functions,
    cpp_programs,
    python_calls,
    python_programs,
    python_statements,
    python_streams,
)

MODULES = [python_streams, python_programs, python_calls, python_statements, cpp_programs, cpp_functions]
HONEST = [case for module in MODULES for case in module.CASES]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(request: pytest.FixtureRequest) -> SuiteResult:
    return run_suite(selected(request, HONEST))


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_program_gets_what_it_deserves(case: Case, result: SuiteResult) -> None:
    if reason := why_not(case):
        pytest.skip(reason)
    judgement = result.judgements[case.name]
    assert case.surprises(judgement.verdicts) == [], f"{case.why}; {judgement.feedback}"
    assert judgement.score == judgement.verdicts.count("AC") / len(case.tests)


def test_nothing_is_left_of_the_programs(result: SuiteResult) -> None:
    assert result.left_behind == []


def test_every_program_has_a_name_of_its_own() -> None:
    names = [case.name for case in HONEST]
    assert sorted(names) == sorted(set(names))
