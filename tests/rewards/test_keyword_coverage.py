"""The reward for naming what an answer must name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.keyword_coverage import keyword_coverage, validate_rows
from rlvr.config.specs import RewardSpec
from rlvr.scoring.registry import load_reward
from tests.support.cases import cases
from tests.support.input_errors import input_error

REFUND: list[Any] = ["refund", ["14 days", "two weeks"]]


@pytest.mark.parametrize(("completion", "reward", "why"), cases(__file__, "pays the share of"))
def test_pays_the_share_of_entries_that_are_named(completion: str, reward: float, why: str) -> None:
    chat = [{"role": "assistant", "content": completion}]
    assert keyword_coverage([""], [completion], keywords=[REFUND]) == [reward], why
    assert keyword_coverage([[]], [chat], keywords=[REFUND]) == [reward], why
    assert keyword_coverage([""], [completion], terms=REFUND) == [reward], why


@pytest.mark.parametrize(("term", "text", "named", "why"), cases(__file__, "finds whole words only"))
def test_finds_whole_words_only(term: str, text: str, named: bool, why: str) -> None:
    assert keyword_coverage([""], [text], terms=[term]) == [float(named)], why


@pytest.mark.parametrize(("text", "reward", "why"), cases(__file__, "a forbidden term costs"))
def test_a_forbidden_term_costs_everything(text: str, reward: float, why: str) -> None:
    assert keyword_coverage([""], [text], keywords=[REFUND], forbidden=[["guaranteed", "promise"]]) == [reward], why


def test_each_row_has_its_own_keywords_and_all_share_the_terms() -> None:
    text = "You get a refund if you send us the receipt."
    assert keyword_coverage([""] * 2, [text] * 2, keywords=[["refund"], ["voucher"]], terms=["receipt"]) == [1.0, 0.5]
    assert keyword_coverage([""] * 2, [text] * 2, keywords=[["refund"], None], terms=["receipt"]) == [1.0, 1.0]
    assert keyword_coverage([""], [text], keywords=[["refund"]], terms=["refund", "voucher"]) == [0.5], "once each"


@pytest.mark.parametrize(("keywords", "why"), cases(__file__, "a row without terms"))
def test_a_row_without_terms_is_refused(keywords: Any, why: str) -> None:
    good, bad = validate_rows(keywords=[["refund"], keywords])
    assert good is None and bad is not None, why
    with input_error("invalid-row", "keywords", why=why):
        keyword_coverage([""] * 2, [""] * 2, keywords=[["refund"], keywords])


def test_a_row_needs_no_keywords_beside_terms_of_all_rows() -> None:
    assert validate_rows(keywords=[None], terms=["refund"]) == [None]
    assert validate_rows(terms=["refund"]) == []


@pytest.mark.parametrize("option", ["negators", "least_words", "ordered", "full"])
def test_an_option_of_earlier_recipes_is_refused_with_the_options_there_are(option: str) -> None:
    with input_error("unknown-option", option):
        load_reward(RewardSpec("keyword_coverage", options={"terms": ["refund"], option: True}))


SAID = [
    "refund",
    "14 days",
    "no ",
    "we give you a ",
    ". ",
    "\n",
    "and then ",
    "guaranteed ",
    "<think>",
    "</think>",
    "'",
]


@given(st.lists(st.sampled_from(SAID), max_size=12))
def test_saying_it_twice_earns_no_more(pieces: list[str]) -> None:
    text = "".join(pieces).replace("think>", "")
    assert keyword_coverage([""], [text + ". " + text], terms=REFUND) == keyword_coverage([""], [text], terms=REFUND)
