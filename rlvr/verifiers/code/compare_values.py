"""Compare a function's returned value with the expected one: Python's `==` for exactly the built-in types.

    value_fault([1, 2], (1, 2))        None: the same, since JSON has no tuples
    value_fault(1, True)               "expected 1, got True"

Only plain data can be equal: an object's own `__eq__` would decide about itself. A returned fault quotes the expected
value. It is for people: a policy must never see it.
"""

from __future__ import annotations

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
    sets of exactly these types. Two exceptions, except in sets: True is not 1, and nan is nan. 2 is 2.0. The expected
    value comes from JSON, which has no tuples and only text keys. So a tuple equals a list, and the keys 1, True and
    None equal "1", "true" and "null".

    Args:
        expected: from the data, so its size and depth are trusted.
        comparison: "float" allows a tolerance for expected floats at any depth, except in sets; "unordered" ignores
            the order of the outermost list.

    Raises:
        InputError: the comparison or the tolerance is invalid.
    """
    check_comparison(comparison, tolerance, VALUE_COMPARISONS)
    limit = Tolerance(tolerance) if comparison == "float" else None
    try:
        if comparison == "unordered" and type(expected) in _LISTS:
            return _kind_fault(expected, got) or _unordered_fault(expected, got)
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
    wanted = {_json_key(key): value for key, value in expected.items()}
    for key, value in got.items():
        name = _json_key(key)
        if type(key) not in _PLAIN or name not in wanted:
            return f"the key {describe_value(key)} is not expected"
        # Removed, so that 1 and "1" can't both match one key.
        if fault := _value_fault(wanted.pop(name), value, tolerance, depth + 1):
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


def _unordered_fault(expected: Any, got: Any) -> str | None:
    """Match each item with a different equal item. The lengths are equal already."""
    wanted: dict[Any, list[Any]] = {}  # `got` is never put into a table: chosen hashes could make it slow
    for item in expected:
        wanted.setdefault(_key(item), []).append(item)
    for item in got:
        left = wanted.get(_key(item), [])
        index = next((index for index, one in enumerate(left) if _value_fault(one, item, None, 1) is None), None)
        if index is None:
            return f"the item {describe_value(item)} is not expected" + (" so often" if _key(item) in wanted else "")
        left[index] = left[-1]  # removed at the end, in constant time
        left.pop()
    return None


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
