"""Scores a completion with the verifier of the reasoning-gym dataset that its problem came from.

Goes with tasks/reasoning_gym.py, which packs each problem into the column `entry`.
"""

# This file has the package's name. `import reasoning_gym` still finds the package, as long as rewards/ is on no path.
from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rlvr.answers import completion_text, own_turn, without_thinking
from rlvr.rows import pack, unpack

_OPENING = re.compile(r"<answer>", re.IGNORECASE)
_CLOSING = re.compile(r"</answer>", re.IGNORECASE)
_ANSWER_LINE = re.compile(r"^####[ \t]*(?:The final answer is[ \t:]*)?(.+)$", re.MULTILINE | re.IGNORECASE)


def reasoning_gym(
    prompts: list[Any], completions: list[Any], *, entry: list[str], exact: bool = False, **kwargs: Any
) -> list[float | None]:
    """What the dataset's own verifier says, 0 to 1.

    The answer is what stands between the first <answer> tags of the model's own turn, or else on its
    `#### The final answer is …` line. Two different answers in one turn score 0, and so does an answer that the
    verifier chokes on.

    Args:
        completions: strings, or lists of chat messages.
        entry: the problems, as tasks/reasoning_gym.py packs them.
        exact: count only a full score. Most verifiers give part of it to answers that are partly right, or right and
            in the wrong form.

    Returns:
        A score for each completion; None where the problem itself cannot be verified.
    """
    rewards: list[float | None] = []
    for completion, packed in zip(completions, entry, strict=True):
        answer = final_text(completion_text(completion))
        score = 0.0 if answer is None else _score(answer, packed)
        rewards.append(score if score is None or not exact else float(score >= 1.0))
    return rewards


def final_text(completion: str) -> str | None:
    """The answer as text; None if there is none, or if there are two different ones."""
    text = without_thinking(completion)
    turn = own_turn(completion)
    answers = []
    for opening in _OPENING.finditer(turn):
        # Read on in the whole text: a line of the answer may look like the header at which the turn was cut.
        closing = _CLOSING.search(text, opening.end())
        answers.append(text[opening.end() : closing.start() if closing else len(turn)].strip())
    if not answers:
        answers = [line.group(1).strip() for line in _ANSWER_LINE.finditer(turn)]
    return answers[0] if answers and all(answer == answers[0] for answer in answers) else None


def _score(answer: str, packed: str) -> float | None:
    problem = unpack(packed)
    dataset = _dataset(problem["dataset"], pack(problem["options"]))
    try:
        return float(dataset.score_answer(answer, problem["item"]))
    except Exception:  # whatever a verifier raises on text that it did not expect: it parses, evaluates, indexes
        return (
            0.0 if _verifies_own_solution(problem["dataset"], pack(problem["options"]), pack(problem["item"])) else None
        )


@lru_cache(maxsize=4096)
def _verifies_own_solution(name: str, options: str, item: str) -> bool:
    """Whether the verifier works on this problem at all; if not, its failure says nothing about the completion."""
    problem = unpack(item)
    try:
        return problem["answer"] is None or float(_dataset(name, options).score_answer(problem["answer"], problem)) > 0
    except Exception:
        return False


@lru_cache(maxsize=64)
def _dataset(name: str, options: str) -> Any:
    """The dataset whose verifier is asked; its size and seed don't matter to it."""
    from tasks.reasoning_gym import make_dataset

    return make_dataset(name, unpack(options), size=1, seed=0)
