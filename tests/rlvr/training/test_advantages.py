"""Advantages against numbers worked out by hand, and against TRL's own formula where they must agree."""

from __future__ import annotations

import math
import random
import statistics as statistics_of_python

import pytest
import torch

from rlvr.training.advantages import adaptive, statistics, without_spread

NAN = math.nan


@pytest.mark.parametrize(
    ("rewards", "group", "expected", "why"),
    [
        # mean 1.00025, squares 3 x 0.00025² + 0.00075² = 7.5e-7, std 0.0005: below 0.1, so only centred.
        ([1, 1.001, 1, 1], 4, [-0.00025, 0.00075, -0.00025, -0.00025], "noise of a shaped reward stays noise"),
        # mean 0.5, squares 4 x 0.25 = 1, std sqrt(1/3) = 0.577350: 0.5 / 0.577450.
        ([0, 1, 0, 1], 4, [-0.865875, 0.865875, -0.865875, 0.865875], "a real spread is divided by"),
        ([1, 1, 1, 1], 4, [0, 0, 0, 0], "a group that agrees teaches nothing"),
        # Of 0, 1, 1: mean 2/3, squares 4/9 + 2/9 = 2/3, std sqrt(1/3) = 0.577350: -0.666667 and 0.333333 / 0.577450.
        ([0, NAN, 1, 1], 4, [-1.154501, 0, 0.577250, 0.577250], "a masked row is in neither mean nor std"),
        ([NAN, NAN, NAN, NAN], 4, [0, 0, 0, 0], "a group that is masked as a whole"),
        ([NAN, 1, NAN, NAN], 4, [0, 0, 0, 0], "one row left has nothing to be compared with"),
        # The first group is centred (std 0.0707), the second divided (mean 0.5, std 0.707107: 0.5 / 0.707207).
        ([0.5, 0.6, 0, 1], 2, [-0.05, 0.05, -0.707007, 0.707007], "each group by its own spread"),
        # Of 0.5, 0.7: std 0.141421: 0.1 / 0.141521.
        ([0.5, 0.7], 2, [-0.706607, 0.706607], "just above the threshold"),
    ],
)
def test_advantages_are_what_a_person_works_out(
    rewards: list[float], group: int, expected: list[float], why: str
) -> None:
    found = adaptive(torch.tensor(rewards, dtype=torch.float32), group, 0.1)
    assert found.tolist() == pytest.approx(expected, abs=2e-6), why


def test_a_spread_exactly_at_the_threshold_is_not_divided_by() -> None:
    rewards = torch.tensor([0.0, 0.25, 0.5])  # centred -0.25, 0, 0.25; std sqrt(0.125 / 2) = 0.25, exactly
    assert adaptive(rewards, 3, 0.25).tolist() == [-0.25, 0.0, 0.25]
    below = adaptive(rewards, 3, 0.2499)
    assert below.tolist() == pytest.approx([-0.9996, 0.0, 0.9996], abs=1e-4)


def test_right_or_wrong_in_groups_of_eight_is_never_affected() -> None:
    for right in range(9):
        rewards = torch.tensor([1.0] * right + [0.0] * (8 - right))
        ours = adaptive(rewards, 8, 0.1)
        theirs = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        assert torch.allclose(ours, theirs, atol=1e-6), f"{right} of 8 right"
        assert rewards.std() == 0 or rewards.std() > 0.353


def test_a_threshold_of_zero_is_the_group_normalisation_of_trl_on_masked_rows_too() -> None:
    draw = random.Random(3)
    groups = [[draw.choice([0.0, 0.2, 1.0, 1.2, NAN]) for _ in range(8)] for _ in range(50)]
    expected = []
    for group in groups:
        left = [reward for reward in group if not math.isnan(reward)]
        mean, spread = statistics_of_python.mean(left), statistics_of_python.stdev(left)
        expected += [0.0 if math.isnan(reward) else (reward - mean) / (spread + 1e-4) for reward in group]
    assert adaptive(torch.tensor(groups).reshape(-1), 8, 0.0).tolist() == pytest.approx(expected, abs=1e-4)


def test_statistics_are_those_of_the_rows_that_are_not_masked() -> None:
    found = statistics(torch.tensor([1.0, -1.0, 0.0, 0.5]), torch.tensor([1.0, 0.0, NAN, 1.0]))
    assert found == pytest.approx(
        {
            "advantages/mean": 0.5 / 3,
            "advantages/std": 1.040833,  # squares 0.8333² + 1.1667² + 0.3333² = 2.1667, over 2
            "advantages/min": -1.0,
            "advantages/max": 1.0,
            "advantages/abs_mean": 2.5 / 3,
        },
        abs=1e-5,
    )


def test_a_batch_that_is_masked_as_a_whole_has_no_statistics() -> None:
    assert statistics(torch.zeros(4), torch.full((4,), NAN)) == {}


def test_a_single_row_has_no_spread_rather_than_nan() -> None:
    assert statistics(torch.tensor([0.0, 0.0]), torch.tensor([1.0, NAN]))["advantages/std"] == 0.0


@pytest.mark.parametrize(
    ("rewards", "expected", "why"),
    [
        ([1.2] * 4, [True] * 4, "equal"),
        ([1.0 + 0.2, 1.2000001, 1.2, 1.1999999], [True] * 4, "equal but for the rounding of float32"),
        ([1.2, 1.2, 1.2, 1.2001], [False] * 4, "a small difference is one"),
        ([3e6, 3e6 + 0.25, 3e6, 3e6], [True] * 4, "float32 has no more digits there"),
        ([0.0, 1.0, NAN, NAN], [False] * 4, "the scored ones differ"),
        ([1.0, NAN, NAN, NAN], [True] * 4, "one alone has nothing to be compared with"),
        ([NAN] * 4, [True] * 4, "none is scored"),
        ([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [False] * 4 + [True] * 4, "each group by itself"),
    ],
)
def test_a_group_is_without_spread_where_its_rewards_are_equal_but_for_rounding(
    rewards: list[float], expected: list[bool], why: str
) -> None:
    assert without_spread(torch.tensor(rewards), 4).tolist() == expected


def test_a_group_whose_rewards_differ_but_not_their_sum_has_spread_reward_by_reward() -> None:
    each = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert without_spread(each.sum(dim=1), 4).all()
    assert not without_spread(each, 4).any()


def test_a_reward_of_another_task_decides_nothing() -> None:
    """It is NaN for a group of this one."""
    other = torch.full((8,), NAN)
    own = torch.tensor([1.0] * 4 + [0.0, 1.0, 1.0, 1.0])
    assert without_spread(torch.stack([own, other], dim=1), 4).tolist() == [True] * 4 + [False] * 4
