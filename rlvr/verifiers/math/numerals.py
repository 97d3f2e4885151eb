"""Numerals of other bases, such as 204_5."""

from __future__ import annotations

import re

BASED = re.compile(r"([0-9]{1,40})_([2-9]|\{[0-9]{1,2}\})(?![0-9])")


def read_numeral(based: re.Match[str]) -> int | None:
    """Read a match of `BASED`, such as 204_5; None if a digit is not one of the base."""
    try:
        return int(based[1], int(based[2].strip("{}")))
    except ValueError:
        return None
