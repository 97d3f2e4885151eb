"""Names of the comparisons, and the comparison of numbers by value or within a tolerance."""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from rlvr.errors import InputError

OUTPUT_COMPARISONS = ("lines", "tokens", "exact", "float", "unordered", "yes_no")
VALUE_COMPARISONS = ("exact", "float", "unordered")
TOLERANCE = 1e-6

_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# "1e5" may be hexadecimal, so an exponent without a point or a sign makes no decimal. Zeros before a number mean more
# than its value, as in times and dates; and exponents are bounded, so that no value overflows.
_NUMBER = re.compile(rb"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_DECIMAL_MARKS = (b".", b"e-", b"e+", b"E-", b"E+")
_MAX_DIGITS = 1200  # a double written in full has at most 309 digits before its point and 1,074 behind it
# Enough digits for the difference of two such numbers. Overflow gives infinity instead of an exception.
_ARITHMETIC = Context(prec=3000, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX, capitals=1, clamp=0, traps=[])


def check_comparison(
    comparison: object, tolerance: object = TOLERANCE, known: tuple[str, ...] = OUTPUT_COMPARISONS
) -> None:
    """Raise InputError unless the comparison is known and the tolerance is a number from 0 to below 1."""
    if comparison not in known:
        message = f"there is no comparison {comparison!r:.60}. Use one of {', '.join(known)}."
        raise InputError(message, kind="unknown-choice", key="comparison")
    is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not is_number or not 0 <= tolerance < 1:  # type: ignore[operator]
        raise InputError(
            f"the tolerance is {tolerance!r:.60}. Use a number from 0 to below 1, such as 1e-6.",
            kind="invalid-tolerance",
            key="tolerance",
        )


def read_number(text: bytes) -> Decimal | None:
    """Return the exact value of a printed number, or None."""
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    return _ARITHMETIC.create_decimal(text.decode())


def may_have_decimals(text: bytes) -> bool:
    return any(mark in text for mark in _DECIMAL_MARKS)


def has_same_value(expected: bytes, got: bytes) -> bool:
    """Whether the expected text is a decimal, and the printed one is a number of the same value."""
    if not may_have_decimals(expected):
        return False
    value = read_number(expected)
    return value is not None and value == read_number(got)


class Tolerance:
    """Compare numbers within an absolute or relative tolerance of the expected one."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._exact = _ARITHMETIC.create_decimal(repr(float(tolerance)))

    def allows_text(self, expected: bytes, got: bytes) -> bool:
        """Compare printed numbers. False if either is no number; an expected integer has no tolerance."""
        if len(expected) > _MAX_DIGITS or len(got) > _MAX_DIGITS:
            return False
        if not _DECIMAL.fullmatch(expected) or not _DECIMAL.fullmatch(got):
            return False
        if expected.lstrip(b"+-").isdigit():  # 2.0 equals 2
            return _ARITHMETIC.create_decimal(expected.decode()) == _ARITHMETIC.create_decimal(got.decode())
        exact_expected = _ARITHMETIC.create_decimal(expected.decode())
        error = _ARITHMETIC.abs(_ARITHMETIC.subtract(exact_expected, _ARITHMETIC.create_decimal(got.decode())))
        measure = _ARITHMETIC.max(_ARITHMETIC.abs(exact_expected), 1)
        return error.is_finite() and error <= _ARITHMETIC.multiply(self._exact, measure)

    def allows(self, expected: float, got: int | float | Decimal | Fraction) -> bool:
        """Compare returned numbers."""
        try:
            number = float(got)
        except OverflowError:  # an integer larger than any float
            return False
        if not math.isfinite(expected) or not math.isfinite(number):
            return False
        return abs(expected - number) <= self._tolerance * max(1.0, abs(expected))
