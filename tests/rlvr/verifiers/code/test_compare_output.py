"""What counts as the expected output or value: every comparator, right and wrong, and on hostile bytes."""

from __future__ import annotations

import math
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import InputError
from rlvr.verifiers.code.compare_output import output_fault
from rlvr.verifiers.code.compare_values import value_fault
from rlvr.verifiers.code.tolerance import OUTPUT_COMPARISONS, VALUE_COMPARISONS

SAME, DIFFERENT = True, False

OUTPUTS = [
    ("lines", "1 2\n3\n", b"1 2\n3\n", SAME, "byte by byte"),
    ("lines", "1 2\n3\n", b"1 2 \n3\t\n", SAME, "white space at the ends of lines"),
    ("lines", "1 2\n3\n", b"1 2\r\n3\r\n", SAME, "line ends of Windows"),
    ("lines", "1 2\r\n3", b"1 2\n3\n", SAME, "line ends of Windows in the data"),
    ("lines", "1\n", b"1", SAME, "no line end at the end"),
    ("lines", "1\n", b"1\n\n \n\t\n", SAME, "blank lines at the end"),
    ("lines", "", b"\n", SAME, "nothing but a line end"),
    ("lines", "", b"", SAME, "nothing"),
    ("lines", b"\xff\xfe\n", b"\xff\xfe", SAME, "no UTF-8"),
    ("lines", "é\n", "é\n".encode(), SAME, "text is UTF-8"),
    ("lines", "\ud800", b"\xed\xa0\x80", SAME, "a lone surrogate has bytes, too"),
    ("lines", "a\0b\n", b"a\0b\n", SAME, "NUL"),
    ("lines", "1 2\n", b"1  2\n", DIFFERENT, "white space within a line counts"),
    ("lines", "1 2\n", b" 1 2\n", DIFFERENT, "white space before a line counts"),
    ("lines", "1\n2\n", b"1\n\n2\n", DIFFERENT, "a blank line between"),
    ("lines", "1\n2\n", b"\n1\n2\n", DIFFERENT, "a blank line before"),
    ("lines", "1\n2\n", b"1 2\n", DIFFERENT, "line ends count"),
    ("lines", "1\n2\n", b"1\n", DIFFERENT, "only a beginning"),
    ("lines", "1\n2\n", b"", DIFFERENT, "nothing"),
    ("lines", "1\n", b"1\n2\n", DIFFERENT, "more than was asked for"),
    ("lines", "", b"1\n", DIFFERENT, "something for nothing"),
    ("lines", "Yes\n", b"YES\n", DIFFERENT, "case counts"),
    ("lines", "1.0\n", b"1.00\n", DIFFERENT, "no number is read"),
    ("lines", "1\n", b"1\0\n", DIFFERENT, "NUL is no white space"),
    ("lines", "1\n", "1\u00a0\n".encode(), DIFFERENT, "nor is a no-break space"),
    ("lines", "1\n", "\ufeff1\n".encode(), DIFFERENT, "nor a byte order mark"),
    ("lines", "1\r2\n", b"1\n2\n", DIFFERENT, "a carriage return alone ends no line"),
    ("tokens", "1 2\n3\n", b" 1\n\n2   3", SAME, "any white space"),
    ("tokens", "1 2", b"1\t2\x0b\x0c\r\n", SAME, "all six of ASCII"),
    ("tokens", "", b" \n ", SAME, "no tokens"),
    ("tokens", "12", b"1 2", DIFFERENT, "parted"),
    ("tokens", "1 2", b"12", DIFFERENT, "joined"),
    ("tokens", "1 2", b"2 1", DIFFERENT, "order counts"),
    ("tokens", "1 2", b"1", DIFFERENT, "too few"),
    ("tokens", "1 2", b"1 2 3", DIFFERENT, "too many"),
    ("tokens", "1 2", "1\u00a02".encode(), DIFFERENT, "only ASCII is white space"),
    ("tokens", "a", b"A", DIFFERENT, "case counts"),
    ("exact", "1\n", b"1\n", SAME, "every byte"),
    ("exact", "1\n", b"1", DIFFERENT, "a line end is a byte"),
    ("exact", "1\n", b"1\r\n", DIFFERENT, "and a carriage return"),
    ("exact", "1", b"1\n", DIFFERENT, "one too many"),
    ("float", "0.5", b"0.5000001", SAME, "near"),
    ("float", "0.5", b".5", SAME, "written in another way"),
    ("float", "0.5", b"+5.0e-1", SAME, "with an exponent"),
    ("float", "3.0", b"3", SAME, "a whole number for a float"),
    ("float", "3.", b"3", SAME, "a point makes a float"),
    ("float", "1e3", b"1000", SAME, "so does an exponent"),
    ("float", "0.0", b"-0.0", SAME, "minus nothing"),
    ("float", "1000000.0", b"1000000.9", SAME, "relatively near"),
    ("float", "0.0000001", b"0.000001", SAME, "absolutely near"),
    ("float", "-2.5 7 x", b"-2.50 7 x\n", SAME, "among words and integers"),
    ("float", "nan", b"nan", SAME, "the same words"),
    ("float", "0.1", b"0.1000011", DIFFERENT, "just too far"),
    ("float", "1000000.0", b"1000001.1", DIFFERENT, "relatively too far"),
    ("float", "300000", b"300001", DIFFERENT, "integers are exact"),
    ("float", "3", b"3.0", SAME, "the same number, otherwise written"),
    ("float", "0.5", b"-0.5", DIFFERENT, "the sign"),
    ("float", "0.5", b"nan", DIFFERENT, "nan is near nothing"),
    ("float", "0.5", b"inf", DIFFERENT, "nor is inf"),
    ("float", "1e308", b"1e999", DIFFERENT, "nor what is beyond floats"),
    ("float", "inf", b"1e308", DIFFERENT, "not even to infinity"),
    ("float", "0.5", b"0x1p-1", DIFFERENT, "a hexadecimal float"),
    ("float", "1000.0", b"1_000.0", DIFFERENT, "Python's underscores"),
    ("float", "1000.0", b"1,000.0", DIFFERENT, "commas"),
    ("float", "0.5", b"0.5f", DIFFERENT, "a suffix"),
    ("float", "0.5", "٠.٥".encode(), DIFFERENT, "digits of another script"),
    ("float", "0.5", b"1/2", DIFFERENT, "a fraction"),
    ("float", "0.5 0.5", b"0.5", DIFFERENT, "too few"),
    ("float", "0.5", b"0.5 0.5", DIFFERENT, "too many"),
    ("float", "0.5", b"", DIFFERENT, "nothing"),
    ("unordered", "1 2\n3\n", b"3\n1 2\n", SAME, "lines in another order"),
    ("unordered", "1 2\n3\n", b"\n3 \n 1   2\n\n", SAME, "each of them by token"),
    ("unordered", "a\na\nb\n", b"a\nb\na\n", SAME, "as often"),
    ("unordered", "a\na\nb\n", b"a\nb\nb\n", DIFFERENT, "not as often"),
    ("unordered", "a\nb\n", b"a\n", DIFFERENT, "too few"),
    ("unordered", "a\n", b"a\na\n", DIFFERENT, "too many"),
    ("unordered", "1 2\n", b"2 1\n", DIFFERENT, "tokens keep their order"),
    ("unordered", "1\n2\n", b"1 2\n", DIFFERENT, "lines are lines"),
    ("yes_no", "YES\nNO\n", b"yes No", SAME, "case and white space don't count"),
    ("yes_no", "Yes", b"Yes!", DIFFERENT, "letters do"),
    ("yes_no", "Yes", b"y", DIFFERENT, "all of them"),
    ("yes_no", "straße".upper(), "straße".encode(), DIFFERENT, "only ASCII has a case"),
    ("yes_no", "KELVIN", "\u212aelvin".encode(), DIFFERENT, "the Kelvin sign is no k"),
]  # fmt: skip


@pytest.mark.parametrize(("comparison", "expected", "got", "same", "why"), OUTPUTS)
def test_outputs_are_compared(comparison: str, expected: str | bytes, got: bytes, same: bool, why: str) -> None:
    assert (output_fault(expected, got, comparison) is None) == same, why


def test_lines_is_what_is_compared_by_unless_said() -> None:
    assert output_fault("1\n", b"1 ") is None
    assert output_fault("1 2\n", b"1  2") is not None


@pytest.mark.parametrize("comparison", OUTPUT_COMPARISONS)
@given(data=st.binary(max_size=60))
def test_every_output_is_itself(comparison: str, data: bytes) -> None:
    assert output_fault(data, data, comparison) is None


LINES = st.lists(st.sampled_from([b"1", b"1 2", b" 1", b"x ", b"", b" ", b"\r", b"0.5", b"0.50"]), max_size=6)


def by_definition(comparison: str, text: bytes) -> Any:
    """The comparators as one would write them without a thought of memory."""
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
def test_the_comparators_are_what_they_are_said_to_be(comparison: str, left: list[bytes], right: list[bytes]) -> None:
    one, other = b"\n".join(left), b"\n".join(right)
    expected = by_definition(comparison, one) == by_definition(comparison, other)
    assert (output_fault(one, other, comparison) is None) == expected


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9),
    st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-2, max_value=2),
    st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.5]),
)
def test_floats_are_near_exactly_where_their_decimals_are(expected: Decimal, error: Decimal, tolerance: float) -> None:
    got = expected + error * Decimal(repr(tolerance))
    near = abs(expected - got) <= Decimal(repr(tolerance)) * max(1, abs(expected))
    assert (output_fault(f"{expected:f}", f"{got:f}".encode(), "float", tolerance) is None) == near


def test_a_tolerance_of_nothing_asks_for_the_same_number() -> None:
    assert output_fault("0.10", b"0.1", "float", 0) is None
    assert output_fault("0." + "1" * 50, b"0." + b"1" * 49 + b"2", "float", 0) is not None


@pytest.mark.parametrize(
    ("comparison", "expected", "got", "words", "why"),
    [
        ("lines", "1\n1 2 3 4 5\n", b"1\n1 2 3 4\n", ["line 2", "5 tokens", "got 4"], "a number is lacking"),
        ("lines", "1\n2\n3", b"1\n2\n", ["ends after line 2", "'3'"], "too short"),
        ("lines", "1\n", b"", ["is empty"], "nothing"),
        ("lines", "1\n", b"1\n\x1b[2J\n", ["goes on", r"'\x1b[2J"], "no terminal obeys it"),
        ("tokens", "1 2", b"1 \xff", ["token 2", "'2'", r"\\xff"], "no UTF-8"),
        ("exact", "a\nb\n", b"a\nc\n", ["byte 2", "line 2"], "a place"),
        ("exact", "abc", b"ab", ["ends after 2 bytes", "3"], "too short"),
        ("exact", "ab", b"abc", ["goes on after the 2 bytes", "'c'"], "too long"),
        ("unordered", "a\nb\n", b"b\nc\n", ["line 2", "'c'", "not expected"], "another line"),
        ("unordered", "a\nb\n", b"b\nb\n", ["'b'", "too often"], "twice"),
        ("unordered", "a\nb\n", b"b\n", ["lacks", "'a'"], "lacking"),
        ("float", "0.5", b"0.6", ["token 1", "'0.5'", "'0.6'"], "too far"),
    ],
)
def test_the_reason_says_where(comparison: str, expected: str, got: bytes, words: list[str], why: str) -> None:
    reason = output_fault(expected, got, comparison)
    assert reason is not None and all(word in reason for word in words), (why, reason)


@pytest.mark.parametrize("comparison", OUTPUT_COMPARISONS)
def test_a_reason_is_short(comparison: str) -> None:
    reason = output_fault("x" * 100_000, b"y" * 100_000 + b"\n" * 10, comparison)
    assert reason is not None and len(reason) < 250


SIZE = 8_000_000
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
def test_a_flood_costs_no_memory_and_no_time(flood: str) -> None:
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
def test_long_outputs_that_are_right_are_compared_in_linear_time(comparison: str, line: bytes) -> None:
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
    with pytest.raises(InputError) as error:
        output_fault("1", b"2", comparison, tolerance)
    assert error.value.kind == kind


# ----------------------------------------------------------------------------------------------------------------------


class Everything:
    """Equals whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(("number", 1))


class EveryNumber(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class EveryList(list):
    def __eq__(self, other: object) -> bool:
        return True


NAN = math.nan
VALUES = [
    ("exact", 5, 5, SAME, "an integer"),
    ("exact", 2, 2.0, SAME, "numbers are numbers"),
    ("exact", 2.0, 2, SAME, "either way"),
    ("exact", 10**400, 10**400, SAME, "of any size"),
    ("exact", "é", "é", SAME, "text"),
    ("exact", b"\xff", b"\xff", SAME, "bytes"),
    ("exact", None, None, SAME, "nothing"),
    ("exact", True, True, SAME, "truth"),
    ("exact", NAN, float("nan"), SAME, "nan is nan"),
    ("exact", [NAN, 1], [float("nan"), 1], SAME, "also in a list"),
    ("exact", 1 + 2j, 1 + 2j, SAME, "complex numbers"),
    ("exact", [1, [2, "x"]], [1, [2, "x"]], SAME, "lists in lists"),
    ("exact", {"a": [1], "b": None}, {"b": None, "a": [1]}, SAME, "keys have no order"),
    ("exact", {1, 2}, {2, 1}, SAME, "nor have sets"),
    ("exact", {1, 2}, frozenset({2, 1}), SAME, "as Python has it"),
    ("exact", {(1, 2), (3,)}, {(3,), (1, 2)}, SAME, "tuples in a set"),
    ("exact", {frozenset({1}), frozenset({2})}, {frozenset({2}), frozenset({1})}, SAME, "sets in a set"),
    ("exact", {frozenset({1}): "a", frozenset({2}): "b"}, {frozenset({2}): "b", frozenset({1}): "a"}, SAME, "as keys"),
    ("exact", {NAN}, {float("nan")}, SAME, "nan in a set"),
    ("exact", [], [], SAME, "nothing in it"),
    ("exact", 1, True, DIFFERENT, "True is not 1"),
    ("exact", True, 1, DIFFERENT, "and 1 is not True"),
    ("exact", [0], [False], DIFFERENT, "also in a list"),
    ("exact", {0: 1}, {False: 1}, DIFFERENT, "or as a key"),
    ("exact", {0, 1}, {False, True}, DIFFERENT, "or in a set"),
    ("exact", 5, "5", DIFFERENT, "text is no number"),
    ("exact", "a", b"a", DIFFERENT, "bytes are no text"),
    ("exact", None, 0, DIFFERENT, "nothing is not 0"),
    ("exact", None, [], DIFFERENT, "nor is it a list"),
    ("exact", "", [], DIFFERENT, "empty things differ"),
    ("exact", [1, 2], [2, 1], DIFFERENT, "lists have an order"),
    ("exact", [1, 2], [1], DIFFERENT, "and a length"),
    ("exact", [1, 2], {1, 2}, DIFFERENT, "a set is no list"),
    ("exact", {"a": 1}, {"a": 2}, DIFFERENT, "another value"),
    ("exact", {"a": 1}, {"b": 1}, DIFFERENT, "another key"),
    ("exact", {"a": 1}, {"a": 1, "b": 2}, DIFFERENT, "one key more"),
    ("exact", {1, 2}, {1, 3}, DIFFERENT, "another item"),
    ("exact", {frozenset({1}): "a", frozenset({2}): "b"}, {frozenset({2}): "a", frozenset({1}): "b"}, DIFFERENT,
     "swapped"),
    ("exact", 0.1 + 0.2, 0.3, DIFFERENT, "no tolerance"),
    ("exact", 2**53 + 1, float(2**53), DIFFERENT, "exactly"),
    ("exact", 5, Everything(), DIFFERENT, "an object that equals everything"),
    ("exact", [5], [Everything()], DIFFERENT, "in a list"),
    ("exact", {"a": 5}, {"a": Everything()}, DIFFERENT, "in a dictionary"),
    ("exact", {1}, {Everything()}, DIFFERENT, "in a set"),
    ("exact", {1: 1}, {Everything(): 1}, DIFFERENT, "as a key"),
    ("exact", 5, EveryNumber(5), DIFFERENT, "a subclass, even of the right value"),
    ("exact", [5], EveryList([5]), DIFFERENT, "of a list"),
    ("exact", NotImplemented, NotImplemented, DIFFERENT, "what is no data"),
    ("float", 0.3, 0.1 + 0.2, SAME, "near"),
    ("float", [1.5, {"x": 2.5}], [1.5000001, {"x": 2.4999999}], SAME, "wherever it stands"),
    ("float", 3.0, 3, SAME, "a whole number for a float"),
    ("float", 1e9, 10**9 + 100, SAME, "relatively near"),
    ("float", {0.5, 2}, {2, 0.50000001}, SAME, "in a set"),
    ("float", {"0.5": 1}, {"0.5": 1}, SAME, "keys are compared exactly"),
    ("float", math.inf, math.inf, SAME, "the same infinity"),
    ("float", 300000, 300000.1, DIFFERENT, "integers are exact"),
    ("float", 0.5, 0.50001, DIFFERENT, "too far"),
    ("float", 0.5, NAN, DIFFERENT, "nan is near nothing"),
    ("float", math.inf, 1e308, DIFFERENT, "nor is infinity"),
    ("float", 1e308, math.inf, DIFFERENT, "either way"),
    ("float", math.inf, -math.inf, DIFFERENT, "nor to its opposite"),
    ("float", 1e308, 10**400, DIFFERENT, "an integer beyond all floats"),
    ("float", 1.0, 1 + 0.0000001j, DIFFERENT, "a complex number"),
    ("float", 1.0, True, DIFFERENT, "True is no number"),
    ("float", {0.5}, {0.6}, DIFFERENT, "in a set"),
    ("unordered", [1, 2, 2], [2, 1, 2], SAME, "any order"),
    ("unordered", [[1, 2], [3]], [[3], [1, 2]], SAME, "of lists"),
    ("unordered", [{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}], SAME, "of dictionaries"),
    ("unordered", [1, "1", True, None], [None, True, "1", 1], SAME, "of all kinds"),
    ("unordered", 5, 5, SAME, "what is no list is compared as it is"),
    ("unordered", [1, 2, 2], [1, 1, 2], DIFFERENT, "as often"),
    ("unordered", [[1, 2]], [[2, 1]], DIFFERENT, "only the outermost list"),
    ("unordered", [1], [True], DIFFERENT, "True is not 1"),
    ("unordered", [1], [Everything()], DIFFERENT, "an object that equals everything"),
    ("unordered", [1, 2], {1, 2}, DIFFERENT, "a set is no list"),
]  # fmt: skip


@pytest.mark.parametrize(("comparison", "expected", "got", "same", "why"), VALUES)
def test_values_are_compared(comparison: str, expected: Any, got: Any, same: bool, why: str) -> None:
    for from_json in (False, True):
        reason = value_fault(expected, got, comparison=comparison, lists_for_tuples=from_json)
        assert (reason is None) == same, (why, reason)


@pytest.mark.parametrize(
    ("expected", "got", "same", "why"),
    [
        ([1, 2], (1, 2), SAME, "JSON has no tuples"),
        ([[1], [2]], ((1,), (2,)), SAME, "all the way down"),
        ({"1": "a"}, {1: "a"}, SAME, "nor any key but text"),
        ({"-1.5": 1, "true": 2, "null": 3}, {-1.5: 1, True: 2, None: 3}, SAME, "of any kind"),
        ([{"1": 2}], [{1: 2}], SAME, "in a list"),
        ((1, 2), [1, 2], DIFFERENT, "an expected tuple never came from JSON"),
        ({"1": "a"}, {1: "a", "1": "a"}, DIFFERENT, "two keys for one"),
        ({"1": "a", "2": "b"}, {1: "a", "1": "a"}, DIFFERENT, "one name twice"),
        ({"True": 1}, {True: 1}, DIFFERENT, "true is written small"),
        ({"1": 1}, {True: 1}, DIFFERENT, "True is not 1"),
    ],
)
def test_what_json_cant_say_is_allowed_only_where_the_value_is_from_json(
    expected: Any, got: Any, same: bool, why: str
) -> None:
    assert (value_fault(expected, got, lists_for_tuples=True) is None) == same, why
    assert (value_fault([expected], [got], comparison="unordered", lists_for_tuples=True) is None) == same, why
    assert value_fault(expected, got, lists_for_tuples=False) is not None, why


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=2) | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 2), inner, max_size=3)
        | st.frozensets(st.integers(0, 3) | st.text(max_size=1), max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("comparison", VALUE_COMPARISONS)
@given(value=PLAIN)
def test_every_value_is_itself(comparison: str, value: Any) -> None:
    assert value_fault(value, value, comparison=comparison, lists_for_tuples=False) is None


@given(PLAIN, PLAIN)
def test_what_is_the_same_is_equal_in_python(left: Any, right: Any) -> None:
    if value_fault(left, right, lists_for_tuples=False) is None and "nan" not in repr((left, right)):
        assert left == right


@given(st.lists(PLAIN, max_size=5), st.randoms())
def test_order_is_all_that_unordered_forgives(items: list[Any], random: Any) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert value_fault(items, shuffled, comparison="unordered", lists_for_tuples=False) is None
    assert value_fault(items, [*shuffled, 0], comparison="unordered", lists_for_tuples=False) is not None


@pytest.mark.parametrize("comparison", VALUE_COMPARISONS)
@pytest.mark.parametrize("kind", [list, tuple, dict, frozenset])
def test_values_nested_too_deeply_are_different_and_no_error(comparison: str, kind: type) -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = {"x": value} if kind is dict else kind([value])
        return value

    shallow = 40 if kind is frozenset else 150
    assert value_fault(nested(shallow), nested(shallow), comparison=comparison, lists_for_tuples=False) is None
    reason = value_fault(nested(900), nested(900), comparison=comparison, lists_for_tuples=False)
    assert reason is not None and len(reason) < 300


def test_a_value_that_holds_itself_is_different_and_no_error() -> None:
    value: list[Any] = []
    value.append(value)
    assert value_fault(value, value) is not None
    assert value_fault(value, value, comparison="unordered") is not None


def test_the_reason_says_where_a_value_differs() -> None:
    assert value_fault([1, {"a": [2, 3]}], [1, {"a": [2, 4]}]) == "at [1]['a'][1]: expected 3, got 4"
    assert value_fault([1, 2], [1]) == "expected 2 items, got 1"
    assert value_fault(1, True) == "expected 1, got True"
    assert value_fault(1, Everything()) == "a value of type Everything is no plain value"


@pytest.mark.parametrize(
    "got", [10**10_000, "x" * 100_000, [[0]] * 100_000, {"x" * 1000: 1}, NAN, b"\0" * 999], ids=type
)
def test_the_reason_for_a_value_is_short(got: Any) -> None:
    for expected in (1, [0], {"y": 1}, got):
        for comparison in VALUE_COMPARISONS:
            reason = value_fault([expected, 1], [got, 2], comparison=comparison)
            assert reason is not None and len(reason) < 300 and reason.isascii() and reason.isprintable()


SAME_HASH = 2**61 - 1  # integers that differ by it have one hash


@pytest.mark.parametrize(
    ("expected", "got", "comparison", "why"),
    [
        (list(range(5000)), [number * SAME_HASH for number in range(5000)], "unordered", "integers of one hash"),
        (list(range(5000)), [complex(-1000003.0 * i, i) for i in range(5000)], "unordered", "complex ones"),
        ([0] * 200_000, [0] * 200_000, "unordered", "one item very often"),
        ([{"a": number} for number in range(5000)], [{"a": number} for number in range(4999, -1, -1)], "unordered",
         "dictionaries"),
        ([[number] for number in range(100_000)], [[0]] * 100_000, "unordered", "lists"),
        ({str(number): 0 for number in range(100_000)}, dict.fromkeys(range(100_000), 0), "exact", "keys as text"),
        ({float(number) for number in range(100_000)}, set(range(100_000)), "float", "numbers in a set"),
        ("x" * 10_000_000, "x" * 9_999_999 + "y", "exact", "long text"),
    ],
)  # fmt: skip
def test_no_value_takes_long_to_compare(expected: Any, got: Any, comparison: str, why: str) -> None:
    started = time.process_time()
    value_fault(expected, got, comparison=comparison)
    assert time.process_time() - started < 3, why


def test_an_invalid_comparison_of_values_is_refused() -> None:
    with pytest.raises(InputError) as error:
        value_fault(1, 1, comparison="lines")
    assert error.value.key == "comparison"
    with pytest.raises(InputError) as error:
        value_fault(1, 1, tolerance=2.0)
    assert error.value.key == "tolerance"


def test_nothing_heavy_is_imported() -> None:
    words = "import sys, rlvr.verifiers.code.compare_output; print(*sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert not {"torch", "trl", "numpy", "transformers"} & set(result.stdout.split())
