"""Comparison of outputs: every comparison, right and wrong outputs, hostile bytes."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.verifiers.code.compare_output import output_fault
from rlvr.verifiers.code.tolerance import OUTPUT_COMPARISONS
from tests.support.input_errors import input_error

SAME, DIFFERENT = True, False

OUTPUTS = [
    ("lines", "1 2\n3\n", b"1 2\r\n3\r\n", SAME, "line ends of Windows"),
    ("lines", "1 2\r\n3", b"1 2\n3\n", SAME, "line ends of Windows in the data"),
    ("lines", "1\n", b"1\n\n \n\t\n", SAME, "blank lines at the end"),
    ("lines", b"\xff\xfe\n", b"\xff\xfe", SAME, "no UTF-8"),
    ("lines", "é\n", "é\n".encode(), SAME, "text is UTF-8"),
    ("lines", "\ud800", b"\xed\xa0\x80", SAME, "a lone surrogate has bytes, too"),
    ("lines", "a\0b\n", b"a\0b\n", SAME, "NUL"),
    ("lines", "Yes\n", b"YES\n", DIFFERENT, "case counts"),
    ("lines", "a 2.50 7\n", b"a 2.5 7 \n", SAME, "among other tokens"),
    ("lines", "1.0\n", b"1\n", SAME, "a whole number for a decimal"),
    ("lines", "0.0\n", b"-0.000\n", SAME, "minus nothing"),
    ("lines", "-0.5\n", b"-.5\n", SAME, "no digit before the point"),
    ("lines", "0.00001\n", b"1e-05\n", SAME, "an exponent"),
    ("lines", "1.5\n", b"+1.5\n", SAME, "a sign"),
    ("lines", "0.1\n", b"0.1000000000000000055511151231257827\n", DIFFERENT, "the float that is closest to it"),
    ("lines", "1\n", b"1.0\n", DIFFERENT, "an integer is compared as it is written"),
    ("lines", "7\n", b"07\n", DIFFERENT, "without zeros before it"),
    ("lines", "1e5\n", b"100000\n", DIFFERENT, "hexadecimal digits"),
    ("lines", "1.50,\n", b"1.5,\n", DIFFERENT, "punctuation makes a word"),
    ("lines", "1.5 2.5\n", b"1.50  2.50\n", DIFFERENT, "white space within a line counts beside decimals"),
    ("lines", "1.0\n", b"1.0e99999999999999999999\n", DIFFERENT, "an exponent beyond all numbers"),
    ("lines", "0.0\n", b"1e-99999999999999999999\n", DIFFERENT, "an exponent below all numbers"),
    ("tokens", "1.50 2\n", b"1.5\n2.\n", DIFFERENT, "a point after an integer"),
    ("tokens", "1.50 2.\n", b"1.5\n2", SAME, "values"),
    ("yes_no", "Yes 1.5E+1\n", b"yes 15.0", SAME, "values"),
    ("exact", "1.0\n", b"1.00\n", DIFFERENT, "every byte of a number"),
    ("unordered", "1.0 a\n2.50\n", b"2.5\n1 a\n", SAME, "values in any order"),
    ("unordered", "1.0\n1\n", b"1\n1.00\n", SAME, "an integer and a decimal of one value"),
    ("unordered", "1.0\n1\n", b"1.0\n1.00\n", DIFFERENT, "the integer is lacking"),
    ("unordered", "1.5\n1.50\n", b"1.500\n1.5\n1.5\n", DIFFERENT, "too often"),
    ("lines", "1\n2\n", b"1\x0b2\n", DIFFERENT, "a vertical tab ends no line"),
    ("lines", "1\n2\n", "1\u20282\n".encode(), DIFFERENT, "nor a line separator of Unicode"),
    ("lines", "1\n2\n3\n", b"1\x1c2\x1e3\n", DIFFERENT, "nor separators of ASCII"),
    ("lines", "ok\n", b"x\bok\n", DIFFERENT, "erased on a terminal"),
    ("lines", "1.5\n", b"1\n", DIFFERENT, "a decimal without what follows the point"),
    ("lines", "1.5\n", b"-1.50\n", DIFFERENT, "the other sign"),
    ("lines", "9007199254740992.0\n", b"9007199254740993\n", DIFFERENT, "off by less than a float shows"),
    ("lines", "1.5\n", b"1,5\n", DIFFERENT, "a decimal comma"),
    ("lines", "1.5\n", b"1.5m\n", DIFFERENT, "a number and its unit"),
    ("lines", "1.5\n", b"nan\n", DIFFERENT, "nan is no number"),
    ("lines", "1.0\n", b"1." + b"0" * 5000 + b"1\n", DIFFERENT, "more digits than any float has"),
    ("unordered", "2.5 1.0\n", b"1.0 2.50\n", DIFFERENT, "two decimals of a line, mixed"),
    ("yes_no", "1.o\n", b"1.0\n", DIFFERENT, "a decimal for a word"),
    ("yes_no", "yes\n", b"yes\nno\n", DIFFERENT, "both answers"),
    ("yes_no", "yes\n", b"yesno\n", DIFFERENT, "both answers in one word"),
    ("float", "1" + "0" * 29, b"1" + b"0" * 28 + b"1", DIFFERENT, "integers beyond floats are exact"),
    ("float", "nan", b"0.5", DIFFERENT, "an expected nan is near nothing"),
    ("float", "1e400", b"2e400", DIFFERENT, "two numbers beyond all floats"),
    ("float", "yes 1.5", b"no 1.5", DIFFERENT, "a word between numbers"),
    ("float", "1.5", b"1.4..1.6", DIFFERENT, "an interval"),
    ("lines", "1\n", b"1\0\n", DIFFERENT, "NUL is no white space"),
    ("lines", "1\n", "\ufeff1\n".encode(), DIFFERENT, "nor a byte order mark"),
    ("lines", "1\r2\n", b"1\n2\n", DIFFERENT, "a carriage return alone ends no line"),
    ("tokens", "1 2\n3\n", b" 1\n\n2   3", SAME, "any white space"),
    ("tokens", "1 2", b"1\t2\x0b\x0c\r\n", SAME, "all six of ASCII"),
    ("tokens", "1 2", b"12", DIFFERENT, "joined"),
    ("tokens", "1 2", b"2 1", DIFFERENT, "order counts"),
    ("tokens", "1 2", "1\u00a02".encode(), DIFFERENT, "only ASCII is white space"),
    ("tokens", "a", b"A", DIFFERENT, "case counts"),
    ("exact", "1\n", b"1\r\n", DIFFERENT, "and a carriage return"),
    ("float", "0.5", b"0.5000001", SAME, "near"),
    ("float", "0.5", b"+5.0e-1", SAME, "with an exponent"),
    ("float", "3.0", b"3", SAME, "a whole number for a float"),
    ("float", "1e3", b"1000", SAME, "so does an exponent"),
    ("float", "0.0", b"-0.0", SAME, "minus nothing"),
    ("float", "1000000.0", b"1000000.9", SAME, "relatively near"),
    ("float", "0.0000001", b"0.000001", SAME, "absolutely near"),
    ("float", "nan", b"nan", SAME, "the same words"),
    ("float", "0.1", b"0.1000011", DIFFERENT, "just too far"),
    ("float", "300000", b"300001", DIFFERENT, "integers are exact"),
    ("float", "3", b"3.0", SAME, "the same number, otherwise written"),
    ("float", "0.5", b"-0.5", DIFFERENT, "the sign"),
    ("float", "0.5", b"nan", DIFFERENT, "nan is near nothing"),
    ("float", "1000.0", b"1_000.0", DIFFERENT, "Python's underscores"),
    ("float", "0.5", "٠.٥".encode(), DIFFERENT, "digits of another script"),
    ("float", "0.5", b"1/2", DIFFERENT, "a fraction"),
    ("float", "0.5 0.5", b"0.5", DIFFERENT, "too few"),
    ("float", "0.5", b"0.5 0.5", DIFFERENT, "too many"),
    ("float", "0.5", b"", DIFFERENT, "nothing"),
    ("unordered", "1 2\n3\n", b"\n3 \n 1   2\n\n", SAME, "each of them by token"),
    ("unordered", "a\na\nb\n", b"a\nb\nb\n", DIFFERENT, "not as often"),
    ("unordered", "1 2\n", b"2 1\n", DIFFERENT, "tokens keep their order"),
    ("unordered", "1\n2\n", b"1 2\n", DIFFERENT, "lines are lines"),
    ("yes_no", "YES\nNO\n", b"yes No", SAME, "case and white space don't count"),
    ("yes_no", "Yes", b"Yes!", DIFFERENT, "letters do"),
    ("yes_no", "straße".upper(), "straße".encode(), DIFFERENT, "only ASCII has a case"),
    ("yes_no", "KELVIN", "\u212aelvin".encode(), DIFFERENT, "the Kelvin sign is no k"),
]


@pytest.mark.parametrize(("comparison", "expected", "got", "same", "why"), OUTPUTS)
def test_outputs_are_compared(comparison: str, expected: str | bytes, got: bytes, same: bool, why: str) -> None:
    assert (output_fault(expected, got, comparison) is None) == same, why


def test_lines_is_the_default() -> None:
    assert output_fault("1\n", b"1 ") is None
    assert output_fault("1 2\n", b"1  2") is not None


@pytest.mark.parametrize("comparison", OUTPUT_COMPARISONS)
@given(data=st.binary(max_size=60))
def test_every_output_equals_itself(comparison: str, data: bytes) -> None:
    assert output_fault(data, data, comparison) is None


LINES = st.lists(st.sampled_from([b"1", b"1 2", b" 1", b"x ", b"", b" ", b"\r", b"0.5", b"0.50"]), max_size=6)


def by_definition(comparison: str, text: bytes) -> Any:
    """Define the comparisons without regard for memory."""
    text = text.replace(b"0.50", b"0.5")
    if comparison == "lines":
        lines = [line.rstrip() for line in text.split(b"\n")]
        while lines and not lines[-1]:
            lines.pop()
        return lines
    if comparison == "unordered":
        return Counter(tuple(line.split()) for line in text.split(b"\n") if line.split())
    return [token.lower() if comparison == "yes_no" else token for token in text.split()]


@pytest.mark.parametrize("comparison", ["lines", "tokens", "unordered", "yes_no"])
@given(left=LINES, right=LINES)
def test_each_comparison_follows_its_definition(comparison: str, left: list[bytes], right: list[bytes]) -> None:
    one, other = b"\n".join(left), b"\n".join(right)
    expected = by_definition(comparison, one) == by_definition(comparison, other)
    assert (output_fault(one, other, comparison) is None) == expected


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9),
    st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-2, max_value=2),
    st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.5]),
)
def test_float_agrees_with_exact_decimal_arithmetic(expected: Decimal, error: Decimal, tolerance: float) -> None:
    got = expected + error * Decimal(repr(tolerance))
    near = abs(expected - got) <= Decimal(repr(tolerance)) * max(1, abs(expected))
    assert (output_fault(f"{expected:f}", f"{got:f}".encode(), "float", tolerance) is None) == near


def test_tolerance_0_requires_equal_numbers() -> None:
    assert output_fault("0.10", b"0.1", "float", 0) is None
    assert output_fault("0." + "1" * 50, b"0." + b"1" * 49 + b"2", "float", 0) is not None


@pytest.mark.parametrize(
    ("comparison", "expected", "got", "words", "why"),
    [
        ("lines", "1\n1 2 3 4 5\n", b"1\n1 2 3 4\n", ["line 2", "'1 2 3 4 5'", "'1 2 3 4'"], "a number is lacking"),
        ("lines", "1\n2\n3", b"1\n2\n", ["ends after line 2", "'3'"], "too short"),
        ("lines", "1\n", b"", ["is empty"], "nothing"),
        ("lines", "1\n", b"1\n\x1b[2J\n", ["goes on", r"'\x1b[2J"], "no terminal obeys it"),
        ("tokens", "1 2", b"1 \xff", ["token 2", "'2'", r"\\xff"], "no UTF-8"),
        ("exact", "a\nb\n", b"a\nc\n", ["line 2", r"'b\n'", r"'c\n'"], "a place"),
        ("exact", "abc", b"ab", ["line 1", "'abc'", "'ab'"], "too short"),
        ("exact", "ab", b"abc", ["line 1", "'ab'", "'abc'"], "too long"),
        ("unordered", "a\nb\n", b"b\nc\n", ["line 2", "'c'", "not expected"], "another line"),
        ("unordered", "a\nb\n", b"b\nb\n", ["'b'", "too often"], "twice"),
        ("unordered", "a\nb\n", b"b\n", ["lacks", "'a'"], "lacking"),
        ("float", "0.5", b"0.6", ["token 1", "'0.5'", "'0.6'"], "too far"),
    ],
)
def test_the_fault_says_where_the_output_differs(
    comparison: str, expected: str, got: bytes, words: list[str], why: str
) -> None:
    reason = output_fault(expected, got, comparison)
    assert reason is not None and all(word in reason for word in words), (why, reason)


@pytest.mark.parametrize("comparison", OUTPUT_COMPARISONS)
def test_a_fault_is_short_and_printable(comparison: str) -> None:
    reason = output_fault("x" * 100_000, b"y" * 100_000 + b"\n" * 10, comparison)
    assert reason is not None and len(reason) < 250


SIZE = 2_000_000
FLOODS = {
    "line ends": lambda: b"\n" * SIZE,
    "blanks": lambda: b" " * SIZE,
    "blanks before a letter": lambda: b" " * SIZE + b"x",
    "blank lines before a letter": lambda: b" \n" * (SIZE // 2) + b"x",
    "one line": lambda: b"1" * SIZE,
    "short lines": lambda: b"1\n" * (SIZE // 2),
    "lines that differ": lambda: b"\n".join(b"%d" % number for number in range(SIZE // 8)),
    "tokens": lambda: b"1 " * (SIZE // 2),
    "digits": lambda: b"1." + b"1" * SIZE,
    "NUL": lambda: b"\0" * SIZE,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_output_needs_little_memory_and_time(flood: str) -> None:
    got = FLOODS[flood]()
    for comparison in OUTPUT_COMPARISONS:
        tracemalloc.start()
        started = time.process_time()
        for expected in ("1\n" * 100, "1.5\n", ""):
            output_fault(expected, got, comparison)
        seconds = time.process_time() - started
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2.5 * len(got), "no more than a copy or two"
        assert seconds < 2, comparison


@pytest.mark.parametrize("comparison", OUTPUT_COMPARISONS)
@pytest.mark.parametrize("line", [b"1.5 2\n", b"12345678\n", b"x" * 999 + b"\n"])
def test_long_right_outputs_are_compared_in_linear_time(comparison: str, line: bytes) -> None:
    expected = line * (SIZE // 4 // len(line))
    got = expected.replace(b"\n", b" \n")
    started = time.process_time()
    same = output_fault(expected, got, comparison)
    assert time.process_time() - started < 10
    assert (same is None) == (comparison != "exact")


def test_numbers_of_many_digits_are_compared_in_linear_time() -> None:
    expected = "0.5 " * 3000
    got = b"0.5%s1 " % (b"0" * 1100) * 3000
    started = time.process_time()
    assert output_fault(expected, got, "float") is None
    assert output_fault(expected, got, "float", 0) is not None
    assert output_fault("0.5", b"0.5" + b"0" * 1_000_000, "float") is not None, "longer than any float is"
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("comparison", "tolerance", "kind", "why"),
    [
        ("token", 1e-6, "unknown-choice", "a typo"),
        ("zzz", 1e-6, "unknown-choice", "like none of them"),
        (None, 1e-6, "unknown-choice", "no text"),
        (["lines"], 1e-6, "unknown-choice", "can't be hashed"),
        ("float", -1e-6, "invalid-tolerance", "negative"),
        ("float", 1, "invalid-tolerance", "0 would equal every number"),
        ("float", math.nan, "invalid-tolerance", "no number"),
        ("float", "1e-6", "invalid-tolerance", "text"),
        ("float", True, "invalid-tolerance", "a truth value"),
    ],
)
def test_an_invalid_comparison_is_refused(comparison: Any, tolerance: Any, kind: str, why: str) -> None:
    with input_error(kind):
        output_fault("1", b"2", comparison, tolerance)
