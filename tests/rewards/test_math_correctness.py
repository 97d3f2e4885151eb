"""The reward for a right answer, as plain TRL calls it."""

from __future__ import annotations

import pytest

from rewards.math_correctness import math_correctness, validate_rows
from tests.support.cases import cases


@pytest.mark.parametrize(("completion", "gold", "reward", "why"), cases(__file__, "scores plain and chat"))
def test_scores_plain_and_chat_completions_alike(completion: str, gold: str, reward: float | None, why: str) -> None:
    chat = [{"role": "assistant", "content": completion}]
    assert math_correctness([""], [completion], final_answer=[gold]) == [reward], why
    assert math_correctness([[]], [chat], final_answer=[gold]) == [reward], why


def test_takes_what_the_trainer_adds() -> None:
    rewards = math_correctness(
        prompts=["a", "b"],
        completions=["#### 1", "#### 2"],
        completion_ids=[[1], [2]],
        final_answer=["1", "1"],
        question=["a", "b"],
        trainer_state=None,
        log_extra=None,
        log_metric=None,
    )
    assert rewards == [1.0, 0.0]


def test_rows_without_a_gold_are_masked() -> None:
    golds: list = [None, 1, ["1"], "1"]
    assert math_correctness([""] * 4, ["#### 1"] * 4, final_answer=golds) == [None, None, None, 1.0]
    assert [fault is None for fault in validate_rows(final_answer=golds)] == [False, False, False, True]


@pytest.mark.slow
def test_a_tolerance_is_relative() -> None:
    completions = ["#### 3.14", "#### 3.2", r"\boxed{\pi}"]
    assert math_correctness([""] * 3, completions, final_answer=["3.1416"] * 3, tolerance=0.01) == [1.0, 0.0, 1.0]
    assert math_correctness([""] * 3, completions, final_answer=["3.1416"] * 3) == [0.0, 0.0, 0.0]


def test_the_share_that_ran_into_the_deadline_is_logged() -> None:
    logged: dict[str, float] = {}
    golds = ["forty-two", "1"]
    math_correctness([""] * 2, ["#### 1"] * 2, final_answer=golds, log_metric=logged.__setitem__)
    assert logged == {"math_correctness/timed_out": 0.0, "math_correctness/unscored": 0.5}
