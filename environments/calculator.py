"""Exact arithmetic as a tool. Add a reward, such as math_correctness: the environment gives none.

    environment: {name: calculator}

Values are exact: 0.1 + 0.2 is 0.3, and 1/3 stays 1/3. Expressions are parsed, never evaluated as Python.

Limits: 150 characters per expression, exponents up to 64, and for their bases a numerator and denominator up to 10^9.
"""

from __future__ import annotations

from typing import Any

from rlvr.verifiers.math.numbers import format_number
from rlvr.verifiers.math.sums import compute

SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})


class Calculator:
    """An environment without state."""

    def reset(self, **row: Any) -> None:
        """Begin a rollout. The prompt stays as it is."""

    def calculate(self, expression: str) -> str:
        """
        Compute an arithmetic expression exactly.

        Args:
            expression: Numbers, the operators + - * / ^ and parentheses, such as "(12 + 0.5) * 47".

        Returns:
            The value, such as "587.5" or "1/3".
        """
        value = compute(" ".join(str(expression).translate(SPELLINGS).replace("**", "^").split()))
        if value is None:
            raise ValueError("no value. Use numbers, + - * / ^ and parentheses, at most 150 characters.")
        return format_number(value)
