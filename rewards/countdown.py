"""Reward an equation that reaches the target from the given numbers: 1 or 0.

The answer is one expression of the row's numbers, + - * / and brackets, in <answer> tags or on a line that begins with
`####`. Its value is computed exactly, with fractions, and nothing is evaluated as code. It may end in "= TARGET".
Refused are signs, powers, decimals, digits put together, functions, names and a second equation.

Exploits: none known. Several different answers in one turn score 0, so trying many in the answer does not pay.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rlvr import InputError, completion_text
from rlvr.verifiers.completion_text import tagged_answer

MAX_CHARACTERS = 300
_SPELLINGS = str.maketrans("×·÷−", "**/-")  # as models write the operators
_COMMANDS = {r"\times": "*", r"\cdot": "*", r"\div": "/"}
_EXPRESSION = re.compile(r"[0-9+\-*/() ]+")
_EQUATION = re.compile(r"([^=]*)= *([0-9]+)")


def countdown(
    prompts: list[Any],
    completions: list[Any],
    *,
    numbers: list[list[int]],
    target: list[int],
    all_numbers: bool = True,
    **kwargs: Any,
) -> list[float | None]:
    """Compute the expression of each completion.

    Args:
        completions: strings, or lists of chat messages.
        numbers: the numbers of each row. Each may be used once, or as often as it is listed.
        target: the value to reach.
        all_numbers: whether every number has to be used.

    Returns:
        1.0 or 0.0 for each completion; None if a row has no numbers or no target.

    Raises:
        InputError: the lists differ in length.
    """
    for name, column in (("numbers", numbers), ("target", target)):
        if len(column) != len(completions):
            message = (
                f"Reward countdown: {len(completions)} completions, but {len(column)} entries in the column {name}."
            )
            raise InputError(f"{message} Pass one for each.", kind="length-mismatch", key=name)
    return [
        None if _row_fault(given, goal) else float(not _find_fault(completion, given, goal, all_numbers))
        for completion, given, goal in zip(completions, numbers, target, strict=True)
    ]


def validate_rows(*, numbers: list[Any], target: list[Any], **kwargs: Any) -> list[str | None]:
    """Return for each row why it can't be scored, or None. Called once before training."""
    return [_row_fault(given, goal) for given, goal in zip(numbers, target, strict=True)]


def explain(completion: Any, *, numbers: list[int], target: int, all_numbers: bool = True, **kwargs: Any) -> list[str]:
    """Explain the reward of one completion, one sentence a step."""
    if fault := _row_fault(numbers, target):
        return [f"The row can't be scored: {fault}.", "Reward: none"]
    answer = tagged_answer(completion_text(completion))
    fault = _find_fault(completion, numbers, target, all_numbers)
    steps = [] if answer is None else [f"The answer is {answer[:MAX_CHARACTERS]!r}."]
    return [*steps, f"{fault}." if fault else f"It reaches {target}.", f"Reward: {0 if fault else 1}"]


def _row_fault(numbers: Any, target: Any) -> str | None:
    values = [*numbers, target] if isinstance(numbers, list | tuple) and numbers else [None]
    if all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values):
        return None
    return f"numbers {numbers!r:.80} and target {target!r:.40} are not whole numbers of 0 or more"


def _find_fault(completion: Any, numbers: Sequence[int], target: int, all_numbers: bool) -> str:
    """Return what is wrong with an answer, or empty text."""
    answer = tagged_answer(completion_text(completion))
    if answer is None:
        return "There is no answer in <answer> tags, or there are two different ones"
    if len(answer) > MAX_CHARACTERS:
        return f"It has over {MAX_CHARACTERS} characters"
    text = answer.strip("$ ").translate(_SPELLINGS)
    for command, operator in _COMMANDS.items():
        text = text.replace(command, operator)
    if equation := _EQUATION.fullmatch(text):
        text = equation[1]
        if int(equation[2]) != target:
            return f"It states {equation[2]}, not {target}"
    if not _EXPRESSION.fullmatch(text):
        return "It is not one expression of numbers, + - * / and brackets"
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        used = Counter(_literals(tree))
        given = Counter(numbers)
        if used - given or (all_numbers and used != given):
            return f"It does not use the numbers {sorted(numbers)} once each"
        value = _compute(tree)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
        return f"It can't be computed: {type(error).__name__}"
    return "" if value == target else f"It is {value}, not {target}"


def _literals(node: ast.expr) -> list[int]:
    """Return the numbers of an expression.

    Raises:
        ValueError: it has anything but whole numbers and the four operators.
    """
    match node:
        case ast.Constant(value=int(value)):
            return [value]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            return _literals(left) + _literals(right)
    raise ValueError("not allowed")


def _compute(node: ast.expr) -> Fraction:
    """Return the value of an expression that `_literals` accepts. Few numbers of the row, so it can't grow large."""
    if isinstance(node, ast.Constant):
        return Fraction(int(str(node.value)))
    assert isinstance(node, ast.BinOp)
    left, right = _compute(node.left), _compute(node.right)
    match node.op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
    return left / right
