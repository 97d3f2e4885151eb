"""Rows of the data that no program can be judged by are found before training."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.code_execution import code_execution
from rlvr.errors import InputError
from rlvr.verifiers.code import judge_many
from rlvr.verifiers.code.options import JudgeOptions
from rlvr.verifiers.code.problems import row_faults
from tests.support.cases import cases
from tests.support.judged_programs import SUMS

CALL = {"call": [1, 2], "expected": 3}
ADD = {"language": "cpp", "entry_point": "add", "signature": "int add(int, int)"}


@pytest.mark.parametrize(
    ("columns", "tests", "word", "why"),
    [
        (ADD, [CALL], None, "a function with its signature"),
        ({"language": "cpp"}, SUMS, None, "standard input needs no signature"),
        ({"language": "cpp", "entry_point": "add"}, [CALL], "signature", "a function without its signature"),
        ({**ADD, "signature": "int sum(int, int)"}, [CALL], "signature", "the signature of another function"),
        ({**ADD, "signature": "int add"}, [CALL], "signature", "a signature without parameters"),
        ({**ADD, "language": "c"}, [CALL], "Python and C++", "a function in C"),
        ({**ADD, "language": "rust"}, [CALL], "Python and C++", "a function in Rust"),
        (ADD, [CALL, *SUMS], "mixed", "calls beside standard input"),
    ],
)
def test_rows_whose_function_cannot_be_called_are_named(
    columns: dict[str, str], tests: list[Any], word: str | None, why: str
) -> None:
    first, row = row_faults(JudgeOptions(tests=[SUMS, tests], **{name: [None, text] for name, text in columns.items()}))
    assert first is None
    assert (row is None) if word is None else (row is not None and word in row), why


def test_the_signature_of_every_submission_is_checked() -> None:
    right = {"program": "int add(int a, int b) { return a + b; }", "tests": [CALL], **ADD}
    with pytest.raises(InputError) as error:
        judge_many([right, {**right, "signature": None}])
    assert (error.value.kind, error.value.row) == ("missing-signature", 1)


HALF = {"input": "", "output": "0.5"}
FLOAT, LINES = {**HALF, "comparison": "float"}, {**HALF, "comparison": "lines"}


@pytest.mark.parametrize(
    ("columns", "tests", "is_valid", "why"),
    [
        ({"tolerance": [0.01], "comparison": ["float"]}, [HALF], True, "of the row"),
        ({"tolerance": [0.01], "comparison": "float"}, [HALF], True, "beside an option"),
        ({"tolerance": [0.01]}, [HALF, FLOAT], True, "of one of the tests"),
        ({"tolerance": [1e-6], "comparison": ["lines"]}, [HALF], True, "the default, as prepared data have it"),
        ({"comparison": ["float"]}, [{**HALF, "tolerance": 0.01}], True, "of a test, with the row's comparison"),
        ({}, [{**FLOAT, "tolerance": 0.01}], True, "of a test"),
        ({"tolerance": 0.01, "comparison": ["lines"]}, [HALF], True, "an option, for rows of another split"),
        ({"tolerance": 0.01}, [FLOAT], True, "an option for a test"),
        ({"tolerance": 0.01, "comparison": "float"}, [LINES], True, "two options"),
        ({"tolerance": [0.01]}, [HALF], False, "without a comparison"),
        ({"tolerance": [1e-6]}, [HALF], False, "the default, without a comparison"),
        ({"tolerance": [0.01], "comparison": ["lines"]}, [HALF], False, "with another comparison"),
        ({"tolerance": [0.01], "comparison": "tokens"}, [HALF], False, "with another option"),
        ({"tolerance": [0.01]}, [{"assert": "assert f(1) == 0.5"}], False, "asserts have no tolerance"),
        ({"tolerance": [0.01], "entry_point": ["f"]}, [{"call": [1], "expected": 0.5}], False, "calls need it, too"),
        ({}, [{**HALF, "tolerance": 0.01}], False, "of a test, without a comparison"),
        ({"comparison": ["float"]}, [{**LINES, "tolerance": 0.01}], False, "of a test with another comparison"),
    ],
)
def test_a_tolerance_needs_a_comparison_of_numbers(
    columns: dict[str, Any], tests: list[Any], is_valid: bool, why: str
) -> None:
    [fault] = row_faults(JudgeOptions(tests=[tests], **columns))
    assert (fault is None) == is_valid, why
    assert is_valid or "comparison: float" in str(fault)


@pytest.mark.parametrize("comparison", [None, "lines"])
def test_an_option_without_effect_on_any_row_is_refused(comparison: str | None) -> None:
    with pytest.raises(InputError) as error:
        row_faults(JudgeOptions(tests=[[HALF]], tolerance=0.01, comparison=comparison))
    assert (error.value.kind, error.value.key) == ("tolerance-without-float", "tolerance")


def test_an_option_is_for_the_rows_that_compare_numbers() -> None:
    near = "```python\nprint(0.501)\n```"
    columns: dict[str, Any] = {"tests": [[HALF]] * 2, "comparison": ["float", "lines"], "tolerance": 0.01}
    assert code_execution([""] * 2, [near] * 2, **columns) == [1.0, 0.0]


@pytest.mark.parametrize(("options", "is_valid", "why"), cases(__file__, "a time limit is"))
def test_a_time_limit_is_not_in_milliseconds(options: dict[str, Any], is_valid: bool, why: str) -> None:
    [fault] = row_faults(JudgeOptions(tests=[SUMS], **options))
    assert (fault is None) == is_valid, why
    assert is_valid or "milliseconds" in str(fault)


@pytest.mark.parametrize(
    ("tests", "is_explained", "why"),
    [
        (None, False, "the row has no tests"),
        ([], True, "perhaps none were left"),
        ("[]", True, "also as JSON text"),
    ],
)
def test_a_row_whose_tests_were_left_out_says_so(tests: Any, is_explained: bool, why: str) -> None:
    [fault] = row_faults(JudgeOptions(tests=[tests]))
    assert fault is not None and ("empty output" in fault) == is_explained, why


@pytest.mark.parametrize(("source", "entry_point", "words", "why"), cases(__file__, "entry-points"))
def test_asserts_that_no_program_passes_are_named(
    source: str, entry_point: str | None, words: str | None, why: str
) -> None:
    [fault] = row_faults(JudgeOptions(tests=[[{"assert": source}]], entry_point=[entry_point]))
    assert (fault is None) if words is None else (fault is not None and words in fault), why
    if words is None:
        method = "class Solution:\n    def add(self, a, b):\n        return a + b\n"
        program = method if entry_point == "Solution.add" else "def add(a, b):\n    return a + b\n"
        submission = {
            "program": program,
            "language": "python",
            "tests": [{"assert": source}],
            "entry_point": entry_point,
        }
        assert judge_many([submission])[0].verdicts == ["AC"], "and a right program passes"


@pytest.mark.parametrize(
    ("entry_point", "is_valid"), [("add", True), ("Solution.add", True), ("Solution().add", False), ("add()", False)]
)
def test_an_entry_point_of_a_call_is_a_name(entry_point: str, is_valid: bool) -> None:
    [fault] = row_faults(JudgeOptions(tests=[[CALL]], entry_point=[entry_point]))
    assert (fault is None) == is_valid and (is_valid or "Solution.add" in str(fault))
