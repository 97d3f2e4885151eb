"""Refuse expressions that are too expensive to compute: towers of powers, huge factorials, deep nesting.

The algebra workers are killed at their deadline anyway (rlvr/workers/pool.py). This check needs only microseconds.
"""

from __future__ import annotations

import re

MAX_EXPRESSION = 500
MAX_DEPTH = 12
# An unknown in canonical spelling: a single letter, or a Greek one.
VARIABLE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]|\\(?:theta|alpha|beta|gamma|lambda|phi|omega|mu|sigma)(?![a-zA-Z])")
_POWER = re.compile(r"\^")
_FACTORIAL = re.compile(r"([0-9]{1,20}|[)}\]a-zA-Z])\s?(!+)")
_LONG_NUMBER = re.compile(r"[0-9]{120}")
_POWER_OF = re.compile(r"\^\s?(?:\{\s?-?\s?([0-9]{1,40})\s?\}|([0-9]{1,40}))")
_HUGE = re.compile(r"[0-9]{5}")
# Operations that occur in problems more often than in answers.
UNEVALUATED = re.compile(
    r"\\(?:sum|prod|int|iint|oint|lim|frac\{d\}|frac\{\\partial|bmod|pmod|mod|limsup|liminf|bigcup|bigcap|uparrow)"
    r"(?![a-zA-Z])"
)


def check_complexity(text: str) -> str | None:
    """Return why an expression is too expensive to compute, as half a sentence; None if it is not."""
    if len(text) > MAX_EXPRESSION:
        return f"it is longer than {MAX_EXPRESSION} characters"
    if "{" in text or "(" in text or "[" in text:
        depth = deepest = 0
        for character in text:
            if character in "{([":
                depth += 1
                deepest = max(deepest, depth)
            elif character in "})]":
                depth -= 1
        if deepest > MAX_DEPTH:
            return f"it is nested deeper than {MAX_DEPTH} levels"
    if _LONG_NUMBER.search(text):
        return "it holds a number of over 120 digits"
    if "^" in text:
        powers = 0
        for match in _POWER_OF.finditer(text):
            exponent = match[1] or match[2]
            if len(exponent) > 4:
                return f"an exponent is {exponent[:12]}"
            powers += len(exponent) > 3
        if powers > 2:
            return "it has many large exponents"
        if _has_tower(text):
            return "it is a tower of powers"
    if "!" in text:
        for match in _FACTORIAL.finditer(text):
            known = not VARIABLE.search(text)
            if len(match[2]) > 1 or (match[1].isdigit() and int(match[1]) > 200) or (known and not match[1].isdigit()):
                return "it has a factorial that is too large"
    if ("binom" in text or "choose" in text) and (_HUGE.search(text) or re.search(r"[0-9]\s?\^", text)):
        return "it has a binomial that is too large"
    if "gamma" in text.lower() and _HUGE.search(text):
        return "it has a gamma function that is too large"
    return None


def _has_tower(text: str) -> bool:
    """Whether an exponent contains a power of numbers, as in 9^{9^9}, or powers are three deep; not e^{x^2}."""
    for match in _POWER.finditer(text):
        start = match.end() + (len(text[match.end() :]) - len(text[match.end() :].lstrip()))
        if text[start : start + 1] in ("{", "("):
            inside = text[start : _closing_bracket(text, start)]
            after = start + len(inside) + 1
        else:
            inside = text[start : start + 1]
            after = start + 1
        if "^" in inside and (inside.count("^") > 1 or not VARIABLE.search(inside)):
            return True
        if "!" in inside and not VARIABLE.search(inside):
            return True
        if text[after:].lstrip(" 0123456789").startswith("^") and text[after - 1 : after] != ")":
            return True  # 9^9^9
    return False


def _closing_bracket(text: str, opening: int) -> int:
    depth = 0
    for index in range(opening, len(text)):
        if text[index] in "{([":
            depth += 1
        elif text[index] in "})]":
            depth -= 1
            if depth == 0:
                return index
    return len(text)
