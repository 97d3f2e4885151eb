"""The order of a run: easy rows first, every row fairly often, and nothing guessed where an order can't be told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from rlvr.training import curriculum
from tests.support.input_errors import input_error


def easy_first(difficulty: list[Any], total: int, seed: int) -> list[int]:
    class Rows(dict[str, list[Any]]):  # a Dataset's column has one type
        column_names = ("prompt", "difficulty")

    return curriculum.easy_first(Rows(difficulty=difficulty), total, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("difficulty", "expected", "why"),
    [
        ([3, 1, 2], [1, 2, 0], "whole numbers"),
        ([0.5, -1.0, 1e-3], [1, 2, 0], "numbers with a point"),
        (["1200", "800", "2100"], [1, 0, 2], "Codeforces' ratings, as text: 800 before 1200"),
        (["Level 3", "Level 1", "Level 10"], [1, 0, 2], "MATH's levels: 10 after 3"),
        (["competition", "introductory", "interview"], [1, 2, 0], "APPS's words"),
        (["VERY_HARD", "EASY", "MEDIUM_HARD", "HARD", "MEDIUM"], [1, 4, 2, 3, 0], "TACO's words"),
        (["very hard", "Very Easy", "medium-hard"], [1, 2, 0], "spaces, hyphens and capitals"),
        ([2, "1", 3.5], [1, 0, 2], "a number written as text is a number"),
    ],
)
def test_rows_come_from_easy_to_hard(difficulty: list[Any], expected: list[int], why: str) -> None:
    assert easy_first(difficulty, len(difficulty), seed=0) == expected, why


@pytest.mark.parametrize(
    ("difficulty", "row", "said"),
    [
        ([1, None, 3], 1, "is empty"),
        ([1, 2, "  "], 2, "is empty"),
        ([1, "so-so"], 1, "'so-so'"),
        ([1, float("nan")], 1, "nan"),
        ([1, True], 1, "True"),
        ([1, [2]], 1, "[2]"),
        (["Level 1", "Level 2 of 5"], 1, "'Level 2 of 5'"),
        (["easy", 3], 1, "a number"),
        ([3, 1, "hard"], 2, "a word"),
        (["Level 3", "Chapter 1"], 1, "Chapter 1"),
    ],
)
def test_a_difficulty_that_cannot_be_ordered_is_refused_with_its_row(
    difficulty: list[Any], row: int, said: str
) -> None:
    with input_error("invalid-row", "difficulty", row) as raised:
        easy_first(difficulty, 3, seed=0)
    assert said in str(raised.value)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=20),
    st.integers(1, 70),
    st.integers(0, 3),
)
def test_a_run_of_any_length_is_sorted_and_takes_every_row_as_often_as_is_fair(
    difficulty: list[int], total: int, seed: int
) -> None:
    order = easy_first(difficulty, total, seed)
    levels = [difficulty[row] for row in order]
    assert len(order) == total
    assert levels == sorted(levels)
    times = Counter(order)
    whole, rest = divmod(total, len(difficulty))
    assert all(whole <= times[row] <= whole + 1 for row in range(len(difficulty)))
    # Of the last, incomplete pass each level has its share, up to one row.
    for level, rows in Counter(difficulty).items():
        more = levels.count(level) - whole * rows
        assert abs(more - rest * rows / len(difficulty)) <= 1


def test_a_short_run_still_ends_with_hard_rows() -> None:
    difficulty = list(range(100))
    assert easy_first(difficulty, 4, seed=0) == [12, 37, 62, 87]


def test_rows_of_one_difficulty_are_shuffled_by_the_seed() -> None:
    first, again, other = (easy_first([1] * 30 + [0] * 30, 60, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert first[:30] != list(range(30, 60))


def test_a_row_that_comes_up_in_two_passes_is_not_drawn_twice_in_a_row() -> None:
    order = easy_first(["easy"] * 40, 80, seed=0)
    assert sorted(order[:40]) == sorted(order[40:]) == list(range(40))


def test_rows_without_the_column_are_refused_with_the_columns_and_the_fix() -> None:
    with input_error("missing-column", "difficulty") as error:
        curriculum.easy_first(Dataset.from_dict({"prompt": ["p"], "final_answer": ["1"]}), 1, seed=0)
    assert "prompt, final_answer" in str(error.value) and "pass_rates" in str(error.value)
