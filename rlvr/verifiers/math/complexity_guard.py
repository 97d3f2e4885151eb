"""Refuse expressions that are too expensive to compute: towers of powers, huge factorials, deep nesting.

The algebra workers are killed at their deadline anyway (rlvr/workers/pool.py). This check needs only microseconds.
"""

from __future__ import annotations

import re
from itertools import accumulate

from rlvr.verifiers.math.normalize import closing_bracket

MAX_EXPRESSION = 500
MAX_DEPTH = 12
# An unknown in canonical spelling: a single letter, or a Greek one.
VARIABLE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]|\\(?:theta|alpha|beta|gamma|lambda|phi|omega|mu|sigma)(?![a-zA-Z])")
_POWER = re.compile(r"\^")
_FACTORIAL = re.compile(r"([0-9]{1,20}|[)}\]a-zA-Z])\s?(!+)")
_LONG_NUMBER = re.compile(r"[0-9]{120}")
_POWER_OF = re.compile(r"\^\s?(?:\{\s?-?\s?([0-9]{1,40})\s?\}|([0-9]{1,40}))")
_HUGE = re.compile(r"[0-9]{5}")
_SMALL_BINOMIAL = re.compile(r"\\binom\s?\{\s?[0-9]{1,3}\s?\}\s?\{\s?[0-9]{1,3}\s?\}")
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
        depths = accumulate((character in "{([") - (character in "})]") for character in text)
        if max(depths) > MAX_DEPTH:
            return f"it is nested deeper than {MAX_DEPTH} levels"
    if _LONG_NUMBER.search(text):
        return "it holds a number of over 120 digits"
    if "^" in text:
        exponents = [match[1] or match[2] for match in _POWER_OF.finditer(text)]
        if huge := next((exponent for exponent in exponents if len(exponent) > 4), None):
            return f"an exponent is {huge[:12]}"
        if sum(len(exponent) > 3 for exponent in exponents) > 2:
            return "it has many large exponents"
        if _has_tower(text):
            return "it is a tower of powers"
    if "!" in text:
        has_variable = VARIABLE.search(text) is not None
        for argument, signs in _FACTORIAL.findall(text):
            is_large = int(argument) > 200 if argument.isdigit() else not has_variable
            if len(signs) > 1 or is_large:
                return "it has a factorial that is too large"
    if "binom" in text or "choose" in text:
        others = _SMALL_BINOMIAL.sub("", text)
        if ("binom" in others or "choose" in others) and (_HUGE.search(text) or re.search(r"[0-9]\s?\^", text)):
            return "it has a binomial that is too large"
    if "gamma" in text.lower() and _HUGE.search(text):
        return "it has a gamma function that is too large"
    return None


def _has_tower(text: str) -> bool:
    """Whether an exponent contains a power of numbers, as in 9^{9^9}, or powers are three deep; not e^{x^2}."""
    for match in _POWER.finditer(text):
        start = len(text) - len(text[match.end() :].lstrip())
        end = start + 1
        if text[start:end] in ("{", "("):
            closing = closing_bracket(text, end, opening="{([", closing="})]")
            end = (closing if closing >= 0 else len(text)) + 1
        exponent = text[start:end]
        if exponent.count("^") > 1 or (("^" in exponent or "!" in exponent) and not VARIABLE.search(exponent)):
            return True
        if text[end:].lstrip(" 0123456789").startswith("^") and text[end - 1 : end] != ")":
            return True  # 9^9^9
    return False
