"""Honest programs pass: no guard against attacks may affect them."""

from __future__ import annotations

import pytest

from tests.support.attacks.case import Case
from tests.support.attacks.suite import SuiteResult, run_suite, selected, skip_reason
from tests.support.honest import (
    cpp_functions,
    cpp_programs,
    python_asserts,
    python_calls,
    python_programs,
    python_streams,
)

MODULES = [python_streams, python_programs, python_calls, python_asserts, cpp_programs, cpp_functions]
HONEST = [case for module in MODULES for case in module.CASES]
SMOKE = {module.CASES[0].name for module in MODULES}  # one program of each kind

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(request: pytest.FixtureRequest) -> SuiteResult:
    return run_suite(selected(request, HONEST))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[pytest.mark.smoke] if case.name in SMOKE else []) for case in HONEST],
)
def test_an_honest_program_gets_its_verdict(case: Case, result: SuiteResult) -> None:
    if reason := skip_reason(case):
        pytest.skip(reason)
    judgement = result.judgements[case.name]
    assert case.unexpected_verdicts(judgement.verdicts) == [], f"{case.why}; {judgement.feedback}"
    assert judgement.score == judgement.verdicts.count("AC") / len(case.tests)


def test_no_file_process_or_kernel_object_is_left(result: SuiteResult) -> None:
    assert result.traces == []


def test_program_names_are_unique() -> None:
    names = [case.name for case in HONEST]
    assert sorted(names) == sorted(set(names))
