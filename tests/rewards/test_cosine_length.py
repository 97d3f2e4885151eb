"""The cosine-scaled reward: open-r1's values up to max_len, and what a policy can gain by length."""

from __future__ import annotations

import math
from typing import Any

import pytest
from trl.rewards import get_cosine_scaled_reward

from rewards.cosine_length import cosine_length, validate_rows

RIGHT, WRONG = "so \\boxed{42}", "so \\boxed{41}"
HALF = math.sqrt(0.5)  # the cosine of an eighth of a turn


def score(text: str, tokens: int, **options: Any) -> float | None:
    options = {"max_len": 1000, **options}
    (reward,) = cosine_length([""], [text], final_answer=["42"], completion_ids=[[7] * tokens], **options)
    assert reward is not None
    return reward


def test_the_last_sentence_of_a_completion_that_was_cut_off_states_nothing() -> None:
    values = [score("Thus she has 42 eggs.", 100, completion_ended=[ended]) for ended in (True, False)]
    assert values[0] > 0 > values[1], "as math_correctness"


@pytest.mark.parametrize(
    ("tokens", "right", "wrong", "why"),
    [
        (0, 1.0, -1.0, "cos 0 = 1"),
        (250, 0.5 + 0.25 * (1 + HALF), -0.5 - 0.25 * (1 + HALF), "a quarter"),
        (500, 0.75, -0.75, "cos 90° = 0"),
        (750, 0.5 + 0.25 * (1 - HALF), -0.5 - 0.25 * (1 - HALF), "three quarters"),
        (1000, 0.5, -0.5, "cos 180° = -1"),
        (1500, 0.5, -0.5, "beyond, where open-r1's cosine rises again"),
        (2000, 0.5, -0.5, "twice max_len, for which open-r1 pays as for nothing"),
    ],
)
def test_the_formula(tokens: int, right: float, wrong: float, why: str) -> None:
    assert score(RIGHT, tokens) == pytest.approx(right), why
    assert score(WRONG, tokens) == pytest.approx(wrong), why
    if tokens <= 1000:
        theirs = get_cosine_scaled_reward(max_len=1000)
        chats = [[{"role": "assistant", "content": text}] for text in (RIGHT, WRONG)]
        assert theirs(chats, ["$42$"] * 2, [[7] * tokens] * 2) == pytest.approx([right, wrong]), "TRL's reward"


@pytest.mark.parametrize(
    ("text", "characters", "reward"),
    [(RIGHT, 13, 1.0), (RIGHT + " " * 487, 500, 0.75), (WRONG, 13, 0.0), (WRONG + " " * 987, 1000, -0.5)],
)
def test_open_r1s_configuration_counts_characters_and_charges_long_wrong_answers_more(
    text: str, characters: int, reward: float
) -> None:
    """Its script's defaults are 0.0 and -0.5 for wrong answers, not those of the function."""
    assert len(text) == characters
    options = {"max_len": 1000, "unit": "characters", "min_value_wrong": 0.0, "max_value_wrong": -0.5}
    (value,) = cosine_length([""], [text], final_answer=["42"], **options)  # type: ignore[arg-type]
    assert value == pytest.approx(reward, abs=1e-3)


def test_padding_a_wrong_answer_pays_unless_both_values_are_equal() -> None:
    assert score(WRONG, 900) > score(WRONG, 10)  # type: ignore[operator]
    assert score(WRONG, 900, min_value_wrong=-0.5) == score(WRONG, 10, min_value_wrong=-0.5) == -0.5


def test_without_tokens_four_characters_count_as_one_and_thoughts_count() -> None:
    text = f"<think>{'x' * 1970}</think>{RIGHT}"
    assert cosine_length([""], [text], final_answer=["42"], max_len=1000) == [pytest.approx(0.75, abs=1e-2)]
    chat = [{"role": "assistant", "content": RIGHT, "reasoning_content": "x" * 1970}]
    assert cosine_length([[]], [chat], final_answer=["42"], max_len=1000) == [pytest.approx(0.75, abs=1e-2)]


def test_a_gold_that_cannot_be_read_is_not_scored() -> None:
    assert cosine_length(["", ""], [RIGHT] * 2, final_answer=["\\frac{1}{", "42"], max_len=9)[0] is None
    faults = validate_rows(final_answer=["\\frac{1}{", "42"], max_len=9)
    assert faults[0] is not None and faults[1] is None
