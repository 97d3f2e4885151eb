"""Compare a program's output with the expected output. compare_values.py compares returned values.

    output_fault("1 2\n3\n", b"1 2 \n3")            None: the same
    output_fault("0.5\n", b"0.50000001\n", "float")  None

    lines      each line, without white space at its end and without blank lines at the end of the text
    tokens     words between white space
    exact      every byte
    float      tokens; an expected number with a point or an exponent has a tolerance
    unordered  lines in any order, compared by token; blank lines don't count
    yes_no     tokens, ignoring case

In all but "exact", an expected decimal (1.50) equals every number of the same value (1.5, 1.500, 15e-1), also an
integer (1 for 1.0). An expected integer is compared as it is written; only "float" accepts 1.0 for 1.

Integers never have a tolerance: a wrong count of 300,001 is close to 300,000. "nan" and "inf" are close to nothing.
Only ASCII characters are white space or digits or have a case. Output is bytes: invalid UTF-8 and NUL are compared as
they are.

The policy under training writes the output. So this module builds no table of it, never splits it as a whole, and
parses no number of unbounded length. Time is linear in the output; extra memory depends on the expected output alone.

A returned fault quotes the expected output. It is for people: a policy must never see it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import zip_longest

from rlvr.verifiers.code.tolerance import (
    TOLERANCE,
    Tolerance,
    check_comparison,
    has_same_value,
    may_have_decimals,
    read_number,
)

_CHUNK = 1 << 16
_WHITE = re.compile(rb"[ \t\n\r\x0b\x0c]")
_TO_SPACES = bytes.maketrans(b"\t\r\x0b\x0c", b"    ")
_PIECE = re.compile(rb"[ \t\r\x0b\x0c]+|[^ \t\r\x0b\x0c]+")  # of a line
_LINE = re.compile(rb"[^ \t\n\r\x0b\x0c][^\n]*")  # from its first token to its end; skips blank lines
_MAX_QUOTED = 60


def output_fault(
    expected: str | bytes, got: bytes, comparison: str = "lines", tolerance: float = TOLERANCE
) -> str | None:
    """Return None if the output is the expected one, else a phrase that says what is wrong.

    Args:
        expected: text means its UTF-8 bytes.
        comparison: one of `OUTPUT_COMPARISONS`.
        tolerance: of "float": largest absolute error, or error relative to the expected number.

    Raises:
        InputError: the comparison or the tolerance is invalid.
    """
    check_comparison(comparison, tolerance)
    wanted = expected.encode("utf-8", "surrogatepass") if isinstance(expected, str) else expected
    if wanted == got:
        return None
    if comparison == "exact":
        return _line_difference(wanted, got, exact=True)
    wanted, got = wanted.rstrip(), got.rstrip()  # for bytes this strips ASCII white space only
    if wanted == got:
        return None
    if comparison == "lines":
        return _line_difference(wanted, got)
    if comparison == "unordered":
        return _unordered_difference(wanted, got)
    if comparison == "yes_no":
        return _token_difference(
            wanted, got, lambda left, right: left.lower() == right.lower() or has_same_value(left, right)
        )
    if comparison == "float":
        return _token_difference(wanted, got, Tolerance(tolerance).allows_text)
    return _token_difference(wanted, got, has_same_value)


def _line_difference(wanted: bytes, got: bytes, *, exact: bool = False) -> str | None:
    # Reading stops where the expected output ends.
    lines = enumerate(zip_longest(BytesIO(wanted), BytesIO(got)), start=1)
    for number, (left, right) in lines:
        if left is None:
            return f"goes on after the {number - 1:,} lines that were expected, with {_quote(right)}"
        if right is None:
            return f"ends after line {number - 1:,}, expected {_quote(left.rstrip())}" if got else "is empty"
        if left != right and (exact or not _is_same_line(left.rstrip(), right.rstrip())):
            shown = [_quote(line if exact else line.rstrip()) for line in (left, right)]
            return f"line {number:,}: expected {shown[0]}, got {shown[1]}"
    return None


def _is_same_line(left: bytes, right: bytes) -> bool:
    if left == right or not may_have_decimals(left):
        return left == right
    pieces = zip_longest(_PIECE.finditer(left), _PIECE.finditer(right))
    return all(one and other and (one[0] == other[0] or has_same_value(one[0], other[0])) for one, other in pieces)


def _tokens(text: bytes) -> Iterator[bytes]:
    """Yield the tokens between ASCII white space, in chunks: a list of all could take 40 times the text's memory."""
    start = 0
    while start < len(text):
        end = _WHITE.search(text, start + _CHUNK)
        yield from text[start : end.start() if end else len(text)].split()
        start = end.end() if end else len(text)


def _token_difference(wanted: bytes, got: bytes, same: Callable[[bytes, bytes], bool]) -> str | None:
    for number, (left, right) in enumerate(zip_longest(_tokens(wanted), _tokens(got)), start=1):
        if left is None:
            return f"goes on after the {number - 1:,} tokens that were expected, with {_quote(right)}"
        if right is None:
            return f"ends after {number - 1:,} tokens, expected {_quote(left)}" if number > 1 else "is empty"
        if left != right and not same(left, right):
            return f"token {number:,}: expected {_quote(left)}, got {_quote(right)}"
    return None


def _unordered_difference(wanted: bytes, got: bytes) -> str | None:
    missing = Counter(_in_tokens(line[0]) for line in _LINE.finditer(wanted))
    most_spaces = max((line.count(b" ") for line in missing), default=0)
    with_decimals: dict[tuple[object, ...], list[bytes]] = {}
    for tokens in filter(may_have_decimals, missing):
        with_decimals.setdefault(_values(tokens), []).append(tokens)
    # Other lines than the expected ones are never stored, so a flood of them needs no memory.
    for line in _LINE.finditer(got):
        tokens = _in_tokens(line[0])
        if with_decimals and not missing.get(tokens) and tokens.count(b" ") <= most_spaces:
            same_value = (other for other in with_decimals.get(_values(tokens), ()) if missing[other])
            tokens = next((other for other in same_value if _is_same_line(other, tokens)), tokens)
        if not missing.get(tokens):
            why = "occurs too often" if tokens in missing else "is not expected"
            number = got.count(b"\n", 0, line.start()) + 1
            return f"line {number:,}, {_quote(tokens)}, {why}"
        missing[tokens] -= 1
    unmatched = next((line for line, count in missing.items() if count), None)
    return None if unmatched is None else f"lacks the line {_quote(unmatched)}"


def _values(line: bytes) -> tuple[object, ...]:
    """Return the tokens of a line, numbers by their value."""
    return tuple(token if (value := read_number(token)) is None else value for token in line.split(b" "))


def _in_tokens(line: bytes) -> bytes:
    """Return the tokens of a line, separated by one space."""
    line = line.translate(_TO_SPACES).strip()
    while b"  " in line:
        line = line.replace(b"  ", b" ")
    return line


def _quote(text: bytes) -> str:
    """Quote the start of an output in printable ASCII, so that it can't steer a terminal."""
    cut = text[:_MAX_QUOTED].decode("utf-8", "backslashreplace")
    return ascii(cut) + ("..." if len(text) > _MAX_QUOTED else "")
