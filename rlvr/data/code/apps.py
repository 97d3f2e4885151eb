"""Rows of APPS and TACO, and of data sets in their form: from their column `input_output` to what code rewards read.

The column holds JSON text:

    {'inputs': ['1 2\\n'], 'outputs': ['3\\n']}                       a program reads 1 2 and writes 3
    {'fn_name': 'add', 'inputs': [[1, 2]], 'outputs': [3]}        add(1, 2) is 3

Where LeetCode is the source, the function is a method of a class.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from rlvr.data.code.io_tests import BadTests, Test, without_cut
from rlvr.data.io import Row


@dataclass(frozen=True)
class Calls:
    """What a row of APPS or TACO is tested by: inputs and outputs, or calls of a function.

    Attributes:
        entry_point: the function that is called; None for programs that read input.
        prefix: code to put in front of a program: a function that calls the method which was asked for.
    """

    tests: list[Test]
    entry_point: str | None = None
    prefix: str | None = None


def from_apps(input_output: Any, starter_code: str = "") -> Calls:
    """The tests of a row of APPS or TACO.

    Their column `input_output` is JSON text: {"inputs": […], "outputs": […]}, and "fn_name" where a function is asked
    for. A test of a function has a list of arguments for its input. Its output is the value, or in many rows a list
    with nothing but the value in it: if all outputs of a row are such lists, that is what they are taken for, unless
    the starter code says that a list is returned.

    Raises:
        BadTests: no JSON, no tests, unequal numbers, arguments that are no list.
    """
    if isinstance(input_output, str):
        try:
            input_output = json.loads(input_output) if input_output.strip() else {}
        except (ValueError, RecursionError):
            raise BadTests("tests that are not valid JSON") from None
    if not isinstance(input_output, dict):
        raise BadTests("tests that are not valid JSON")
    inputs, outputs = input_output.get("inputs") or [], input_output.get("outputs") or []
    if len(inputs) != len(outputs):
        raise BadTests("unequal numbers of inputs and outputs")
    name = input_output.get("fn_name") or None
    if name is None:
        pairs = zip(inputs, outputs, strict=True)
        tests = without_cut([{"input": _lines(given), "output": _lines(wanted)} for given, wanted in pairs])
        return Calls(_some(tests))
    if not all(isinstance(arguments, list) for arguments in inputs):
        raise BadTests("arguments that are no list")
    if not isinstance(name, str) or not name.isidentifier():
        raise BadTests("a function whose name is none")
    returns_a_list = re.search(rf"\bdef {re.escape(name)}\b[^\n]*->\s*(?:typing\.)?[Ll]ist\b", starter_code)
    if not returns_a_list and all(isinstance(wanted, list) and len(wanted) == 1 for wanted in outputs):
        outputs = [wanted[0] for wanted in outputs]
    tests = _some([{"call": given, "expected": wanted} for given, wanted in zip(inputs, outputs, strict=True)])
    if not re.search(r"^\s*class Solution\b", starter_code, re.MULTILINE):
        return Calls(tests, name)
    return Calls(tests, f"call_{name}", _CALL_OF_A_METHOD.format(name=name))


# LeetCode's programs define a class, and count on the names of typing.
_CALL_OF_A_METHOD = """\
from typing import *


def call_{name}(*arguments):
    return Solution().{name}(*arguments)


"""


def _some(tests: list[Test]) -> list[Test]:
    if not tests:
        raise BadTests("no tests")
    return tests


def _lines(text: Any) -> str:
    """An input or an output as text: TACO has some as lists of lines."""
    return "\n".join(_lines(line) for line in text) if isinstance(text, list) else str(text)


def apps_columns(row: Row) -> Row:
    """The columns that a row of APPS or TACO becomes, its prompt left aside.

    `tests` is JSON text, since a column of arguments of all types has no type of its own.

    Raises:
        BadTests: as `from_apps`.
    """
    left_out = ("input_output", "solutions", "problem_id", "time_limit", "memory_limit")
    kept = {name: value for name, value in row.items() if name not in left_out}
    found = from_apps(row["input_output"], row.get("starter_code") or "")
    if row.get("problem_id") is not None:
        kept.setdefault("id", str(row["problem_id"]))
    for ours, theirs in (("time_s", "time_limit"), ("memory_mb", "memory_limit")):
        if theirs in row:
            kept[ours] = _first_number(row[theirs])
    return {
        **kept,
        "tests": json.dumps(found.tests, ensure_ascii=False),
        "entry_point": found.entry_point,
        "prefix": found.prefix,
        "language": "python",
    }


def _first_number(text: Any) -> float | None:
    """The number of "2.0 seconds" or "256.0 megabytes"; None where there is none."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)", text) if isinstance(text, str) else None
    return float(found[1]) if found and float(found[1]) > 0 else None
