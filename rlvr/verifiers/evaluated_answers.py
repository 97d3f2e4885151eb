"""Which answers a verifier of reasoning-gym may evaluate.

Nine verifiers of the package evaluate the answer as Python: four call `eval`, and five call sympy's `parse_expr`, which
is `eval` with all builtins. A policy could exploit that in the training process. These verifiers get only harmless
answers; any other answer is compared as text.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction

# Datasets whose `score_answer` evaluates the answer, as of reasoning-gym 0.1.25; a test looks for others in the
# installed package. Remove this when the package stops evaluating answers.
EVALUATED_AS_LITERAL = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
EVALUATED_AS_EXPRESSION = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
_EXPRESSION = re.compile(r"[0-9A-Za-z\s+\-*/^().,]{1,400}")
_WORD = re.compile(r"[A-Za-z]+")
# Beside single letters, which are variables.
_FUNCTIONS = {"sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan"}
_FUNCTIONS |= {"sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt", "pi"}
_POWER = re.compile(r"(\)?)\s*(?:\*\*|\^)\s*")
# One or two digits, a letter, or either of them or a fraction in brackets.
_EXPONENT = re.compile(
    r"[0-9]{1,2}(?![0-9.])|[A-Za-z](?![A-Za-z(])"
    r"|\(\s*-?\s*(?:[0-9]{1,2}(?:\s*/\s*[0-9]{1,2})?|[A-Za-z])\s*\)"
)
# Datasets whose answer is plain arithmetic with given numbers. Their verifiers search the text for whole numbers, so
# "0e0*(1+2+3)+24e0" hides what it uses, and puzzle24's takes any four numbers.
ARITHMETIC = frozenset({"countdown", "puzzle24"})
_ARITHMETIC = re.compile(r"(?!.*(?:\*\*|//))[0-9 +\-*/()]{1,400}")


# Datasets whose verifier a constant meets, as of reasoning-gym 0.1.25.
_PROBABILITY_TOLERANCE = Fraction(1, 100)  # relative


def earns_by_a_constant(answer: str, dataset: str, solution: str) -> bool:
    """Whether the dataset's verifier would pay for an answer that has nothing to do with the problem.

    "coin_flip" accepts "0" for any small probability, "complex_arithmetic" accepts "nan", and "game_of_life_halting"
    accepts any text that is not empty.
    """
    if dataset == "game_of_life_halting":
        return answer != solution
    if dataset == "complex_arithmetic":
        return re.search("nan|inf", answer, re.IGNORECASE) is not None
    if dataset == "coin_flip":
        try:
            value, right = Fraction(answer.replace(",", "")), Fraction(solution)
        except (ValueError, ZeroDivisionError):
            return True
        return abs(value - right) > _PROBABILITY_TOLERANCE * right
    return False


def is_harmless(answer: str, dataset: str) -> bool:
    """Whether the dataset's verifier may evaluate this answer.

    For `eval`, it must be a literal of `ast.literal_eval`. For `parse_expr`, it may have numbers, single letters and
    the usual functions, but no attribute, string, other call, or expensive power.
    """
    if dataset in EVALUATED_AS_LITERAL:
        try:
            ast.literal_eval(answer)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return False
        return True
    if dataset not in EVALUATED_AS_EXPRESSION:
        return True
    if dataset in ARITHMETIC:
        return _ARITHMETIC.fullmatch(answer) is not None and re.search(r"[0-9]{30}", answer) is None
    if not _EXPRESSION.fullmatch(answer) or re.search(r"\.\s*[A-Za-z]|[0-9]{30}", answer):
        return False
    if any(len(word) > 1 and word not in _FUNCTIONS for word in _WORD.findall(answer)):
        return False
    powers = list(_POWER.finditer(answer))
    if sum(bool(power.group(1)) for power in powers) > 3:
        return False
    for power in powers:
        exponent = _EXPONENT.match(answer, power.end())
        if exponent is None or _POWER.match(answer, exponent.end()):
            return False
    return True
