"""The reward for thinking between tags and answering after them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.rewards import think_format_reward

from rewards.tag_format import tag_format

CASES = [
    ("<think>6 * 7</think>\n42", 1.0, "the form"),
    ("\n<think>\n6 * 7\n</think>\n\n42\n", 1.0, "space around everything"),
    ("<think>\r\n6 * 7\r\n</think>\r\n42", 1.0, "line ends of Windows"),
    ("<think>六乘七</think>四十二", 1.0, "another script"),
    ("<think>a < b and c > d</think> a", 1.0, "signs that look like tags"),
    ("<think>x</think>∞", 1.0, "a symbol is an answer"),
    ("<think>x</think><answer>42</answer>", 1.0, "answer tags are text where none are asked for"),
    ("<think>x</think>42\n\nQuestion: next\n<think>y</think>43", 1.0, "an invented problem is not its own turn"),
    ("<think>x\n\nQuestion: what of y?\n</think>42", 1.0, "a question among the thoughts"),
    ("42", 0.0, "no tags"),
    ("<think>6 * 7", 0.0, "never closed"),
    ("6 * 7</think>42", 0.0, "never opened"),
    ("So: <think>6 * 7</think>42", 0.0, "words before"),
    ("<think></think>42", 0.0, "no thoughts"),
    ("<think> \n...\n</think>42", 0.0, "thoughts of dots"),
    ("<think>x</think>", 0.0, "no answer"),
    ("<think>x</think>\n---\n", 0.0, "an answer of dashes"),
    ("<think>x</think>\n\nQuestion: next\n43", 0.0, "only an invented problem behind"),
    ("<think>x</think>y</think>42", 0.0, "closed twice"),
    ("<think>x<think>y</think>42", 0.0, "nested"),
    ("<think>x</think><think>y</think>42", 0.0, "two blocks"),
    ("<think>x</think>42<think>y</think>", 0.0, "another block behind"),
    ("</think>x<think>42", 0.0, "the wrong order"),
    ("<THINK>x</THINK>42", 0.0, "in capitals"),
    ("<thinking>x</thinking>42", 0.0, "another word"),
    ("<think>x</think >42", 0.0, "a space in the tag"),
    ("<think>I write </THINK> soon</think>42", 0.0, "a tag among the thoughts"),
    ("Question: x\n<think>x</think>42", 0.0, "not its own turn"),
    ("", 0.0, "nothing"),
]


@pytest.mark.parametrize(("completion", "reward", "why"), CASES)
def test_scores_plain_and_chat_completions_alike(completion: str, reward: float, why: str) -> None:
    assert tag_format([""], [completion]) == [reward], why
    assert tag_format([[]], [[{"role": "assistant", "content": completion}]]) == [reward], why


@pytest.mark.parametrize(
    ("completion", "reward", "why"),
    [
        ("<think>x</think><answer>42</answer>", 1.0, "the form"),
        ("<think>x</think>\n<answer>\n42\n</answer>\n", 1.0, "space between"),
        ("<think>x</think><answer>a\nQ: b</answer>", 1.0, "a line of the answer that looks like a header"),
        ("<think>x</think><answer>42</answer>\nQuestion: y\n<answer>4</answer>", 1.0, "an invented problem behind"),
        ("<think>so <b>x</b></think><answer>42</answer>", 1.0, "tags that are none of ours"),
        ("<think>x</think>42", 0.0, "no answer tags"),
        ("<think>x</think><answer></answer>", 0.0, "an empty answer"),
        ("<think>x</think>so <answer>42</answer>", 0.0, "words before the answer"),
        ("<think>x</think><answer>42</answer> done", 0.0, "words behind"),
        ("<think>x</think><answer>42", 0.0, "never closed"),
        ("<think>x</think><answer>42</answer><answer>42</answer>", 0.0, "twice"),
        ("<think><answer>42</answer></think><answer>42</answer>", 0.0, "answered among the thoughts"),
        ("<answer>42</answer><think>x</think>", 0.0, "the wrong order"),
        (
            "<think>x</think><answer>4\n\nQuestion: y\n<think>z</think><answer>5</answer>",
            0.0,
            "closed by another's tag",
        ),
    ],
)
def test_answer_tags_can_be_asked_for(completion: str, reward: float, why: str) -> None:
    assert tag_format([""], [completion], answer=True) == [reward], why


@pytest.mark.parametrize(
    ("prompt", "opened", "completion", "reward", "why"),
    [
        ("Q\n<think>\n", None, "x</think>42", 1.0, "seen in the prompt"),
        ("Q\n<think>\n", None, "<think>x</think>42", 0.0, "opened twice"),
        ("Q about <think> tags", None, "x</think>42", 0.0, "the prompt only speaks of it"),
        ("Q", True, "x</think>42", 1.0, "said in the recipe"),
        ("Q", True, "</think>42", 0.0, "no thoughts"),
        ("Q", True, "x", 0.0, "never closed"),
        ("Q\n<think>", False, "<think>x</think>42", 1.0, "the recipe is believed"),
        ([{"role": "user", "content": "<think>"}], None, "x</think>42", 0.0, "a user opens nothing"),
        (
            [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "<think>"}],
            None,
            "x</think>42",
            1.0,
            "an answer that was begun",
        ),
    ],
)
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


def test_the_explanation_names_the_fault() -> None:
    said: dict[str, list[str]] = {}
    tag_format(["", ""], ["<think>x</think>y</think>42", "<THINK>x</think>42"], log_extra=said.__setitem__)
    twice, capitals = said["tag_format/why"]
    assert "</think> occurs 2 times." in twice and "<think> is written '<THINK>'." in capitals


@pytest.mark.parametrize(
    ("completion", "why"),
    [
        ("<think></think>", "empty thoughts"),
        ("<think>x</think>", "no answer"),
        ("<think>x</think>a</think>b", "closed twice"),
    ],
)
def test_is_stricter_than_the_reward_of_trl_where_the_docstring_says_so(completion: str, why: str) -> None:
    chat = [{"role": "assistant", "content": completion}]
    assert think_format_reward([chat]) == [1.0]
    assert tag_format([[]], [chat]) == [0.0], why


@pytest.mark.parametrize(
    "completion",
    [
        None,
        [],
        {},
        7,
        [None],
        ["x"],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "reasoning_content": 7}],
        "\ud800\x00",
    ],
)
def test_no_completion_raises(completion: Any) -> None:
    assert tag_format([None], [completion]) == [0.0]


@pytest.mark.parametrize(
    "piece", ["<think>", "</think>", "<", "< think", "<think ", "\n", "x", "\ud800", "<think>x</think>"]
)
def test_a_hundred_thousand_characters_take_no_time(piece: str) -> None:
    bomb = piece * (100_000 // len(piece))
    started = time.process_time()
    assert tag_format([""], [bomb]) == [0.0]
    assert time.process_time() - started < 5
