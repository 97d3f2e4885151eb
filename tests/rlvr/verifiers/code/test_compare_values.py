"""Comparison of returned values: plain data, objects that claim equality, hostile sizes and hashes."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlvr.verifiers.code.compare_values import value_fault
from rlvr.verifiers.code.tolerance import VALUE_COMPARISONS
from tests.support.input_errors import input_error

SAME, DIFFERENT = True, False


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
    ("exact", 2, 2.0, SAME, "numbers are numbers"),
    ("exact", 10**400, 10**400, SAME, "of any size"),
    ("exact", NAN, float("nan"), SAME, "nan is nan"),
    ("exact", [NAN, 1], [float("nan"), 1], SAME, "also in a list"),
    ("exact", {"a": [1], "b": None}, {"b": None, "a": [1]}, SAME, "keys have no order"),
    ("exact", {1, 2}, frozenset({2, 1}), SAME, "as Python has it"),
    ("exact", {frozenset({1}), frozenset({2})}, {frozenset({2}), frozenset({1})}, SAME, "sets in a set"),
    ("exact", {frozenset({1}): "a", frozenset({2}): "b"}, {frozenset({2}): "b", frozenset({1}): "a"}, SAME, "as keys"),
    ("exact", 1, True, DIFFERENT, "True is not 1"),
    ("exact", {0: 1}, {False: 1}, DIFFERENT, "or as a key"),
    ("exact", 5, "5", DIFFERENT, "text is no number"),
    ("exact", "a", b"a", DIFFERENT, "bytes are no text"),
    ("exact", None, 0, DIFFERENT, "nothing is not 0"),
    ("exact", "", [], DIFFERENT, "empty things differ"),
    ("exact", [1, 2], [2, 1], DIFFERENT, "lists have an order"),
    ("exact", [1, 2], [1], DIFFERENT, "and a length"),
    ("exact", [1, 2], {1, 2}, DIFFERENT, "a set is no list"),
    ("exact", {"a": 1}, {"a": 1, "b": 2}, DIFFERENT, "one key more"),
    ("exact", {frozenset({1}): 1, frozenset({2}): 2}, {frozenset({2}): 1, frozenset({1}): 2}, DIFFERENT, "swapped"),
    ("exact", 0.1 + 0.2, 0.3, DIFFERENT, "no tolerance"),
    ("exact", 2**53 + 1, float(2**53), DIFFERENT, "exactly"),
    ("exact", 5, Everything(), DIFFERENT, "an object that equals everything"),
    ("exact", {"a": 5}, {"a": Everything()}, DIFFERENT, "in a dictionary"),
    ("exact", {1: 1}, {Everything(): 1}, DIFFERENT, "as a key"),
    ("exact", 5, EveryNumber(5), DIFFERENT, "a subclass, even of the right value"),
    ("exact", [5], EveryList([5]), DIFFERENT, "of a list"),
    ("exact", NotImplemented, NotImplemented, DIFFERENT, "what is no data"),
    ("float", 0.3, 0.1 + 0.2, SAME, "near"),
    ("float", [1.5, {"x": 2.5}], [1.5000001, {"x": 2.4999999}], SAME, "wherever it stands"),
    ("float", 3.0, 3, SAME, "a whole number for a float"),
    ("float", 1e9, 10**9 + 100, SAME, "relatively near"),
    ("float", math.inf, math.inf, SAME, "the same infinity"),
    ("float", 300000, 300000.1, DIFFERENT, "integers are exact"),
    ("float", 0.5, 0.50001, DIFFERENT, "too far"),
    ("float", 0.5, NAN, DIFFERENT, "nan is near nothing"),
    ("float", math.inf, 1e308, DIFFERENT, "nor is infinity"),
    ("float", 1e308, 10**400, DIFFERENT, "an integer beyond all floats"),
    ("float", 1.0, 1 + 0.0000001j, DIFFERENT, "a complex number"),
    ("float", 1.0, True, DIFFERENT, "True is no number"),
    ("unordered", [1, 2, 2], [2, 1, 2], SAME, "any order"),
    ("unordered", [[1, 2], [3]], [[3], [1, 2]], SAME, "of lists"),
    ("unordered", [1, "1", True, None], [None, True, "1", 1], SAME, "of all kinds"),
    ("unordered", [1, 2, 2], [1, 1, 2], DIFFERENT, "as often"),
    ("unordered", [[1, 2]], [[2, 1]], DIFFERENT, "only the outermost list"),
    ("unordered", [1], [True], DIFFERENT, "True is not 1"),
    ("unordered", [1], [Everything()], DIFFERENT, "an object that equals everything"),
    ("unordered", [1, 2], {1, 2}, DIFFERENT, "a set is no list"),
]


@pytest.mark.parametrize(("comparison", "expected", "got", "same", "why"), VALUES)
def test_values_are_compared(comparison: str, expected: Any, got: Any, same: bool, why: str) -> None:
    reason = value_fault(expected, got, comparison=comparison)
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
def test_values_that_json_lacks_match_what_json_has_for_them(expected: Any, got: Any, same: bool, why: str) -> None:
    assert (value_fault(expected, got) is None) == same, why
    assert (value_fault([expected], [got], comparison="unordered") is None) == same, why


LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=2)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
PLAIN = st.recursive(
    LEAVES | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.dictionaries(st.integers(0, 2), inner, max_size=3)  # JSON can't hold 2 and "2"
        | st.frozensets(st.integers(0, 3) | st.text(max_size=1), max_size=3)
    ),
    max_leaves=8,
)


def from_json(value: Any) -> Any:
    """A value as data hold it: JSON has no tuples."""
    if type(value) in (list, tuple):
        return [from_json(item) for item in value]
    return {key: from_json(item) for key, item in value.items()} if type(value) is dict else value


@pytest.mark.slow
@pytest.mark.parametrize("comparison", VALUE_COMPARISONS)
@given(value=PLAIN)
@example(value=[[], (), []])
def test_every_value_equals_itself(comparison: str, value: Any) -> None:
    assert value_fault(from_json(value), value, comparison=comparison) is None


@given(JSON, JSON)
def test_equal_values_are_equal_in_python(left: Any, right: Any) -> None:
    if value_fault(left, right) is None and "nan" not in repr((left, right)):
        assert left == right


@given(st.lists(JSON, max_size=5), st.randoms())
def test_unordered_ignores_order_only(items: list[Any], random: Any) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert value_fault(items, shuffled, comparison="unordered") is None
    assert value_fault(items, [*shuffled, 0], comparison="unordered") is not None


@pytest.mark.parametrize("comparison", VALUE_COMPARISONS)
@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_values_nested_too_deeply_differ_without_an_error(comparison: str, kind: type) -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = {"x": value} if kind is dict else kind([value])
        return value

    assert value_fault(nested(150), nested(150), comparison=comparison) is None
    reason = value_fault(nested(900), nested(900), comparison=comparison)
    assert reason is not None and len(reason) < 300


def test_a_value_that_contains_itself_differs_without_an_error() -> None:
    value: list[Any] = []
    value.append(value)
    assert value_fault(value, value) is not None
    assert value_fault(value, value, comparison="unordered") is not None


def test_the_fault_says_where_a_value_differs() -> None:
    assert value_fault([1, {"a": [2, 3]}], [1, {"a": [2, 4]}]) == "at [1]['a'][1]: expected 3, got 4"
    assert value_fault([1, 2], [1]) == "expected 2 items, got 1"
    assert value_fault(1, True) == "expected 1, got True"
    assert value_fault(1, Everything()) == "a value of type Everything is no plain value"


@pytest.mark.slow
@pytest.mark.parametrize(
    "got", [10**10_000, "x" * 100_000, [[0]] * 100_000, {"x" * 1000: 1}, NAN, b"\0" * 999], ids=type
)
def test_a_fault_of_a_value_is_short_and_printable(got: Any) -> None:
    for expected in (1, [0], {"y": 1}, got):
        for comparison in VALUE_COMPARISONS:
            reason = value_fault([expected, 1], [got, 2], comparison=comparison)
            assert reason is not None and len(reason) < 300 and reason.isascii() and reason.isprintable()


SAME_HASH = 2**61 - 1  # integers that differ by it have one hash


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expected", "got", "comparison", "why"),
    [
        (list(range(5000)), [number * SAME_HASH for number in range(5000)], "unordered", "integers of one hash"),
        (list(range(5000)), [complex(-1000003.0 * i, i) for i in range(5000)], "unordered", "complex ones"),
        ([0] * 200_000, [0] * 200_000, "unordered", "one item very often"),
        (
            [{"a": number} for number in range(5000)],
            [{"a": number} for number in range(4999, -1, -1)],
            "unordered",
            "dictionaries",
        ),
        ([[number] for number in range(100_000)], [[0]] * 100_000, "unordered", "lists"),
        ({str(number): 0 for number in range(100_000)}, dict.fromkeys(range(100_000), 0), "exact", "keys as text"),
        ("x" * 10_000_000, "x" * 9_999_999 + "y", "exact", "long text"),
    ],
)
def test_hostile_values_are_compared_fast(expected: Any, got: Any, comparison: str, why: str) -> None:
    started = time.process_time()
    value_fault(expected, got, comparison=comparison)
    assert time.process_time() - started < 3, why


def test_an_invalid_comparison_of_values_is_refused() -> None:
    with input_error("unknown-choice", "comparison"):
        value_fault(1, 1, comparison="lines")
    with input_error("invalid-tolerance", "tolerance"):
        value_fault(1, 1, tolerance=2.0)
