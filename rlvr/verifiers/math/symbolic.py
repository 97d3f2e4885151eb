"""Compare two answers by algebra. Runs only in worker processes, which are killed at their deadline.

math-verify parses LaTeX into sympy, and compares relations with intervals, unions and sets. Expressions are compared
here, because math-verify rounds (1.414214 equals the square root of 2 there, and 1/2^99 equals 1/2^98). Two expressions
are different if their values differ at some point in 50 digits. They are equal only if sympy's simplification proves
it, or the values agree in 400 digits.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import sympy
from latex2sympy2_extended import latex2sympy, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import LatexExtractionConfig, parse, verify

from rlvr.verifiers.math.compare import compare, compare_terms
from rlvr.verifiers.math.numbers import BASED, DECIMAL, is_rounding, read_numeral
from rlvr.verifiers.math.parsed_answer import ParsedAnswer, Term, parts_of, terms_of
from rlvr.verifiers.math.parser import parse_answer

# Workers are killed at their deadline, so math-verify's own timeout (SIGALRM) is off. It would warn each time.
logging.getLogger("math_verify").setLevel(logging.ERROR)

_CONFIG = [LatexExtractionConfig()]
# math-verify's settings except two: there, R and r are one symbol, and 2(3) is 2 + 3.
# Units are dropped already; m and s are variables.
_NORMALIZATION = replace(_CONFIG[0].normalization_config, units=False)
_CONVERSION = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)
_PRODUCT = re.compile(r"((?<![_^a-zA-Z0-9\\])[0-9]+|\))(?=\(|\\frac)")
_ARGUMENT = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|ln|log|exp)[^({*]{0,12}\*")  # sin x * x is ambiguous
# 2\frac{1}{2} within an expression may be a sum or a product.
_MIXED = re.compile(r"[0-9]\s?\\frac\{[0-9]+\}\{[0-9]+\}")
_DEGREES = re.compile(r"([0-9.]+)\s?\\degree(?![a-zA-Z])")
_DECIMAL = re.compile(r"(?<![0-9])([0-9]*)\.([0-9]+)(?![0-9])")


def handle_request(request: list[Any]) -> str | None:
    """Handle a request to a worker.

    ["equivalent", [answer, …], gold, tolerance]: return the first answer that is not equal to the gold, or None.
    ["readable", gold]: return why sympy cannot read every term of the gold, or None.
    """
    kind, *arguments = request
    return _find_different(*arguments) if kind == "equivalent" else _find_unreadable(*arguments)


def _find_different(answers: list[str], gold_text: str, tolerance: float | None) -> str | None:
    gold = parse_answer(gold_text)
    for text in answers:
        answer = parse_answer(text)
        if isinstance(answer, str) or isinstance(gold, str):
            return text
        if not _is_true(answer):
            return text
        equal = compare(answer, gold, lambda one, other: _equal(one, other, tolerance))
        if not (_same_as_wholes(text, gold_text) if equal is None else equal):
            return text
    return None


def _find_unreadable(text: str) -> str | None:
    gold = parse_answer(text)
    if isinstance(gold, str):
        return gold
    if not _is_true(gold):
        return "it is a chain of equals that algebra can't prove"
    expressions = (term.text for term in terms_of(gold) if term.kind in ("math", "relation"))
    unreadable = next((expression for expression in expressions if _to_sympy(expression) is None), None)
    return None if unreadable is None else f"'{unreadable}' is no mathematics that can be read"


def _equal(answer: Term, gold: Term, tolerance: float | None) -> bool:
    known = compare_terms(answer, gold)
    if known is not None and not (known is False and tolerance):
        return known
    if "relation" in (answer.kind, gold.kind):
        answer, gold = _as_relation(answer), _as_relation(gold)
    one, other = _to_sympy(answer.text), _to_sympy(gold.text)
    if one is None or other is None:
        return False
    if answer.kind == "relation" or gold.kind == "relation":
        return _same_relation(one, other)
    if isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr):
        return _is_rounding_of(answer, other) or _same_value(one, other, tolerance)
    return bool(verify(other, one, timeout_seconds=None))


def _is_true(answer: ParsedAnswer) -> bool:
    """Whether every chain in an answer is true."""
    return all(
        compare(replace(part, name="", members=()), member, _is_value_of) is True
        for part in parts_of(answer)
        for member in part.members
    )


def _is_value_of(last: Term, member: Term) -> bool:
    """Whether a member of a chain has the value of the last one, which may be rounded to its decimals."""
    one, other = _to_sympy(last.text), _to_sympy(member.text)
    if not isinstance(one, sympy.Expr) or not isinstance(other, sympy.Expr) or "words" in (last.kind, member.kind):
        return False
    if not (last.number and last.number.denominator > 1 and DECIMAL.fullmatch(last.text)):
        return _same_value(one, other, None)
    error = abs(one - other).evalf(50)
    is_rounded = error.is_comparable and 2 * error * 10 ** len(last.text.partition(".")[2]) <= 1
    return bool(is_rounded) or _is_rounding_of(last, other)


def _is_rounding_of(answer: Term, gold: sympy.Expr) -> bool:
    """Whether a decimal is the value of an irrational gold, rounded at ten or more significant digits."""
    if answer.number is None or answer.number.denominator == 1 or not gold.is_number:
        return False
    exact = gold.evalf(len(answer.text) + 30)
    return exact.is_Float and is_rounding(answer.text, answer.number, Fraction(str(exact)))


def _as_relation(term: Term) -> Term:
    return Term("relation", f"{term.name}={term.text}") if term.name else term


def _to_sympy(text: str) -> Any:
    """Convert a term to sympy, with decimals as fractions; None if it cannot be read."""
    if "'" in text or "\\prime" in text:
        return None  # the grammar drops primes: f'(x) would be f(x)
    if _MIXED.search(text) or _ARGUMENT.search(text):
        return None
    if any(read_numeral(based) is None for based in BASED.finditer(text)):
        return None
    text = BASED.sub(lambda based: str(read_numeral(based)), text)
    text = _DEGREES.sub(r"\\frac{\1\\pi}{180}", text).replace("\\bmod", "\\mod")
    text = text.replace("\\pi(", "\\pi \\cdot (")  # not a function of the name
    text = _PRODUCT.sub(r"\1\\cdot ", text)  # 2(3) is no mixed number
    text = _DECIMAL.sub(_fraction, text).replace("*", "\\cdot ")
    try:
        value = latex2sympy(normalize_latex(text, _NORMALIZATION), conversion_config=_CONVERSION)
    except Exception:  # the grammar's errors, and sympy's many: the text cannot be read
        return None
    try:
        value = value.doit()
    except Exception:  # sympy cannot evaluate it: keep the object as it is
        return value
    # In an exponent the grammar reads i as a name.
    return value.subs(sympy.Symbol("i"), sympy.I) if isinstance(value, sympy.Expr) else value


def _fraction(match: re.Match[str]) -> str:
    digits = match[1] + match[2]
    return f"\\frac{{{int(digits)}}}{{{10 ** len(match[2])}}}"


def _same_value(one: sympy.Expr, other: sympy.Expr, tolerance: float | None) -> bool:
    if one == other:
        return True
    difference = one - other
    if difference.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        return False
    if difference.is_Rational and not tolerance:
        return bool(difference == 0)
    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    agreeing = _same_at_points(one, other, symbols, 50, tolerance or 1e-40)
    if agreeing is not None and not agreeing:
        return False
    if tolerance:
        return bool(agreeing)
    if _is_zero(difference):
        return True
    return bool(_same_at_points(one, other, symbols, 400, 1e-300))


def _is_zero(difference: sympy.Expr) -> bool:
    """Whether sympy can prove it, by the cheapest means that does."""
    for rewritten in (sympy.expand, sympy.cancel, sympy.radsimp, sympy.trigsimp, sympy.simplify):
        try:
            if rewritten(difference) == 0:
                return True
        except Exception:  # one of sympy's many errors for a method that does not apply: try the next
            continue
    return bool(difference.equals(0))


def _same_at_points(one: Any, other: Any, symbols: list[Any], digits: int, tolerance: float) -> bool | None:
    """Check whether two expressions agree at the points of `draw_points`; None if they have no value at any.

    Points with a negative coordinate count only where all parts of both expressions are real: sqrt(x^2) is not x, while
    log(x^2) is 2 log(x) wherever both exist.
    """
    agreed = False
    for point in draw_points(symbols, seed=f"{one} {other}"):
        is_positive = all(value > 0 for value in point.values())
        if not is_positive and not (_is_real_at(one, point) and _is_real_at(other, point)):
            continue
        try:
            left, right = one.subs(point).evalf(digits), other.subs(point).evalf(digits)
        except Exception:  # no value here
            continue
        if not (left.is_number and right.is_number and left.is_finite and right.is_finite):
            continue
        agreed = True
        if abs(left - right) > sympy.Float(tolerance, digits) * max(abs(left), abs(right)):
            return False
    return agreed or None


def draw_points(symbols: Sequence[Any], seed: str) -> list[dict[Any, sympy.Rational]]:
    """Draw points, the same for the same seed: 4 positive ones, then near and far ones with negative coordinates.

    The signs are Walsh functions: every symbol and every product of two takes both signs, and one near and one far
    point are all negative. So x is never |x|, x + 9 never |x + 9|, and x y never |x y|. The seed depends on the
    expressions: no expression vanishes at the points of all golds.
    """
    source = random.Random(seed)

    def coordinate(numerators: tuple[int, int], denominators: tuple[int, int]) -> sympy.Rational:
        return sympy.Rational(source.randrange(*numerators), source.randrange(*denominators))

    if not symbols:
        return [{}]
    points = [{symbol: coordinate((101, 9973), (101, 997)) for symbol in symbols} for _ in range(4)]
    near, far = ((101, 997), (997, 9973)), ((4999, 9973), (101, 199))  # below 1, and 25 to 99
    for ranges, pattern in product((near, far), range(min(1 << len(symbols).bit_length(), 16))):
        signs = [1 if (pattern & place).bit_count() % 2 else -1 for place in range(1, len(symbols) + 1)]
        points.append({symbol: sign * coordinate(*ranges) for symbol, sign in zip(symbols, signs, strict=True)})
    return points


def _is_real_at(expression: Any, point: dict[Any, Any]) -> bool:
    """Whether no root and no logarithm of the expression has a negative argument at a point."""
    if expression.has(sympy.I):
        return True
    for part in sympy.preorder_traversal(expression):
        # Odd roots too: sympy's cube root of -8 is complex.
        is_root = part.is_Pow and not (part.exp.is_Rational and part.exp.q == 1)
        if (is_root or isinstance(part, sympy.log)) and not part.args[0].subs(point).is_nonnegative:
            return False
    return True


def _same_relation(one: Any, other: Any) -> bool:
    """Compare equations up to a factor; math-verify compares other relations."""
    if isinstance(one, sympy.Eq) and isinstance(other, sympy.Eq):
        left, right = one.lhs - one.rhs, other.lhs - other.rhs
        if left.free_symbols != right.free_symbols:
            return False
        ratio = sympy.simplify(left / right)
        return bool(ratio.is_number and ratio.is_finite and ratio != 0)
    if isinstance(one, sympy.Eq) or isinstance(other, sympy.Eq):
        return False
    return bool(verify(other, one, timeout_seconds=None, numeric_precision=50))


def _same_as_wholes(answer: str, gold: str) -> bool:
    options = {"fallback_mode": "no_fallback", "parsing_timeout": None}
    one, other = (parse(f"${text.strip('$ ')}$", _CONFIG, **options) for text in (answer, gold))
    if not one or not other:
        return False
    return bool(verify(other, one, timeout_seconds=None, allow_set_relation_comp=True, numeric_precision=50))


def _warm_up() -> None:
    """Fill sympy's caches before the workers are forked from this process."""
    for answer, gold in (
        ("(x+1)^2", "x^2+2x+1"),
        (r"\sec^2(y)", r"\tan^2(y)+1"),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}"),
        ("x < 3", r"(-\infty, 3)"),
        ("-x>-1", "x<1"),
        ("2x - y + 3 = 0", "y=2x+3"),
        (r"\log_2 8", "3"),
        (r"(2,12)", r"(2,12) \cup (12,102)"),
        (r"\frac{1+i}{2}", "0.5+0.5i"),
        (r"\pi/4", r"\frac{\pi}{4}"),
    ):
        _find_different([answer], gold, None)


_warm_up()
