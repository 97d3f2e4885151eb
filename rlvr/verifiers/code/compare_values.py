"""Whether what a function returned is what was expected: Python's `==`, of exactly the built-in types.

    same_value([1, 2], (1, 2))        None: the same, since JSON has no tuples
    same_value(1, True)               "expected 1, got True"

An object's own `__eq__` would decide about itself, so no object but plain data equals anything. A reason that is
returned quotes the expected value: it is for people, and must never reach the policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlvr.verifiers.code.tolerance import TOLERANCE, VALUE_COMPARISONS, Tolerance, check_comparison

_SHOWN = 60
_NUMBERS = (int, float, complex)
_LISTS = (list, tuple)
_SETS = (set, frozenset)
_PLAIN = frozenset((type(None), bool, str, bytes, dict, *_NUMBERS, *_LISTS, *_SETS))
_DEEPEST = 200


def same_value(
    expected: Any,
    got: Any,
    *,
    comparison: str = "exact",
    tolerance: float = TOLERANCE,
    lists_for_tuples: bool = True,
) -> str | None:
    """None where a returned value is the expected one, else what is wrong with it, as half a sentence.

    That is Python's `==` between None, numbers, text, bytes, lists, tuples, dictionaries and sets, of exactly these
    types all the way down, with two exceptions: True is not 1, and nan is nan. 2 is 2.0.

    Args:
        expected: from the data, so it is trusted to be of a reasonable size and depth.
        got: anything; a value of another type, a subclass included, equals nothing.
        comparison: one of `VALUE_COMPARISONS`. "float" accepts numbers near the floats that are expected, wherever they
            stand; "unordered" lets the items of the outermost list come in any order.
        tolerance: as in `same_output`.
        lists_for_tuples: whether the expected value comes from JSON, which knows no tuples and no keys but text: a
            tuple will then do for a list, and the keys 1, True and None for "1", "true" and "null".

    Raises:
        InputError: there is no such comparison, or the tolerance is no number from 0 to below 1.
    """
    check_comparison(comparison, tolerance, VALUE_COMPARISONS)
    rules = _Rules(Tolerance(tolerance) if comparison == "float" else None, lists_for_tuples)
    try:
        if comparison == "unordered" and type(expected) in _LISTS:
            return _kind_fault(expected, got, rules) or _unordered_fault(expected, got, rules, 0)
        return _value_fault(expected, got, rules, 0)
    except RecursionError:  # the caller stands deep in the stack already
        return "nested too deeply to be compared"


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules:
    near: Tolerance | None
    lists_for_tuples: bool


def _value_fault(expected: Any, got: Any, rules: _Rules, depth: int) -> str | None:
    """Both are walked together, so that a `got` of another shape is left at the first difference."""
    if depth > _DEEPEST:
        return f"nested deeper than {_DEEPEST} levels"
    fault = _kind_fault(expected, got, rules)
    if fault is not None:
        return fault
    kind = type(expected)
    if kind in _LISTS:
        for place, (left, right) in enumerate(zip(expected, got, strict=True)):
            if fault := _value_fault(left, right, rules, depth + 1):
                return _at(f"[{place}]", fault)
        return None
    if kind is dict:
        return _dict_fault(expected, got, rules, depth)
    if kind in _SETS:
        return _set_fault(expected, got, rules, depth)
    same = expected == got or (expected != expected and got != got)
    if not same and rules.near is not None and kind is float and type(got) in (int, float):
        same = rules.near.allows(expected, got)
    return None if same else f"expected {named(expected)}, got {named(got)}"


def _kind_fault(expected: Any, got: Any, rules: _Rules) -> str | None:
    """What is wrong with the type or the length of a value, whatever is in it."""
    kind, other = type(expected), type(got)
    if other not in _PLAIN:
        return f"a value of type {other.__name__:.60} is no plain value"
    alike = (
        kind is other
        or (kind in _NUMBERS and other in _NUMBERS)
        or (kind in _SETS and other in _SETS)
        or (kind is list and other is tuple and rules.lists_for_tuples)
    )
    if not alike:
        return f"expected {named(expected)}, got {named(got)}"
    if kind in _LISTS or kind in _SETS or kind is dict:
        what = "keys" if kind is dict else "items"
        return None if len(expected) == len(got) else f"expected {len(expected):,} {what}, got {len(got):,}"
    return None


def _dict_fault(expected: dict[Any, Any], got: dict[Any, Any], rules: _Rules, depth: int) -> str | None:
    exactly = _Rules(None, rules.lists_for_tuples)
    wanted = _by_key(expected)
    for key, value in got.items():
        # Taken out, so that 1 and "1" together can't stand for one key.
        found = _take(wanted, key, exactly, depth)
        if not found and rules.lists_for_tuples:
            found = _take(wanted, _json_key(key), exactly, depth)
        if not found:
            return f"the key {named(key)} is not expected"
        if fault := _value_fault(expected[found[0]], value, rules, depth + 1):
            return _at(f"[{named(key)}]", fault)
    return None


def _json_key(key: Any) -> Any:
    """The text that a key becomes in JSON."""
    if key is None:
        return "null"
    if type(key) is bool:
        return "true" if key else "false"
    if type(key) is float or (type(key) is int and abs(key) < 10**300):
        return repr(key)
    return key


def _set_fault(expected: Any, got: Any, rules: _Rules, depth: int) -> str | None:
    if rules.near is not None and all(type(item) in (int, float) and item == item for item in (*expected, *got)):
        # Each with its neighbour in size: if there is any way to pair numbers that are near, it is this one.
        return _value_fault(sorted(expected), sorted(got), rules, depth)
    return _unordered_fault(expected, got, rules, depth)


def _unordered_fault(expected: Any, got: Any, rules: _Rules, depth: int) -> str | None:
    """As many items, each of which has one of its own that it equals."""
    wanted = _by_key(expected)
    for item in got:
        if not _take(wanted, item, rules, depth):
            return f"the item {named(item)} is not expected" + (" so often" if _key(item) in wanted else "")
    return None


def _by_key(expected: Iterable[Any]) -> dict[Any, list[Any]]:
    """A table of what is expected. None is made of `got`: whoever chooses what is hashed can make any table slow."""
    wanted: dict[Any, list[Any]] = {}
    for item in expected:
        wanted.setdefault(_key(item), []).append(item)
    return wanted


def _take(wanted: dict[Any, list[Any]], item: Any, rules: _Rules, depth: int) -> list[Any]:
    """Takes what equals the item out of the table; returns it in a list, which is empty if there is none."""
    candidates = wanted.get(_key(item), [])
    for place, candidate in enumerate(candidates):
        if _value_fault(candidate, item, rules, depth + 1) is None:
            candidates[place], candidates[-1] = candidates[-1], candidate  # the last one goes without moving the others
            return [candidates.pop()]
    return []


def _key(value: Any, depth: int = 0) -> Any:
    """Something to hash that is the same for equal values, and for few others."""
    kind = type(value)
    if kind in _NUMBERS:
        return ("number", value if value == value else "nan")
    if kind not in _PLAIN or depth > _DEEPEST:
        return kind
    if kind in _LISTS:
        return ("list", *(_key(item, depth + 1) for item in value))
    if kind is dict or kind in _SETS:
        items = value.values() if kind is dict else value
        return (dict if kind is dict else set, len(value), sum(hash(_key(item, depth + 1)) for item in items))
    return (kind, value)


def _at(place: str, fault: str) -> str:
    """The fault with the way to it, of which only the last part is kept where it is long."""
    if fault.startswith("at ...") or (fault.startswith("at [") and len(fault) > 200):
        return fault if fault.startswith("at ...") else f"at ...{fault[3:]}"
    return f"at {place}{fault[3:]}" if fault.startswith("at [") else f"at {place}: {fault}"


def named(value: Any) -> str:
    """A value in a few words: in full where it is short, else what it is."""
    kind = type(value)
    if kind is int:
        return repr(value) if abs(value) < 10**_SHOWN else f"an integer of {value.bit_length():,} bits"
    if kind in (str, bytes):
        return ascii(value[:_SHOWN]) + ("..." if len(value) > _SHOWN else "")
    if kind in (float, complex, bool, type(None)):
        return repr(value)
    if kind not in _PLAIN:
        return f"a value of type {kind.__name__:.60}"
    if kind in _LISTS and len(value) <= 4 and all(type(item) in _NUMBERS for item in value):
        inside = ", ".join(map(named, value))
        return f"[{inside}]" if kind is list else f"({inside})"
    return f"a {kind.__name__} of {len(value):,}"
