"""Convert rows of APPS, TACO and datasets in their format to the columns of the code rewards.

Their column `input_output` contains JSON text:

    {'inputs': ['1 2\\n'], 'outputs': ['3\\n']}                       a program reads 1 2 and writes 3
    {'fn_name': 'add', 'inputs': [[1, 2]], 'outputs': [3]}        add(1, 2) is 3

In problems from LeetCode, the function is a method of a class.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from rlvr.data.code.io_tests import InvalidTests, Test, drop_truncated, note_on_unanswered, split_unanswered
from rlvr.data.code.problem_text import add_decimal_points, choose_comparison, parse_statement
from rlvr.data.code.prompts import build_prompt
from rlvr.data.input_checks import missing_column_error
from rlvr.data.io import Row
from rlvr.data.splits import notes_on_dropped

_BLANK_OUTPUT = re.compile(r'"output"\s*:\s*"(?:\\[nrt]|\s)*"')


@dataclass(frozen=True)
class AppsTests:
    """Tests of a row of APPS or TACO: inputs and outputs, or calls of a function.

    Attributes:
        entry_point: the function that tests call; None for programs that read input.
        prefix: code to put before a program: a function that calls LeetCode's method.
    """

    tests: list[Test]
    entry_point: str | None = None
    prefix: str | None = None


def parse_apps_tests(input_output: Any, starter_code: str = "") -> AppsTests:
    """Parse the column `input_output` of a row.

    The input of a function's test is a list of arguments. Its output is the value or, in many rows, a list of that one
    value. Outputs of a row that are all such lists are unwrapped, unless the starter code returns a list.

    Raises:
        InvalidTests: invalid JSON, no tests, unequal numbers, or arguments that are no list.
    """
    if isinstance(input_output, str):
        try:
            input_output = json.loads(input_output) if input_output.strip() else {}
        except (ValueError, RecursionError):
            raise InvalidTests("tests that are not valid JSON") from None
    if not isinstance(input_output, dict):
        raise InvalidTests("tests that are not valid JSON")
    inputs, outputs = input_output.get("inputs") or [], input_output.get("outputs") or []
    if len(inputs) != len(outputs):
        raise InvalidTests("unequal numbers of inputs and outputs")
    if not inputs:
        raise InvalidTests("no tests")
    name = input_output.get("fn_name") or None
    if name is None:
        pairs = zip(inputs, outputs, strict=True)
        tests = drop_truncated(
            [{"input": _join_lines(given), "output": _join_lines(expected)} for given, expected in pairs]
        )
        if not tests:
            raise InvalidTests("no tests")
        return AppsTests(tests)
    if not all(isinstance(arguments, list) for arguments in inputs):
        raise InvalidTests("arguments that are no list")
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidTests("a function whose name is none")
    returns_a_list = re.search(rf"\bdef {re.escape(name)}\b[^\n]*->\s*(?:typing\.)?[Ll]ist\b", starter_code)
    if not returns_a_list and all(isinstance(output, list) and len(output) == 1 for output in outputs):
        outputs = [output[0] for output in outputs]
    tests = [{"call": arguments, "expected": output} for arguments, output in zip(inputs, outputs, strict=True)]
    if not re.search(r"^\s*class Solution\b", starter_code, re.MULTILINE):
        return AppsTests(tests, name)
    return AppsTests(tests, f"call_{name}", _CALL_OF_A_METHOD.format(name=name))


# LeetCode's programs define a class, and use names of typing without importing them.
_CALL_OF_A_METHOD = """\
from typing import *


def call_{name}(*arguments):
    return Solution().{name}(*arguments)


"""


def _join_lines(text: Any) -> str:
    """Return an input or output as text; TACO has some as lists of lines."""
    return "\n".join(_join_lines(line) for line in text) if isinstance(text, list) else str(text)


def convert_apps_row(row: Row) -> Row:
    """Convert the columns of a row of APPS or TACO, except its prompt.

    `tests` is JSON text, because a dataset column cannot mix arguments of different types.

    Raises:
        InvalidTests: as in `parse_apps_tests`, or no test has an expected output.
    """
    left_out = ("input_output", "solutions", "problem_id", "time_limit", "memory_limit")
    kept = {name: value for name, value in row.items() if name not in left_out}
    tests = parse_apps_tests(row["input_output"], row.get("starter_code") or "")
    if tests.entry_point is None and isinstance(row.get("question"), str):
        statement = parse_statement(row["question"])
        answered, _ = split_unanswered(tests.tests, statement.output_rules)
        if not answered:
            raise InvalidTests("no expected output")
        outputs = [test["output"] for test in answered]
        kept["comparison"], kept["tolerance"] = choose_comparison(statement, outputs)
        if kept["comparison"] == "float":
            tests = replace(
                tests, tests=[{**test, "output": add_decimal_points(test["output"])} for test in tests.tests]
            )
    if row.get("problem_id") is not None:
        kept.setdefault("id", str(row["problem_id"]))
    for ours, theirs in (("time_s", "time_limit"), ("memory_mb", "memory_limit")):
        if theirs in row:
            kept[ours] = _first_number(row[theirs])
    return {
        **kept,
        "tests": json.dumps(tests.tests, ensure_ascii=False),
        "entry_point": tests.entry_point,
        "prefix": tests.prefix,
        "language": "python",
    }


def _first_number(text: Any) -> float | None:
    """Return the number of "2.0 seconds" or "256.0 megabytes"; None if there is none."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)", text) if isinstance(text, str) else None
    return float(match[1]) if match and float(match[1]) > 0 else None


def convert_apps_rows(
    path: str, raw: dict[str, list[Row]], template: str | None
) -> tuple[dict[str, list[Row]], list[str]]:
    """Convert rows of APPS or TACO; other rows stay as they are.

    Returns:
        The splits, without rows whose tests cannot be used, and notes.
    """
    splits: dict[str, list[Row]] = {}
    dropped: dict[str, list[str]] = {}
    has_apps_rows = False
    for split, rows in raw.items():
        splits[split] = []
        for index, row in enumerate(rows):
            if "input_output" not in row or "tests" in row:
                splits[split].append(row)
                continue
            has_apps_rows = True
            try:
                converted = convert_apps_row(row)
            except InvalidTests as error:
                dropped.setdefault(str(error), []).append(f"{split} row {index}")
                continue
            if template is None and "prompt" not in row:
                if not isinstance(row.get("question"), str):
                    raise missing_column_error(
                        f"{path}, {split} row {index}", "question", row, "The prompt needs it.", row=index
                    )
                converted["prompt"] = build_prompt(converted["entry_point"], row["question"], row.get("starter_code"))
            splits[split].append(converted)
    if not has_apps_rows:
        return raw, []
    notes = ["Made tests from the column input_output; left out the columns input_output and solutions."]
    return splits, notes + notes_on_dropped(dropped, "row")


def drop_unanswered(splits: dict[str, list[Row]]) -> list[str]:
    """Leave out tests without an expected output, in place, and return notes on them. A checker may need none."""
    places = []
    for split, rows in splits.items():
        for index, row in enumerate(rows):
            tests = column = row.get("tests")
            if isinstance(column, str) and _BLANK_OUTPUT.search(column):
                with contextlib.suppress(ValueError, RecursionError):  # the reward names such a row
                    tests = json.loads(column)
            if not isinstance(tests, list) or not all(isinstance(test, dict) for test in tests) or row.get("checker"):
                continue
            question: Any = row.get("question", row["prompt"])
            rules = question if isinstance(question, str) else str(question[-1]["content"])
            kept, unanswered = split_unanswered(tests, parse_statement(rules).output_rules)
            if unanswered:
                row["tests"] = json.dumps(kept, ensure_ascii=False) if isinstance(column, str) else kept
                places += [f"{split} row {index} test {number}" for number in unanswered]
    return note_on_unanswered(places)
