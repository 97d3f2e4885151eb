"""The penalty for completions that are too long, or too short."""

from __future__ import annotations

import inspect
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.rewards import get_soft_overlong_punishment

from rewards.reasoning_length import explain, reasoning_length
from rlvr.errors import InputError


@pytest.mark.parametrize(
    ("tokens", "reward", "why"),
    [
        (0, -1.0, "nothing at all"),
        (5, -0.5, "half of the least"),
        (10, 0.0, "the least"),
        (80, 0.0, "where the ramp begins"),
        (90, -0.5, "half way up the ramp"),
        (100, -1.0, "the most"),
        (1000, -1.0, "far beyond"),
    ],
)
def test_the_penalty_grows_on_both_sides_of_the_limits(tokens: int, reward: float, why: str) -> None:
    options: dict[str, Any] = {"longest": 100, "ramp": 20, "shortest": 10}
    assert reasoning_length([""], ["x"], completion_ids=[[1] * tokens], **options) == [reward], why
    assert reasoning_length([""], ["x" * tokens], unit="characters", **options) == [reward], why
    assert reasoning_length([""], ["one " * tokens], unit="words", **options) == [reward], why


@given(st.integers(0, 300), st.integers(0, 200), st.integers(0, 200))
def test_on_tokens_it_is_the_punishment_of_dapo_as_trl_has_it(tokens: int, longest: int, ramp: int) -> None:
    if ramp > longest:
        return
    ids = [[1] * tokens]
    theirs = get_soft_overlong_punishment(max_completion_len=longest, soft_punish_cache=ramp)(ids)
    assert reasoning_length([""], [""], completion_ids=ids, longest=longest, ramp=ramp) == theirs


@given(st.integers(0, 400), st.integers(1, 200), st.integers(0, 100), st.integers(0, 100))
def test_never_leaves_minus_one_to_zero(length: int, longest: int, ramp: int, shortest: int) -> None:
    if longest - ramp < shortest:
        return
    (reward,) = reasoning_length([""], ["x" * length], unit="characters", longest=longest, ramp=ramp, shortest=shortest)
    assert reward is not None and -1.0 <= reward <= 0.0
    assert (reward == 0.0) == (shortest <= length <= longest - ramp or length == longest and ramp == 0)


def test_without_tokens_they_are_estimated_so_that_evaluation_works() -> None:
    assert reasoning_length([""], ["x" * 360], longest=100, ramp=20) == [-0.5]
    assert "about 90 tokens" in explain("x" * 360, longest=100, ramp=20)[0]


@pytest.mark.parametrize(
    ("completion", "characters", "why"),
    [
        ("<think>abcd</think>42", 4, "between the tags"),
        ("abcd</think>42", 4, "the prompt had the opening tag"),
        ("<think>abcd", 4, "never closed"),
        ("<think>ab</think>4<think>cd</think>2", 5, "two blocks, joined by a line break"),
        ("abcd", 4, "without tags everything is thought, so that leaving them out dodges nothing"),
        ("<think></think>42", 0, "no thoughts"),
    ],
)
def test_the_thoughts_can_be_counted_alone(completion: str, characters: int, why: str) -> None:
    steps = explain(completion, unit="characters", part="thoughts", longest=100)
    assert steps[0] == f"Counted {characters} characters in the thoughts.", why


def test_a_block_that_the_prompt_has_opened_is_thought_to_its_end() -> None:
    assert reasoning_length(["Q <think>"], ["x" * 50], part="thoughts", unit="characters", shortest=100) == [-0.5]


def test_thoughts_that_the_trainer_has_parted_are_counted() -> None:
    message = {"role": "assistant", "reasoning_content": "x" * 48, "content": "42"}
    assert reasoning_length([[]], [[message]], part="thoughts", unit="characters", shortest=100) == [-0.5]


def test_tokens_of_the_thoughts_are_their_share_of_the_characters() -> None:
    text = "<think>" + "x" * 35 + "</think>" + "y" * 50  # 35 of 100 characters
    assert explain(text, completion_ids=[1] * 20, part="thoughts", longest=100)[0] == (
        "Counted about 7 tokens in the thoughts."
    )


def test_plain_and_chat_completions_count_alike() -> None:
    chat = [{"role": "assistant", "content": "one two three"}]
    options: dict[str, Any] = {"unit": "words", "shortest": 6}
    assert reasoning_length([[]], [chat], **options) == reasoning_length([""], ["one two three"], **options) == [-0.5]


def test_chinese_has_words_too() -> None:
    assert reasoning_length([""], ["我们会退款给您吗"], unit="words", shortest=8) == [-0.5]


@pytest.mark.parametrize(
    ("options", "kind", "key", "why"),
    [
        ({}, "invalid-value", "longest", "no limit"),
        ({"longest": -1}, "invalid-value", "longest", "negative"),
        ({"longest": 1.5}, "invalid-value", "longest", "not whole"),
        ({"shortest": True}, "invalid-value", "shortest", "yes/no"),
        ({"longest": 10, "ramp": 11}, "invalid-value", "longest", "every length is penalized"),
        ({"longest": 10, "ramp": 5, "shortest": 6}, "invalid-value", "longest", "every length is penalized"),
        ({"shortest": 10, "ramp": 5}, "invalid-value", "ramp", "a ramp to no limit"),
        ({"longest": 10, "unit": "bytes"}, "invalid-value", "unit", "an unknown unit"),
        ({"longest": 10, "part": "answer"}, "invalid-value", "part", "an unknown part"),
        ({"longest": 10, "completion_ids": []}, "length-mismatch", "completion_ids", "no ids for a completion"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], kind: str, key: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        reasoning_length([""], ["x"], **options)
    assert (error.value.kind, error.value.key) == (kind, key), why


def test_the_explanation_takes_what_the_reward_takes() -> None:
    reward = set(inspect.signature(reasoning_length).parameters) - {"prompts", "completions"}
    assert reward == set(inspect.signature(explain).parameters) - {"prompt", "completion"}


@given(st.text(alphabet="x <>/think", max_size=60), st.sampled_from(["tokens", "words", "characters"]))
def test_the_explanation_ends_in_the_reward(text: str, unit: Any) -> None:
    options: dict[str, Any] = {"unit": unit, "part": "thoughts", "longest": 20, "ramp": 10, "shortest": 5}
    (reward,) = reasoning_length([""], [text], **options)
    assert explain(text, **options)[-1] == f"Reward: {reward:g}"


@pytest.mark.parametrize("completion", [None, [], {}, 7, [None], [{"role": "user", "content": "x"}]])
def test_what_is_no_text_has_no_length(completion: Any) -> None:
    assert reasoning_length([None], [completion], unit="words", shortest=10) == [-1.0]


@pytest.mark.parametrize("piece", ["<think>", "</think>", "x", "\ud800", "1,", "e\u0301"])
def test_a_hundred_thousand_characters_take_no_time(piece: str) -> None:
    started = time.process_time()
    reasoning_length([""], [piece * (100_000 // len(piece))], part="thoughts", unit="words", longest=10)
    assert time.process_time() - started < 5
