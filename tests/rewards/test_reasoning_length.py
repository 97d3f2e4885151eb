"""The penalty for completions that are too long, or too short."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.rewards import get_soft_overlong_punishment

from rewards.reasoning_length import reasoning_length
from tests.support.cases import cases
from tests.support.input_errors import input_error


@pytest.mark.parametrize(("tokens", "reward", "why"), cases(__file__, "the penalty grows on"))
def test_the_penalty_grows_on_both_sides_of_the_limits(tokens: int, reward: float, why: str) -> None:
    options: dict[str, Any] = {"longest": 100, "ramp": 20, "shortest": 10}
    assert reasoning_length([""], ["x"], completion_ids=[[1] * tokens], **options) == [reward], why
    assert reasoning_length([""], ["x" * tokens], unit="characters", **options) == [reward], why


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
    chat = [{"role": "assistant", "content": "x" * 360}]
    assert reasoning_length(["", []], ["x" * 360, chat], longest=100, ramp=20) == [-0.5, -0.5]


@pytest.mark.parametrize(
    ("options", "kind", "key", "why"),
    [
        ({}, "invalid-value", "longest", "no limit"),
        ({"longest": 10, "ramp": 11}, "invalid-value", "longest", "every length is penalized"),
        ({"longest": 10, "ramp": 5, "shortest": 6}, "invalid-value", "longest", "every length is penalized"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], kind: str, key: str, why: str) -> None:
    with input_error(kind, key, why=why):
        reasoning_length([""], ["x"], **options)
