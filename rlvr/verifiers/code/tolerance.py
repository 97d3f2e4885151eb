"""How outputs and values may be compared, and when two numbers are near."""

from __future__ import annotations

import difflib
import math
import re
from decimal import ROUND_HALF_EVEN, Context

from rlvr.errors import InputError

OUTPUT_COMPARISONS = ("lines", "tokens", "exact", "float", "unordered", "yes_no")
VALUE_COMPARISONS = ("exact", "float", "unordered")
TOLERANCE = 1e-6

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


class Tolerance:
    """Whether numbers are within a tolerance of an expected one: absolutely, or relatively to it."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._exact = _ARITHMETIC.create_decimal(repr(float(tolerance)))

    def token(self, expected: bytes, got: bytes) -> bool:
        """For numbers as they are printed; False where either is none. An integer is near itself alone."""
        if len(expected) > _MOST_DIGITS or len(got) > _MOST_DIGITS:
            return False
        if not _DECIMAL.fullmatch(expected) or not _DECIMAL.fullmatch(got):
            return False
        if expected.lstrip(b"+-").isdigit():  # 2.0 for 2, but nothing that is only near it
            return _ARITHMETIC.create_decimal(expected.decode()) == _ARITHMETIC.create_decimal(got.decode())
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
