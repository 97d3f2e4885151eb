"""Rows of the data that no program can be judged by are found before training."""

from __future__ import annotations

from typing import Any

import pytest

from rlvr.errors import InputError
from rlvr.verifiers.code import judge_many
from rlvr.verifiers.code.options import JudgeOptions
from rlvr.verifiers.code.problems import row_faults
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
