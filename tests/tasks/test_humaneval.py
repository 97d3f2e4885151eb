"""HumanEval: test rows only, a test for each assert, and a prefix that makes a program of a continuation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.humaneval import humaneval
from tests.support.cases import cases
from tests.support.data_files import write_rows
from tests.support.input_errors import input_error

PROMPT = '''from typing import List


def double(n: int) -> int:
    return 2 * n


def doubled(numbers: List[int]) -> List[int]:
    """Doubles every number.

    >>> doubled([1, 2])
    [2, 4]
    """
'''
BODY = "    return [double(number) for number in numbers]\n"
METADATA = "\n\nMETADATA = {\n    'author': 'me'\n}\n\n\n"
CHECK = """def check(candidate):

    # Easy cases
    assert candidate([]) == []
    assert candidate([1, 2]) == [
        2,
        4,
    ], "two numbers"
    assert True, "This prints if this assert fails 1 (good for debugging!)"
"""
LOOP = "def check(candidate):\n    for n in range(5):\n        assert candidate([n]) == [double(n)]\n"


def problem(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": PROMPT,
        "entry_point": "doubled",
        "canonical_solution": BODY,
        "test": METADATA + CHECK,
        **fields,
    }


def passes(program: str, test: str) -> bool:
    names: dict[str, Any] = {}
    exec(program, names)
    try:
        exec(test, names)
    except (AssertionError, TypeError):
        return False
    return True


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write_rows(tmp_path / "HumanEval.jsonl", [problem(0), problem(1, test=METADATA + LOOP)])


def test_all_rows_are_test_rows(file: str) -> None:
    task = humaneval(path=file)
    assert (len(task.train), len(task.validation), len(task.test)) == (0, 0, 2)
    assert task.train.column_names == task.test.column_names


def test_a_row_has_the_columns_that_code_rewards_read_and_no_solution(file: str) -> None:
    row = humaneval(path=file).test[0]
    assert row["prefix"] == PROMPT
    assert (row["entry_point"], row["language"], row["source"]) == ("doubled", "python", "humaneval")
    assert row["id"] == "HumanEval/0"
    assert PROMPT.strip() in row["prompt"][0]["content"]
    assert BODY.strip() not in json.dumps(row)


def test_each_assert_is_a_test_and_those_that_test_nothing_are_left_out(file: str) -> None:
    asserts, loop = humaneval(path=file).test
    assert len(asserts["tests"]) == 2
    assert not any("assert True" in test["assert"] for test in asserts["tests"])
    assert len(loop["tests"]) == 1 and "check(doubled)" in loop["tests"][0]["assert"]


@pytest.mark.parametrize(
    ("body", "share", "why"),
    [
        (BODY, 1.0, "right"),
        ("    return []\n", 0.5, "right for no numbers"),
        ("    pass\n", 0.0, "a stub"),
        ("    return None\n", 0.0, "wrong for all"),
    ],
)
def test_a_program_passes_all_asserts_if_it_passes_the_whole_check(
    file: str, body: str, share: float, why: str
) -> None:
    asserts, loop = humaneval(path=file).test
    assert [passes(PROMPT + body, test["assert"]) for test in loop["tests"]] == [share == 1], why
    assert sum(passes(PROMPT + body, test["assert"]) for test in asserts["tests"]) == 2 * share, why


def test_the_prefix_makes_a_program_of_a_continuation_and_of_a_whole_function(file: str) -> None:
    row = humaneval(path=file).test[0]
    whole = "def doubled(numbers: List[int]) -> List[int]:\n    return [double(n) for n in numbers]\n"
    for answer in (BODY, whole):
        assert all(passes(row["prefix"] + answer, test["assert"]) for test in row["tests"])


@pytest.mark.parametrize(("fields", "column", "why"), cases(__file__, "rows that cannot be"))
def test_rows_that_cannot_be_used_are_named(tmp_path: Path, fields: dict, column: str, why: str) -> None:
    with input_error("invalid-row", column, 1, why=why):
        humaneval(path=write_rows(tmp_path / "HumanEval.jsonl", [problem(0), problem(1, **fields)]))
