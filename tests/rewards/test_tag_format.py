"""The reward for thinking between tags and answering after them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.tag_format import tag_format
from tests.support.cases import cases

CASES = cases(__file__, "cases")


@pytest.mark.parametrize(("completion", "reward", "why"), CASES)
def test_scores_plain_and_chat_completions_alike(completion: str, reward: float, why: str) -> None:
    assert tag_format([""], [completion]) == [reward], why
    assert tag_format([[]], [[{"role": "assistant", "content": completion}]]) == [reward], why


@pytest.mark.parametrize(("completion", "reward", "why"), cases(__file__, "answer tags can be"))
def test_answer_tags_can_be_asked_for(completion: str, reward: float, why: str) -> None:
    assert tag_format([""], [completion], answer=True) == [reward], why


@pytest.mark.parametrize(("prompt", "opened", "completion", "reward", "why"), cases(__file__, "opened"))
def test_the_prompt_may_have_opened_the_block(
    prompt: Any, opened: bool | None, completion: str, reward: float, why: str
) -> None:
    assert tag_format([prompt], [completion], opened=opened) == [reward], why


@pytest.mark.parametrize("key", ["reasoning_content", "thinking"])
def test_thoughts_that_the_trainer_has_parted_are_a_closed_block(key: str) -> None:
    message = {"role": "assistant", key: "6 * 7", "content": "42"}
    assert tag_format([[]], [[message]]) == [1.0]
    assert tag_format([[]], [[message]], opened=True) == [1.0]
    assert tag_format([[]], [[{**message, "content": ""}]]) == [0.0]
    assert tag_format([[]], [[{**message, key: "a</think>b"}]]) == [0.0]


@pytest.mark.parametrize(
    ("completion", "share", "why"),
    [
        ("<think>x</think><answer>42</answer>", 1.0, "all four"),
        ("<think>x</think>so <answer>42</answer>", 0.75, "the answer is not where it belongs"),
        ("<think>x</think>42", 0.5, "half of it"),
        ("<think>x", 0.25, "one"),
        ("<answer>42</answer>", 0.25, "the pair, but nothing before it"),
        ("42", 0.0, "none"),
        ("<think>" * 10, 0.0, "a repeated tag earns nothing"),
        ("<think>x" + "</think>" * 10, 0.25, "ten closing tags are worth less than one"),
        ("<think></think><answer></answer>", 0.5, "empty pairs earn no closing tag"),
        ("</answer><answer></think><think>", 0.0, "the wrong order"),
    ],
)
def test_soft_credit_is_a_share_for_each_tag_in_its_place(completion: str, share: float, why: str) -> None:
    assert tag_format([""], [completion], answer=True, soft=True) == [share], why


PIECES = ["<think>", "</think>", "<answer>", "</answer>", "<THINK>", "x", " ", "\n", "\nQuestion: ", "."]


@given(st.lists(st.sampled_from(PIECES), max_size=9), st.booleans(), st.booleans())
def test_soft_credit_is_whole_exactly_where_the_form_is(pieces: list[str], answer: bool, opened: bool) -> None:
    text = "".join(pieces)
    (strict,) = tag_format([""], [text], answer=answer, opened=opened)
    (soft,) = tag_format([""], [text], answer=answer, opened=opened, soft=True)
    assert strict is not None and soft is not None
    assert (strict == 1.0) == (soft == 1.0)
    assert strict <= soft <= 1.0


@given(st.lists(st.sampled_from([*PIECES[:7], "."]), max_size=9), st.integers(2, 5))
def test_repeating_a_block_never_earns_more(pieces: list[str], times: int) -> None:
    block = f"<think>{''.join(pieces)}</think>x"
    (once,) = tag_format([""], [block], soft=True)
    (often,) = tag_format([""], [block * times], soft=True)
    assert once is not None and often is not None and often <= once
