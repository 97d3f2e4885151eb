"""Score completions with the verifier of their reasoning-gym dataset.

tasks/reasoning_gym.py packs each problem into the column `entry`.

Nine verifiers of the package evaluate the answer as Python: four call `eval`, and five call sympy's `parse_expr`, which
is `eval` with all builtins. A policy could exploit that in the training process. These verifiers get only harmless
answers (`is_harmless`); any other answer is compared as text.
"""

# This file has the package's name. `import reasoning_gym` finds the package as long as rewards/ is not in sys.path.
from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import Any

from rlvr import completion_text
from rlvr.data.io import pack, unpack
from rlvr.data.reasoning_gym import make_dataset
from rlvr.verifiers.completion_text import tagged_answer

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


def reasoning_gym(
    prompts: list[Any], completions: list[Any], *, entry: list[str], exact: bool = False, **kwargs: Any
) -> list[float | None]:
    """Return the score of the dataset's verifier, 0 to 1.

    The answer is the text in the first <answer> tags of the model's own turn, or else on its `#### The final answer is
    …` line. Two different answers in one turn score 0, as does an answer on which the verifier fails.

    Args:
        completions: strings, or lists of chat messages.
        entry: the problems, packed by tasks/reasoning_gym.py.
        exact: count only a full score. Most verifiers also reward partly right answers, and right ones in a wrong
            format.

    Returns:
        A score for each completion; None if the problem itself cannot be verified.
    """
    rewards: list[float | None] = []
    for completion, packed in zip(completions, entry, strict=True):
        answer = tagged_answer(completion_text(completion))
        score = 0.0 if answer is None else _score(answer, packed)
        rewards.append(score if score is None or not exact else float(score >= 1.0))
    return rewards


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


def _score(answer: str, packed: str) -> float | None:
    problem = unpack(packed)
    # "composite" passes the answer to the dataset of the problem.
    name = problem["item"]["metadata"].get("source_dataset") or problem["dataset"]
    if not is_harmless(answer, name):
        return float(answer == problem["item"]["answer"])
    if name in ARITHMETIC and sorted(map(int, re.findall("[0-9]+", answer))) != sorted(
        problem["item"]["metadata"]["numbers"]
    ):
        return 0.0
    dataset = _dataset(problem["dataset"], pack(problem["options"]))
    try:
        return float(dataset.score_answer(answer, problem["item"]))
    except Exception:  # any error of a verifier on unexpected text
        return (
            0.0 if _verifies_own_solution(problem["dataset"], pack(problem["options"]), pack(problem["item"])) else None
        )


@lru_cache(maxsize=4096)
def _verifies_own_solution(name: str, options: str, item: str) -> bool:
    """Whether the verifier accepts the solution of this problem; if not, its failure is not the completion's."""
    problem = unpack(item)
    try:
        return problem["answer"] is None or float(_dataset(name, options).score_answer(problem["answer"], problem)) > 0
    except Exception:
        return False


@lru_cache(maxsize=64)
def _dataset(name: str, options: str) -> Any:
    """Return the dataset with the verifier; size and seed do not matter."""
    return make_dataset(name, unpack(options), size=1, seed=0)
