"""Whether what a program printed is what was expected: the judge's comparators. equality.py compares values.

    same_output("1 2\n3\n", b"1 2 \n3")            None: the same
    same_output("0.5\n", b"0.50000001\n", "float")  None

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
alone.

A reason that is returned quotes the expected output. It is for people, and must never reach the policy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import zip_longest

from rlvr.verifiers.code.compare_values import same_value
from rlvr.verifiers.code.tolerance import OUTPUT_COMPARISONS, TOLERANCE, VALUE_COMPARISONS, Tolerance, check_comparison

__all__ = ["OUTPUT_COMPARISONS", "TOLERANCE", "VALUE_COMPARISONS", "check_comparison", "same_output", "same_value"]

_CHUNK = 1 << 16
_WHITE = re.compile(rb"[ \t\n\r\x0b\x0c]")
_TO_BLANKS = bytes.maketrans(b"\t\r\x0b\x0c", b"    ")
_LINE = re.compile(rb"[^ \t\n\r\x0b\x0c][^\n]*")  # from its first token to its end; blank lines are none
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
        near = Tolerance(tolerance)
        return _token_difference(wanted, got, lambda left, right: left == right or near.allows_text(left, right))
    return _token_difference(wanted, got, bytes.__eq__)


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
