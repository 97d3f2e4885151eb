"""Convert tests with an input and an output from the columns of datasets to the judge's format.

Datasets have two lists of equal length. The judge takes a list of {"input": …, "output": …}. Truncated and repeated
tests are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

Test = dict[str, Any]

# Codeforces shows only the beginning of long tests, followed by "...".
_SHORTEST_CUT = 200

_NO_OUTPUT = re.compile(
    r"\b(?:empty|blank)\b|\bnothing\b(?! but| else| more)|\bno output\b|(?:not|n't) (?:print|output|write) anything",
    re.IGNORECASE,
)


class InvalidTests(ValueError):
    """Tests that cannot be used; the message is the reason, as half a sentence."""


def pair_tests(column: Any) -> list[Test]:
    """Return the tests of a column {"input": […], "output": […]}, or of a list of {"input": …, "output": …}.

    Raises:
        InvalidTests: unequal numbers of inputs and outputs, or an entry that is no text.
    """
    if column is None:
        return []
    if isinstance(column, dict):
        inputs, outputs = column.get("input") or [], column.get("output") or []
        if len(inputs) != len(outputs):
            raise InvalidTests("unequal numbers of inputs and outputs")
        tests = [{"input": given, "output": expected} for given, expected in zip(inputs, outputs, strict=True)]
    else:
        tests = [{"input": test.get("input"), "output": test.get("output")} for test in column]
    if not all(isinstance(text, str) for test in tests for text in test.values()):
        raise InvalidTests("an input or an output that is no text")
    return tests


def is_truncated(text: str) -> bool:
    """Whether a test's text is truncated: long, ending in "...", with no other dots than those of numbers.

    Grids of dots also end in "...".
    """
    text = text.rstrip()
    if not text.endswith("...") or len(text) < _SHORTEST_CUT:
        return False
    return re.search(r"(?<!\d)\.|\.(?!\d)", text[:-3]) is None


def drop_truncated(tests: Sequence[Test]) -> list[Test]:
    """Return the tests that are not truncated."""
    return [test for test in tests if not is_truncated(test["input"]) and not is_truncated(test["output"])]


def split_unanswered(tests: Sequence[Test], rules: str) -> tuple[list[Test], list[int]]:
    """Split off tests without an expected output, which a program passes that does nothing.

    Args:
        rules: what the statement says about the output. If it allows an empty one, all tests stay.

    Returns:
        The tests that stay, and the numbers of the others, from 1 on.
    """
    unanswered = [
        number
        for number, test in enumerate(tests, 1)
        if isinstance(output := test.get("output"), str) and not output.strip()
    ]
    if not unanswered or _NO_OUTPUT.search(rules):
        return list(tests), []
    return [test for number, test in enumerate(tests, 1) if number not in unanswered], unanswered


def note_on_unanswered(places: Sequence[str]) -> list[str]:
    """Return a note that names the tests that were split off, or five of them; nothing if there are none."""
    if not places:
        return []
    named = f"{', '.join(places[:5])}{', …' if len(places) > 5 else ''}"
    return [f"Left out {len(places):,} tests without an expected output, since the statement asks for one ({named})."]


def drop_shown(tests: Sequence[Test], shown: Sequence[Test] = ()) -> list[Test]:
    """Drop repeated tests, and those with a shown input, whose output a program could contain."""
    seen = {input_key(test) for test in shown}
    kept = []
    for test in tests:
        if (key := input_key(test)) not in seen:
            seen.add(key)
            kept.append(test)
    return kept


def input_key(test: Test) -> str:
    """Return the input as compared between tests: without trailing spaces."""
    return "\n".join(line.rstrip() for line in test["input"].strip().split("\n"))


def has_contradictions(tests: Iterable[Test]) -> bool:
    """Whether two tests expect different outputs for the same input: then several outputs are right."""
    outputs: dict[str, str] = {}
    for test in tests:
        output = " ".join(test["output"].split()).casefold()
        if outputs.setdefault(input_key(test), output) != output:
            return True
    return False
