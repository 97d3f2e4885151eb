"""Rewards are checked, gated and masked as the policies say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.scoring.reward import Reward, RewardError, apply_gates_and_mask, total


def reward(function: Any, **kwargs: Any) -> Reward:
    return Reward(name=kwargs.pop("name", "r"), function=function, **kwargs)


@pytest.mark.parametrize(
    ("returned", "said", "why"),
    [
        ([1.0], "returned 1 values for 2 completions", "too few"),
        ("ab", "returned str", "a string is not a list of rewards"),
        (3, "returned int", "a number is not a list"),
        ([1.0, "0.5"], "returned '0.5' for row 1", "a number in quotes"),
        ([math.nan, 1.0], "returned nan for row 0", "None says that a row can't be scored; NaN is a bug"),
        ([math.inf, 1.0], "returned inf for row 0", "an infinite reward gives infinite advantages"),
        ({"a": 1}, "returned dict", "a mapping"),
        (b"ab", "returned bytes", "bytes are numbers to Python, and no rewards"),
        ([10**400, 1.0], "for row 0", "a number that is too large for a float"),
    ],
)
def test_what_is_no_list_of_rewards_is_refused_by_name(returned: Any, said: str, why: str) -> None:
    with pytest.raises(RewardError) as caught:
        reward(lambda **kwargs: returned, name="mine")(["p", "p"], ["a", "b"])
    assert said in str(caught.value) and "mine" in str(caught.value), why


def test_booleans_none_and_tensors_are_rewards() -> None:
    import torch

    assert reward(lambda **kwargs: [True, None, torch.tensor(0.5)])(["p"] * 3, ["a"] * 3) == [1.0, None, 0.5]


def test_an_async_reward_is_awaited() -> None:
    async def later(completions: list[str], **kwargs: Any) -> list[float]:
        return [1.0 for _ in completions]

    assert reward(later)(["p"], ["c"]) == [1.0]


A = reward(None, name="a", weight=1.0)
GATED = reward(None, name="b", weight=0.5, gate="a")


@pytest.mark.parametrize(
    ("row", "settled", "sum_of_it", "why"),
    [
        ([1.0, 1.0], [1.0, 1.0], 1.5, "the gate is open"),
        ([0.0, 1.0], [0.0, 0.0], 0.0, "the gate is shut"),
        ([-1.0, 1.0], [-1.0, 0.0], -1.0, "a negative reward is not positive"),
        ([None, 1.0], [None, None], None, "one that can't say takes the row out"),
        ([1.0, None], [None, None], None, "whichever it is"),
        ([math.nan, 1.0], [None, None], None, "NaN is how TRL writes None"),
    ],
)
def test_gates_and_masks(row: list[Any], settled: list[Any], sum_of_it: float | None, why: str) -> None:
    assert apply_gates_and_mask([row], [A, GATED]) == [settled], why
    assert total(settled, [A, GATED]) == sum_of_it, why


@pytest.mark.parametrize(
    ("task", "row", "settled", "sum_of_it", "why"),
    [
        ("x", [1.0, 1.0, None], [1.0, 1.0, None], 1.5, "a reward that does not apply is neither 0 nor a failure"),
        ("y", [1.0, None, 2.0], [1.0, None, 2.0], 3.0, "each task has its own"),
        ("y", [None, None, 2.0], [None, None, None], None, "one that applies and can't say takes the row out"),
    ],
)
def test_rewards_of_other_tasks_do_not_count(
    task: str, row: list[Any], settled: list[Any], sum_of_it: float | None, why: str
) -> None:
    rewards = [A, replace(GATED, applies_to=("x",)), reward(None, name="c", applies_to=("y",))]
    assert apply_gates_and_mask([row], rewards, [task]) == [settled], why
    assert total(settled, rewards) == sum_of_it, why


@given(st.lists(st.lists(st.none() | st.floats(-5, 5), min_size=2, max_size=2), max_size=20))
def test_settling_twice_changes_nothing(rows: list[list[float | None]]) -> None:
    once = apply_gates_and_mask(rows, [A, GATED])
    assert apply_gates_and_mask(once, [A, GATED]) == once


@pytest.mark.parametrize("completion", ["text", None, [], [3], [{"role": "assistant"}], 7], ids=repr)
def test_a_reward_that_raises_is_named_whatever_the_completion_is(completion: object) -> None:
    def broken(prompts, completions, **kwargs):  # type: ignore[no-untyped-def]
        raise ValueError("no good")

    with pytest.raises(RewardError, match="no good"):
        Reward("broken", broken)([""], [completion])
