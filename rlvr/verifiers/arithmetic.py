"""Expressions of whole numbers, + - * / and brackets: computed exactly, with fractions, and never evaluated as code."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

MAX_CHARACTERS = 300
_SPELLINGS = {"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", r"\times": "*", r"\cdot": "*", r"\div": "/"}
_EXPRESSION = re.compile(r"([0-9+\-*/() ]+)(?:= *([0-9]+))?")
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def expression_fault(answer: str | None, numbers: Sequence[int], target: int) -> str | None:
    """Return why an answer does not reach the target from the numbers, or None. It may end in "= TARGET"."""
    if answer is None:
        return "There is no answer in <answer> tags, or there are two different ones."
    shown, text = f"The answer {answer[:MAX_CHARACTERS]!r}", answer.strip("$ ")
    for spelling, plain in _SPELLINGS.items():
        text = text.replace(spelling, plain)
    equation = _EXPRESSION.fullmatch(text)
    if equation is None or len(answer) > MAX_CHARACTERS:
        return f"{shown} is not one short expression of numbers, + - * / and brackets."
    if equation[2] and int(equation[2]) != target:
        return f"{shown} states {equation[2]}, not {target}."
    used: Counter[int] = Counter()
    try:
        value = _compute(ast.parse(equation[1].strip(), mode="eval").body, used)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        return f"{shown} can't be computed: {type(error).__name__}."
    if used != Counter(numbers):
        return f"{shown} does not use the numbers {sorted(numbers)} once each."
    return None if value == target else f"{shown} is {value}, not {target}."


def _compute(node: ast.expr, used: Counter[int]) -> Fraction:
    """Return the value of an expression, and count its numbers in `used`.

    Raises:
        ValueError: it has anything but whole numbers and the four operators.
    """
    match node:
        case ast.Constant(value=int(value)):
            used[value] += 1
            return Fraction(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_compute(left, used), _compute(right, used))
    raise ValueError("not allowed")
