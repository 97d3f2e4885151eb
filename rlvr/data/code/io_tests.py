"""Tests of programs that read an input and write an output: from the columns of data sets to the judge's form.

Data sets hold an input and an output for each test, in two lists of the same length. The judge takes a list of
{"input": …, "output": …}. On the way, tests that no right program could pass are left out: those that were cut off when
they were copied, and those that are there twice.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

Test = dict[str, Any]

# Codeforces shows the beginning of long tests, with "..." after it.
_SHORTEST_CUT = 200


class BadTests(ValueError):
    """Tests that can't be used; the message says why, as half a sentence."""


def paired(column: Any) -> list[Test]:
    """The tests of a column {"input": […], "output": […]}, or of a list of {"input": …, "output": …}.

    Raises:
        BadTests: unequal numbers of inputs and outputs, or something that is no text.
    """
    if column is None:
        return []
    if isinstance(column, dict):
        inputs, outputs = column.get("input") or [], column.get("output") or []
        if len(inputs) != len(outputs):
            raise BadTests(f"{len(inputs)} inputs, but {len(outputs)} outputs")
        tests = [{"input": given, "output": wanted} for given, wanted in zip(inputs, outputs, strict=True)]
    else:
        tests = [{"input": test.get("input"), "output": test.get("output")} for test in column]
    if not all(isinstance(text, str) for test in tests for text in test.values()):
        raise BadTests("an input or an output that is no text")
    return tests


def is_cut(text: str) -> bool:
    """Whether a test's text breaks off: long, and it ends in "..." though no other dot stands in it but in numbers.

    Grids of dots end so too.
    """
    text = text.rstrip()
    if not text.endswith("...") or len(text) < _SHORTEST_CUT:
        return False
    return re.search(r"(?<!\d)\.|\.(?!\d)", text[:-3]) is None


def without_cut(tests: Sequence[Test]) -> list[Test]:
    """The tests that are there whole."""
    return [test for test in tests if not is_cut(test["input"]) and not is_cut(test["output"])]


def without_shown(tests: Sequence[Test], shown: Sequence[Test] = ()) -> list[Test]:
    """Each test once, without those whose input is shown: a program could have their outputs written into it."""
    seen = {input_key(test) for test in shown}
    kept = []
    for test in tests:
        if (key := input_key(test)) not in seen:
            seen.add(key)
            kept.append(test)
    return kept


def input_key(test: Test) -> str:
    """What two tests have in common that give the same input."""
    return "\n".join(line.rstrip() for line in test["input"].strip().split("\n"))


def contradicts(tests: Iterable[Test]) -> bool:
    """Whether the same input is to give different outputs: then several are right, and only one of them is known."""
    outputs: dict[str, str] = {}
    for test in tests:
        output = " ".join(test["output"].split()).casefold()
        if outputs.setdefault(input_key(test), output) != output:
            return True
    return False


def sampled(tests: Sequence[Test], most: int | None, seed: str) -> list[Test]:
    """At most so many of the tests, in their order; a larger number with the same seed adds to them."""
    if most is None or most >= len(tests):
        return list(tests)
    order = list(range(len(tests)))
    random.Random(seed).shuffle(order)
    return [tests[index] for index in sorted(order[:most])]
