"""Rows of the data that no program can be judged by are found before training."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.code_execution import code_execution
from rlvr.verifiers.code import judge_many
from rlvr.verifiers.code.problems import validate_rows
from tests.support.cases import cases
from tests.support.input_errors import input_error
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
    first, row = validate_rows(tests=[SUMS, tests], **{name: [None, text] for name, text in columns.items()})
    assert first is None
    assert (row is None) if word is None else (row is not None and word in row), why


def test_the_signature_of_every_submission_is_checked() -> None:
    right = {"program": "int add(int a, int b) { return a + b; }", "tests": [CALL], **ADD}
    with input_error("missing-signature", row=1):
        judge_many([right, {**right, "signature": None}])


def test_an_option_is_for_the_rows_that_compare_numbers() -> None:
    near = "```python\nprint(0.501)\n```"
    columns: dict[str, Any] = {
        "tests": [[{"input": "", "output": "0.5"}]] * 2,
        "comparison": ["float", "lines"],
        "tolerance": 0.01,
    }
    assert code_execution([""] * 2, [near] * 2, **columns) == [1.0, 0.0]


@pytest.mark.parametrize(("options", "is_valid", "why"), cases(__file__, "a time limit is"))
def test_a_time_limit_is_not_in_milliseconds(options: dict[str, Any], is_valid: bool, why: str) -> None:
    [fault] = validate_rows(tests=[SUMS], **options)
    assert (fault is None) == is_valid, why
    assert is_valid or "milliseconds" in str(fault)


@pytest.mark.parametrize(
    ("entry_point", "is_valid"), [("add", True), ("Solution.add", True), ("Solution().add", False), ("add()", False)]
)
def test_an_entry_point_of_a_call_is_a_name(entry_point: str, is_valid: bool) -> None:
    [fault] = validate_rows(tests=[[CALL]], entry_point=[entry_point])
    assert (fault is None) == is_valid and (is_valid or "Solution.add" in str(fault))
