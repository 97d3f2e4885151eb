"""Compare a function's returned value with the expected one: Python's `==` for exactly the built-in types.

    value_fault([1, 2], (1, 2))        None: the same, since JSON has no tuples
    value_fault(1, True)               "expected 1, got True"

Only plain data can be equal: an object's own `__eq__` would decide about itself. A returned fault quotes the expected
value. It is for people: a policy must never see it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rlvr.verifiers.code.tolerance import TOLERANCE, VALUE_COMPARISONS, Tolerance, check_comparison

_MAX_QUOTED = 60
_REAL = (int, float, Decimal, Fraction)
_NUMBERS = (*_REAL, complex)
_LISTS = (list, tuple)
_SETS = (set, frozenset)
_PLAIN = frozenset((type(None), bool, str, bytes, dict, *_NUMBERS, *_LISTS, *_SETS))
_MAX_DEPTH = 200


def value_fault(expected: Any, got: Any, *, comparison: str = "exact", tolerance: float = TOLERANCE) -> str | None:
    """Return None if a returned value is the expected one, else a phrase that says what is wrong.

    Values are equal as by Python's `==`, if they consist of None, numbers, text, bytes, lists, tuples, dictionaries and
    sets of exactly these types. Two exceptions: True is not 1, and nan is nan. 2 is 2.0. The expected value comes from
    JSON, which has no tuples and only text keys. So a tuple equals a list, and the keys 1, True and None equal "1",
    "true" and "null".

    Args:
        expected: from the data, so its size and depth are trusted.
        comparison: "float" allows a tolerance for expected floats at any depth; "unordered" ignores the order of the
            outermost list.

    Raises:
        InputError: the comparison or the tolerance is invalid.
    """
    check_comparison(comparison, tolerance, VALUE_COMPARISONS)
    limit = Tolerance(tolerance) if comparison == "float" else None
    try:
        if comparison == "unordered" and type(expected) in _LISTS:
            return _kind_fault(expected, got) or _unordered_fault(expected, got, limit, 0)
        return _value_fault(expected, got, limit, 0)
    except RecursionError:  # the caller is deep in the stack already
        return "nested too deeply to be compared"


def _value_fault(expected: Any, got: Any, tolerance: Tolerance | None, depth: int) -> str | None:
    """Walk both values together, so that a `got` of another shape is left at the first difference."""
    if depth > _MAX_DEPTH:
        return f"nested deeper than {_MAX_DEPTH} levels"
    fault = _kind_fault(expected, got)
    if fault is not None:
        return fault
    kind = type(expected)
    if kind in _LISTS:
        for index, (left, right) in enumerate(zip(expected, got, strict=True)):
            if fault := _value_fault(left, right, tolerance, depth + 1):
                return _at(f"[{index}]", fault)
        return None
    if kind is dict:
        return _dict_fault(expected, got, tolerance, depth)
    if kind in _SETS:
        return _set_fault(expected, got, tolerance, depth)
    same = expected == got or (expected != expected and got != got)
    if not same and tolerance is not None and kind is float and type(got) in _REAL:
        same = tolerance.allows(expected, got)
    return None if same else f"expected {describe_value(expected)}, got {describe_value(got)}"


def _kind_fault(expected: Any, got: Any) -> str | None:
    """Compare types and lengths only."""
    kind, other = type(expected), type(got)
    if other not in _PLAIN:
        return f"a value of type {other.__name__:.60} is no plain value"
    alike = (
        kind is other
        or (kind in _NUMBERS and other in _NUMBERS)
        or (kind in _SETS and other in _SETS)
        or (kind is list and other is tuple)
    )
    if not alike:
        return f"expected {describe_value(expected)}, got {describe_value(got)}"
    if kind in _LISTS or kind in _SETS or kind is dict:
        what = "keys" if kind is dict else "items"
        return None if len(expected) == len(got) else f"expected {len(expected):,} {what}, got {len(got):,}"
    return None


def _dict_fault(expected: dict[Any, Any], got: dict[Any, Any], tolerance: Tolerance | None, depth: int) -> str | None:
    wanted = _by_key(expected)
    for key, value in got.items():
        # Removed, so that 1 and "1" can't both match one key.
        matches = _take(wanted, key, None, depth)
        if not matches:
            matches = _take(wanted, _json_key(key), None, depth)
        if not matches:
            return f"the key {describe_value(key)} is not expected"
        if fault := _value_fault(expected[matches[0]], value, tolerance, depth + 1):
            return _at(f"[{describe_value(key)}]", fault)
    return None


def _json_key(key: Any) -> Any:
    """Return the text that a key becomes in JSON."""
    if key is None:
        return "null"
    if type(key) is bool:
        return "true" if key else "false"
    if type(key) is float or (type(key) is int and abs(key) < 10**300):
        return repr(key)
    return key


def _set_fault(expected: Any, got: Any, tolerance: Tolerance | None, depth: int) -> str | None:
    if tolerance is not None and all(type(item) in (int, float) and item == item for item in (*expected, *got)):
        # If any pairing of close numbers exists, pairing them in sorted order is one.
        return _value_fault(sorted(expected), sorted(got), tolerance, depth)
    return _unordered_fault(expected, got, tolerance, depth)


def _unordered_fault(expected: Any, got: Any, tolerance: Tolerance | None, depth: int) -> str | None:
    """Match each item with a different equal item. The lengths are equal already."""
    wanted = _by_key(expected)
    for item in got:
        if not _take(wanted, item, tolerance, depth):
            return f"the item {describe_value(item)} is not expected" + (" so often" if _key(item) in wanted else "")
    return None


def _by_key(expected: Iterable[Any]) -> dict[Any, list[Any]]:
    """Return a table of the expected items. `got` is never put into a table: chosen hashes could make it slow."""
    wanted: dict[Any, list[Any]] = {}
    for item in expected:
        wanted.setdefault(_key(item), []).append(item)
    return wanted


def _take(wanted: dict[Any, list[Any]], item: Any, tolerance: Tolerance | None, depth: int) -> list[Any]:
    """Remove an item that equals this one from the table. Returns it in a list, empty if there is none."""
    candidates = wanted.get(_key(item), [])
    for index, candidate in enumerate(candidates):
        if _value_fault(candidate, item, tolerance, depth + 1) is None:
            candidates[index], candidates[-1] = candidates[-1], candidate  # removed at the end, in constant time
            return [candidates.pop()]
    return []


def _key(value: Any, depth: int = 0) -> Any:
    """Return a hashable key that is the same for equal values and for few others."""
    kind = type(value)
    if kind in _NUMBERS:
        return ("number", value if value == value else "nan")
    if kind not in _PLAIN or depth > _MAX_DEPTH:
        return kind
    if kind in _LISTS:
        return ("list", *(_key(item, depth + 1) for item in value))
    if kind is dict or kind in _SETS:
        items = value.values() if kind is dict else value
        return (dict if kind is dict else set, len(value), sum(hash(_key(item, depth + 1)) for item in items))
    return (kind, value)


def _at(place: str, fault: str) -> str:
    """Prefix a fault with its path, of which only the end is kept if it is long."""
    if fault.startswith("at ...") or (fault.startswith("at [") and len(fault) > 200):
        return fault if fault.startswith("at ...") else f"at ...{fault[3:]}"
    return f"at {place}{fault[3:]}" if fault.startswith("at [") else f"at {place}: {fault}"


def describe_value(value: Any) -> str:
    """Describe a value in a few words: in full if it is short."""
    kind = type(value)
    if kind is int:
        return repr(value) if abs(value) < 10**_MAX_QUOTED else f"an integer of {value.bit_length():,} bits"
    if kind in (str, bytes):
        return ascii(value[:_MAX_QUOTED]) + ("..." if len(value) > _MAX_QUOTED else "")
    if kind in (float, complex, bool, type(None), Decimal, Fraction):
        return repr(value)[:_MAX_QUOTED]
    if kind not in _PLAIN:
        return f"a value of type {kind.__name__:.60}"
    if kind in _LISTS and len(value) <= 4 and all(type(item) in _NUMBERS for item in value):
        inside = ", ".join(map(describe_value, value))
        return f"[{inside}]" if kind is list else f"({inside})"
    return f"a {kind.__name__} of {len(value):,}"
