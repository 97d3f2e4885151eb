"""Sums of plain numbers, such as "6 * 7": computed exactly, and never evaluated as code."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

_SUM = re.compile(r"[0-9.,+*/^()$% -]{1,150}")
_OPERATION = re.compile(r"[0-9)%] ?[-+*/^] ?[-$(.0-9]")
_LIST = re.compile(r",(?![0-9]{3}(?![0-9]))|[0-9] +[0-9]")


def is_sum(text: str) -> bool:
    """Whether a text is plain numbers with operations between them, such as "6 * 7"."""
    return all((_SUM.fullmatch(text), _OPERATION.search(text), not _LIST.search(text)))


def gives(text: str, result: str, value: Fraction | int) -> bool:
    """Whether a sum gives the value that is written as `result`, perhaps rounded to its decimals."""
    decimals = re.search(r"\.([0-9]+)", result)
    half = Fraction(1, 2 * 10 ** len(decimals[1])) if decimals and value.denominator > 1 else 0
    results = (compute(text, percent) for percent in ("/100", ""))
    return any(computed is not None and abs(computed - value) <= half for computed in results)


def compute(text: str, percent: str = "/100") -> Fraction | None:
    """Compute a sum of plain numbers exactly; None if it is none, is longer than 150 characters, or has large powers.

    Args:
        percent: what a percent sign stands for: "/100", or nothing ("5% + 3% = 8%").
    """
    if not _SUM.fullmatch(text):
        return None
    text = re.sub(r"\$|,(?=[0-9]{3}(?![0-9]))", "", text).strip("* ")
    text = re.sub(r"(?<=[0-9)]) ?(?=\()|(?<=\)) ?(?=[0-9])", "*", text.replace("^", "**"))
    text = re.sub(r"([0-9.]+) ?%", rf"(\1{percent})", text)
    try:
        return _value(ast.parse(text, mode="eval").body, text)
    except (SyntaxError, ValueError, ArithmeticError, MemoryError, RecursionError):
        return None


def _value(node: ast.expr, text: str) -> Fraction:
    if isinstance(node, ast.Constant):
        return Fraction(text[node.col_offset : node.end_col_offset])
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, text)
        return -operand if isinstance(node.op, ast.USub) else operand
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
        raise ValueError(text)
    left, right = _value(node.left, text), _value(node.right, text)
    if isinstance(node.op, ast.Pow) and (
        right.denominator > 1 or abs(right) > 64 or max(abs(left.numerator), left.denominator) > 10**9
    ):
        raise ValueError(text)
    return _OPERATORS[type(node.op)](left, right)


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
