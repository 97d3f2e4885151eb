"""Score completions with the verifier of their reasoning-gym dataset.

tasks/reasoning_gym.py packs each problem into the column `entry`.

Nine verifiers of the package evaluate the answer as Python, which a policy could exploit. These verifiers get only
harmless answers (rlvr/verifiers/evaluated_answers.py). Any other answer is compared as text. Three verifiers accept a
constant answer. Here such answers score 0.
"""

# This file has the package's name. `import reasoning_gym` finds the package as long as rewards/ is not in sys.path.
from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rlvr import completion_text
from rlvr.data.io import pack, unpack
from rlvr.data.reasoning_gym import make_dataset
from rlvr.verifiers.completion_text import tagged_answer
from rlvr.verifiers.evaluated_answers import ARITHMETIC, earns_by_a_constant, is_harmless


def reasoning_gym(
    prompts: list[Any], completions: list[Any], *, entry: list[str], exact: bool = False, **kwargs: Any
) -> list[float | None]:
    """Return the score of the dataset's verifier, 0 to 1.

    The answer is the text in the <answer> tags of the model's own turn, or else on its `#### The final answer is …`
    line. Two different answers in one turn score 0. An answer on which the verifier fails scores 0, too.

    Args:
        completions: strings, or lists of chat messages.
        entry: the problem of each row, packed by tasks/reasoning_gym.py.
        exact: count only a full score. Most verifiers also reward partly correct answers, and correct answers in a
            wrong format.

    Returns:
        A score for each completion. None if the problem itself cannot be verified.
    """
    rewards: list[float | None] = []
    for completion, packed in zip(completions, entry, strict=True):
        answer = tagged_answer(completion_text(completion))
        score = 0.0 if answer is None else _score(answer, packed)
        rewards.append(score if score is None or not exact else float(score >= 1.0))
    return rewards


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
    if earns_by_a_constant(answer, name, str(problem["item"]["answer"])):
        return 0.0
    dataset = _dataset(problem["dataset"], pack(problem["options"]))
    try:
        return float(dataset.score_answer(answer, problem["item"]))
    except Exception:  # any error of a verifier on unexpected text
        is_sound = _verifies_own_solution(problem["dataset"], pack(problem["options"]), pack(problem["item"]))
        return 0.0 if is_sound else None


@lru_cache(maxsize=4096)
def _verifies_own_solution(name: str, options: str, item: str) -> bool:
    """Whether the verifier accepts the solution of this problem. If not, the completion did not cause the failure."""
    problem = unpack(item)
    try:
        return problem["answer"] is None or float(_dataset(name, options).score_answer(problem["answer"], problem)) > 0
    except Exception:
        return False


@lru_cache(maxsize=64)
def _dataset(name: str, options: str) -> Any:
    """Return the dataset with the verifier. Its size and seed do not matter."""
    return make_dataset(name, unpack(options), size=1, seed=0)
