"""Whether what a program printed, or what a function returned, is what was expected: the judge's comparators.

    same_output("1 2\n3\n", b"1 2 \n3")            None: the same
    same_output("0.5\n", b"0.50000001\n", "float")  None
    same_value([1, 2], (1, 2))                      None: JSON has no tuples

    lines      each line without the white space at its end, the text without blank lines at its end; bytes otherwise
    tokens     what stands between white space
    exact      every byte
    float      tokens; where the expected one is written with a point or an exponent, numbers near it will do
    unordered  lines in any order, each of them by token; blank lines don't count
    yes_no     tokens, whatever their case

No integer is ever compared with a tolerance, since a wrong count of 300,001 is near 300,000. "nan" and "inf" are near
nothing. Only ASCII is white space, a digit, or has a case. Output is bytes, so that invalid UTF-8 and NUL are compared
like anything else.

What a program printed is written by the policy under training. So nothing here builds a table of it, splits it whole or
parses a number of unbounded length: time is linear in what there is, and memory beyond it depends on what is expected
alone. Values must be of exactly the built-in types, since an object's own `__eq__` would decide about itself.

A reason that is returned quotes the expected output. It is for people, and must never reach the policy.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context
from io import BytesIO
from itertools import zip_longest
from typing import Any

from rlvr.errors import InputError

OUTPUT_COMPARISONS = ("lines", "tokens", "exact", "float", "unordered", "yes_no")
VALUE_COMPARISONS = ("exact", "float", "unordered")
TOLERANCE = 1e-6

_CHUNK = 1 << 16
_WHITE = re.compile(rb"[ \t\n\r\x0b\x0c]")
_TO_BLANKS = bytes.maketrans(b"\t\r\x0b\x0c", b"    ")
_LINE = re.compile(rb"[^ \t\n\r\x0b\x0c][^\n]*")  # from its first token to its end; blank lines are none
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MOST_DIGITS = 1200  # in full, a double has at most 309 digits before its point, and 1,074 behind it
# Digits for the difference of two such numbers, and no exception: what is too large becomes infinite, near nothing.
_ARITHMETIC = Context(
    prec=3000,
    rounding=ROUND_HALF_EVEN,
    Emin=-999999999999999999,
    Emax=999999999999999999,
    capitals=1,
    clamp=0,
    traps=[],
)
_SHOWN = 60


def same_output(
    expected: str | bytes, got: bytes, comparison: str = "lines", tolerance: float = TOLERANCE
) -> str | None:
    """None where the output is the expected one, else what is wrong with it, as half a sentence.

    Args:
        expected: text counts as UTF-8.
        comparison: one of `OUTPUT_COMPARISONS`.
        tolerance: of "float": the largest absolute or relative error, the expected number being the measure.

    Raises:
        InputError: there is no such comparison, or the tolerance is no number from 0 to below 1.
    """
    check_comparison(comparison, tolerance)
    wanted = expected.encode("utf-8", "surrogatepass") if isinstance(expected, str) else expected
    if wanted == got:
        return None
    if comparison == "exact":
        return _byte_difference(wanted, got)
    wanted, got = wanted.rstrip(), got.rstrip()  # of bytes, this strips ASCII white space and nothing else
    if wanted == got:
        return None
    if comparison == "lines":
        return _line_difference(wanted, got)
    if comparison == "unordered":
        return _unordered_difference(wanted, got)
    if comparison == "yes_no":
        return _token_difference(wanted, got, lambda left, right: left.lower() == right.lower())
    if comparison == "float":
        near = Near(tolerance)
        return _token_difference(wanted, got, lambda left, right: left == right or near.token(left, right))
    return _token_difference(wanted, got, bytes.__eq__)


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
    rules = _Rules(Near(tolerance) if comparison == "float" else None, lists_for_tuples)
    try:
        if comparison == "unordered" and type(expected) in _LISTS:
            return _kind_fault(expected, got, rules) or _unordered_fault(expected, got, rules, 0)
        return _value_fault(expected, got, rules, 0)
    except RecursionError:  # the caller stands deep in the stack already
        return "nested too deeply to be compared"


def check_comparison(
    comparison: object, tolerance: object = TOLERANCE, known: tuple[str, ...] = OUTPUT_COMPARISONS
) -> None:
    """Raises InputError unless the comparison is a known one and the tolerance a number from 0 to below 1."""
    if comparison not in known:
        close = difflib.get_close_matches(str(comparison), known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "it should be one of these."
        raise InputError(f"There is no comparison {comparison!r:.60} ({', '.join(known)}): {hint}")
    is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not is_number or not 0 <= tolerance < 1:  # type: ignore[operator]
        raise InputError(f"The tolerance is {tolerance!r:.60}, but should be a number from 0 to below 1, like 1e-6.")


class Near:
    """Whether numbers are within a tolerance of an expected one: absolutely, or relatively to it."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._exact = _ARITHMETIC.create_decimal(repr(float(tolerance)))

    def token(self, expected: bytes, got: bytes) -> bool:
        """For numbers as they are printed; False where either is none, or the expected one is an integer."""
        if len(expected) > _MOST_DIGITS or len(got) > _MOST_DIGITS:
            return False
        if not _DECIMAL.fullmatch(expected) or not _DECIMAL.fullmatch(got) or expected.lstrip(b"+-").isdigit():
            return False
        sure = self._by_float(float(expected), float(got))
        if sure is not None:
            return sure
        wanted = _ARITHMETIC.create_decimal(expected.decode())
        error = _ARITHMETIC.abs(_ARITHMETIC.subtract(wanted, _ARITHMETIC.create_decimal(got.decode())))
        measure = _ARITHMETIC.max(_ARITHMETIC.abs(wanted), 1)
        return error.is_finite() and error <= _ARITHMETIC.multiply(self._exact, measure)

    def number(self, expected: float, got: int | float) -> bool:
        """For numbers as they are returned."""
        try:
            number = float(got)
        except OverflowError:  # an integer beyond all floats
            return False
        if not math.isfinite(expected) or not math.isfinite(number):
            return False
        return abs(expected - number) <= self._tolerance * max(1.0, abs(expected))

    def _by_float(self, expected: float, got: float) -> bool | None:
        """The answer where the rounding of floats can't change it: nearly always; else None."""
        error, bound = abs(expected - got), self._tolerance * max(1.0, abs(expected))
        # Ten times what rounding both numbers and their difference can do.
        doubt = 4e-15 * max(1.0, abs(expected), abs(got))
        if error + doubt < bound < float("inf"):
            return True
        return False if bound + doubt < error < float("inf") else None


# ----------------------------------------------------------------------------------------------------------------------


def _byte_difference(wanted: bytes, got: bytes) -> str:
    place = _first_difference(wanted, got)
    if place == len(got):
        return f"ends after {place:,} bytes, expected {len(wanted):,}"
    if place == len(wanted):
        return f"goes on after the {place:,} bytes that were expected, with {_shown(got[place:])}"
    line = wanted.count(b"\n", 0, place) + 1
    return f"byte {place:,}, in line {line:,}: expected {_shown(wanted[place:])}, got {_shown(got[place:])}"


def _first_difference(left: bytes, right: bytes) -> int:
    """Where two unequal texts differ first, found by halves: comparing slices is far faster than looking at bytes."""
    low, high = 0, min(len(left), len(right))
    views = memoryview(left), memoryview(right)
    if views[0][:high] == views[1][:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if views[0][low:middle] == views[1][low:middle]:
            low = middle
        else:
            high = middle
    return low


def _line_difference(wanted: bytes, got: bytes) -> str | None:
    # Both end in something else than white space. Reading goes no further than the expected output does.
    lines = enumerate(zip_longest(BytesIO(wanted), BytesIO(got)), start=1)
    for number, (left, right) in lines:
        if left is None:
            return f"goes on after the {number - 1:,} lines that were expected, with {_shown(right)}"
        if right is None:
            return f"ends after line {number - 1:,}, expected {_shown(left.rstrip())}" if got else "is empty"
        if left != right and left.rstrip() != right.rstrip():
            return f"line {number:,}: {_within_line(left, right)}"
    return None


def _within_line(left: bytes, right: bytes) -> str:
    if len(left) + len(right) < 10_000:
        many, there = len(left.split()), len(right.split())
        if many != there and min(many, there) > 0:
            return f"expected {many} tokens, got {there}: {_shown(right.rstrip())} for {_shown(left.rstrip())}"
    return f"expected {_shown(left.rstrip())}, got {_shown(right.rstrip())}"


def _tokens(text: bytes) -> Iterator[bytes]:
    """What stands between ASCII white space, split piece by piece: a list of all could be forty times as large."""
    start = 0
    while start < len(text):
        end = _WHITE.search(text, start + _CHUNK)
        yield from text[start : end.start() if end else len(text)].split()
        start = end.end() if end else len(text)


def _token_difference(wanted: bytes, got: bytes, same: Callable[[bytes, bytes], bool]) -> str | None:
    for number, (left, right) in enumerate(zip_longest(_tokens(wanted), _tokens(got)), start=1):
        if left is None:
            return f"goes on after the {number - 1:,} tokens that were expected, with {_shown(right)}"
        if right is None:
            return f"ends after {number - 1:,} tokens, expected {_shown(left)}" if number > 1 else "is empty"
        if not same(left, right):
            return f"token {number:,}: expected {_shown(left)}, got {_shown(right)}"
    return None


def _unordered_difference(wanted: bytes, got: bytes) -> str | None:
    missing = Counter(_in_tokens(line[0]) for line in _LINE.finditer(wanted))
    # Only lines that are expected are ever looked up or counted down, so that a flood of others fills no table.
    for line in _LINE.finditer(got):
        found = _in_tokens(line[0])
        if not missing.get(found):
            why = "occurs too often" if found in missing else "is not expected"
            number = got.count(b"\n", 0, line.start()) + 1
            return f"line {number:,}, {_shown(found)}, {why}"
        missing[found] -= 1
    lacking = next((line for line, count in missing.items() if count), None)
    return None if lacking is None else f"lacks the line {_shown(lacking)}"


def _in_tokens(line: bytes) -> bytes:
    """The tokens of a line with one blank between them."""
    if len(line) < _CHUNK:
        return b" ".join(line.split())
    line = line.translate(_TO_BLANKS).strip()
    while b"  " in line:
        line = line.replace(b"  ", b" ")
    return line


def _shown(text: bytes) -> str:
    """A few characters of an output between quotes, with nothing in them that a terminal would obey."""
    cut = text[:_SHOWN].decode("utf-8", "backslashreplace")
    return ascii(cut) + ("..." if len(text) > _SHOWN else "")


# ----------------------------------------------------------------------------------------------------------------------
# Values

_NUMBERS = (int, float, complex)
_LISTS = (list, tuple)
_SETS = (set, frozenset)
_PLAIN = frozenset((type(None), bool, str, bytes, dict, *_NUMBERS, *_LISTS, *_SETS))
_DEEPEST = 200


@dataclass(frozen=True)
class _Rules:
    near: Near | None
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
        same = rules.near.number(expected, got)
    return None if same else f"expected {_named(expected)}, got {_named(got)}"


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
        return f"expected {_named(expected)}, got {_named(got)}"
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
            return f"the key {_named(key)} is not expected"
        if fault := _value_fault(expected[found[0]], value, rules, depth + 1):
            return _at(f"[{_named(key)}]", fault)
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
            return f"the item {_named(item)} is not expected" + (" so often" if _key(item) in wanted else "")
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


def _named(value: Any) -> str:
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
        inside = ", ".join(map(_named, value))
        return f"[{inside}]" if kind is list else f"({inside})"
    return f"a {kind.__name__} of {len(value):,}"
