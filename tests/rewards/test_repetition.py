"""The penalty for saying the same again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.repetition import repetition
from tests.support.cases import cases
from tests.support.input_errors import input_error


@pytest.mark.parametrize(("text", "n", "reward", "why"), cases(__file__, "is the share of"))
def test_is_the_share_of_runs_that_were_there_before(text: str, n: int, reward: float, why: str) -> None:
    assert repetition([""], [text], n=n) == [reward], why
    assert repetition([[]], [[{"role": "assistant", "content": text}]], n=n) == [reward], why
    assert repetition([""], [text], n=n, max_penalty=0.2) == [pytest.approx(0.2 * reward)], why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n".join(f"{i} + 1 = {i + 1}" for i in range(200)), "lines of sums"),
        ("\n".join(f"7 × {i} = {7 * i}" for i in range(30)), "a table of products"),
        ("2x + 3x = 5x\n" * 5, "an equation that is copied from line to line"),
        ("x = 4\ny = 5\nx + y = 9\n" * 4, "single letters"),
        ("[0, 0, 0, 1]\n[0, 0, 1, 0]\n[0, 1, 0, 0]\n[1, 0, 0, 0]", "a matrix"),
        ("\n".join(f"Step {i}: add {i} to {i * i}, which is {i + i * i}." for i in range(20)), "steps of one form"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |", "a table's lines"),
        ("He had 12 eggs. She had 12 eggs too.", "a short phrase"),
    ],
)
def test_calculations_may_recur(text: str, why: str) -> None:
    assert repetition([""], [text]) == [0.0], why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("wait, let me check that again. " * 100, "a sentence"),
        ("no " * 500, "a word"),
        ("!" * 2000, "the sign that a collapsed policy writes"),
        ("= " * 2000, "signs with spaces between"),
        ("\n" * 5000, "line breaks"),
        ("😀" * 1000, "an emoji"),
        ("所以我们再检查一遍。" * 100, "Chinese"),
        ("ตรวจสอบอีกครั้ง" * 100, "Thai"),
        ("blahblah" * 500, "no spaces at all"),
        ("1 + 1 = 2\n" * 500, "a calculation without end"),
        ("1,1,1," * 500, "a list of one number"),
        ("Wait! WAIT! wait! " * 200, "another case each time"),
        ("\ud800 x \x00 y " * 300, "what is no text"),
    ],
)
def test_a_loop_costs_nearly_everything_in_any_script(text: str, why: str) -> None:
    (reward,) = repetition([""], [text])
    assert reward is not None and -1.0 <= reward < -0.85, why


def test_loops_among_the_thoughts_count() -> None:
    loop = "let me check that again " * 50
    assert repetition([""], [f"<think>{loop}</think>42"])[0] == pytest.approx(-0.97, abs=0.03)
    message = {"role": "assistant", "reasoning_content": loop, "content": "42"}
    assert repetition([[]], [[message]])[0] == pytest.approx(-0.97, abs=0.03)


@given(st.text(max_size=200), st.integers(1, 6))
def test_stays_within_its_bounds(text: str, n: int) -> None:
    (reward,) = repetition([""], [text], n=n, max_penalty=0.5)
    assert reward is not None and -0.5 <= reward <= 0.0


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma"]), max_size=40), st.integers(1, 4))
def test_on_plain_words_it_is_the_formula_of_the_paper(said: list[str], n: int) -> None:
    from trl.rewards import get_repetition_penalty_reward

    ids = [[["alpha", "beta", "gamma"].index(word) for word in said]]
    theirs = get_repetition_penalty_reward(ngram_size=n)(ids)
    assert repetition([""], [" ".join(said)], n=n) == pytest.approx(theirs)


@pytest.mark.parametrize(("option", "value"), [("n", 0), ("max_penalty", -1.0)])
def test_invalid_options_are_refused(option: str, value: Any) -> None:
    with input_error("invalid-value", option):
        repetition([""], ["x"], **{option: value})
