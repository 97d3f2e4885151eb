"""Format numbers, shares and long texts for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

MINUS = str.maketrans("-", "−")


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def points(difference: float) -> str:
    """A difference of two shares in percentage points, with its sign."""
    return f"{round(100 * difference, 1) + 0.0:+.1f}".translate(MINUS)


def number(value: float) -> str:
    """Three digits, without an exponent where none is needed."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text if "e" in text else text.translate(MINUS)


def count(number: float, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def chance_words(p_value: float) -> str:
    """ "p = 0.03", as a person says it."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.2g}"


def is_number(value: Any) -> TypeGuard[float]:
    """Whether the value can be reckoned with and drawn: neither NaN nor infinite nor close to it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


# Characters shown of a prompt and of a completion; the middle is left out, since the end says most (the question
# after its examples, the answer after its working).
MOST_PROMPT, MOST_COMPLETION = 1500, 3000


def shortened(text: str, most: int) -> str:
    """The text, or its first third and last two thirds of `most` characters around a note of what is missing."""
    if len(text) <= most:
        return text
    head = most // 3
    tail = most - head
    return f"{text[:head]}\n[… {len(text) - most:,} characters left out …]\n{text[-tail:]}"
