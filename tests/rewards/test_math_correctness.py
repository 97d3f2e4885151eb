"""The reward for a right answer, as plain TRL calls it."""

from __future__ import annotations

import pytest

from rewards.math_correctness import math_correctness


@pytest.mark.parametrize(
    ("completion", "gold", "reward", "why"),
    [
        (" 6 * 7 = 42.\n#### The final answer is 42", "42", 1.0, "right"),
        (" 6 * 7 = 41.\n#### The final answer is 41", "42", 0.0, "wrong"),
        ("#### 70,000", "70000", 1.0, "a comma in the answer"),
        ("#### 70000", "70,000", 1.0, "a comma in the gold"),
        ("#### -5", "5", 0.0, "the sign counts"),
        ("#### -5", "-5", 1.0, "negative golds can be rewarded"),
        ("#### 42\n\nQuestion: next\n#### 7", "42", 1.0, "an invented problem behind"),
        ("", "42", 0.0, "nothing"),
        ("#### 42", "forty-two", None, "a gold that can't be read is no fault of the model's"),
    ],
)
def test_scores_plain_and_chat_completions_alike(completion: str, gold: str, reward: float | None, why: str) -> None:
    chat = [{"role": "assistant", "content": completion}]
    assert math_correctness([""], [completion], final_answer=[gold]) == [reward], why
    assert math_correctness([[]], [chat], final_answer=[gold]) == [reward], why


def test_takes_what_the_trainer_adds() -> None:
    rewards = math_correctness(
        prompts=["a", "b"], completions=["#### 1", "#### 2"], completion_ids=[[1], [2]], final_answer=["1", "1"],
        question=["a", "b"], trainer_state=None, log_extra=None, log_metric=None,
    )  # fmt: skip
    assert rewards == [1.0, 0.0]


def test_prose_counts_unless_switched_off() -> None:
    assert math_correctness([""], ["The answer is 42."], final_answer=["42"]) == [1.0]
    assert math_correctness([""], ["The answer is 42."], final_answer=["42"], prose=False) == [0.0]
