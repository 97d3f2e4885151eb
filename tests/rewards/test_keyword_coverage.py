"""The reward for naming what an answer must name."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.keyword_coverage import keyword_coverage, validate_rows
from rlvr.config.specs import RewardSpec
from rlvr.errors import InputError
from rlvr.scoring.registry import load_reward

REFUND: list[Any] = ["refund", ["14 days", "two weeks"]]


@pytest.mark.parametrize(
    ("completion", "reward", "why"),
    [
        ("You get a refund within 14 days of buying it.", 1.0, "both"),
        ("You get a refund within two weeks of buying it.", 1.0, "a synonym"),
        ("You get a REFUND within Two\nWeeks of buying it.", 1.0, "case, and a line break inside"),
        ("You get a **refund** within _14-days_ of buying it.", 1.0, "Markdown, and a hyphen for a space"),
        ("The refund’s amount is yours within １４ days from now.", 1.0, "a possessive, and wide digits"),
        ("Sure, you get a refund soon. It takes 14 days at most, I think.", 1.0, "in two sentences"),
        ("You get a refund, and a refund it will be.", 0.5, "one of two, however often"),
        ("You get your money back within a fortnight.", 0.0, "other words are not known"),
        ("<think>You get a refund within 14 days of buying it.</think>Hello there.", 0.0, "only in thoughts"),
        ("Hello.\n\nQuestion: do you get a refund within 14 days of buying?", 0.0, "not its own turn"),
        ("", 0.0, "nothing"),
    ],
)
def test_pays_the_share_of_entries_that_are_named(completion: str, reward: float, why: str) -> None:
    chat = [{"role": "assistant", "content": completion}]
    assert keyword_coverage([""], [completion], keywords=[REFUND]) == [reward], why
    assert keyword_coverage([[]], [chat], keywords=[REFUND]) == [reward], why
    assert keyword_coverage([""], [completion], terms=REFUND) == [reward], why


@pytest.mark.parametrize(
    ("term", "text", "named", "why"),
    [
        ("cat", "I have one cat here.", True, "a word"),
        ("cat", "I have one category here.", False, "inside a word"),
        ("cat", "I have one cat-like thing here.", False, "part of a compound"),
        ("cat", "I have a bobcat and a bob-cat here.", False, "the end of a word"),
        ("refundable", "This is a non-refundable ticket, sir.", False, "a prefix that negates"),
        ("C++", "I write C++ every single day.", True, "signs at the end"),
        ("C++", "I like C++, most of all.", True, "a comma behind"),
        ("C", "I write C++ and C# every single day.", False, "another language"),
        ("C", "I write C every single day.", True, "a letter"),
        (".NET", "I write .NET every single day.", True, "a sign in front"),
        ("14 days", "It takes 114 days from now.", False, "the end of a number"),
        ("14 days", "It takes 3.14 days from now.", False, "a decimal"),
        ("14", "It takes 14,000 or 14.5 of them.", False, "the beginning of a number"),
        ("14", "It takes about 14. That is all.", True, "a full stop behind"),
        ("e-mail", "Write us an e mail some day.", True, "a space for a hyphen"),
        ("mail", "Write us an e-mail some day.", False, "the end of a compound"),
        ("café", "We meet in the cafe\u0301 at noon.", True, "an accent of its own"),
        ("straße", "Es liegt an der STRASSE hier.", True, "case folding"),
        ("возврат", "Мы оформим возврат за пять минут.", True, "Cyrillic"),
        ("退款", "我们会在两周之内退款给您的", True, "no word boundaries in Chinese"),
        ("退款", "我们会在两周之内联系您的", False, "not there"),
        ("wifi", "这里可以使用wifi功能吗当然", True, "Latin letters between Chinese ones"),
    ],
)
def test_finds_whole_words_only(term: str, text: str, named: bool, why: str) -> None:
    assert keyword_coverage([""], [text], terms=[term]) == [float(named)], why


@pytest.mark.parametrize(
    ("text", "reward", "why"),
    [
        ("You get a refund within 14 days from now.", 1.0, "not named"),
        ("You get a refund within 14 days, guaranteed.", 0.0, "named"),
        ("You get a refund within 14 days. Guaranteed!", 0.0, "in another sentence"),
        ("<think>not guaranteed? guaranteed!</think>You get a refund within 14 days from now.", 1.0, "in thoughts"),
    ],
)
def test_a_forbidden_term_costs_everything(text: str, reward: float, why: str) -> None:
    assert keyword_coverage([""], [text], keywords=[REFUND], forbidden=[["guaranteed", "promise"]]) == [reward], why


def test_each_row_has_its_own_keywords_and_all_share_the_terms() -> None:
    text = "You get a refund if you send us the receipt."
    assert keyword_coverage([""] * 2, [text] * 2, keywords=[["refund"], ["voucher"]], terms=["receipt"]) == [1.0, 0.5]
    assert keyword_coverage([""] * 2, [text] * 2, keywords=[["refund"], None], terms=["receipt"]) == [1.0, 1.0]
    assert keyword_coverage([""], [text], keywords=[["refund"]], terms=["refund", "voucher"]) == [0.5], "once each"


def test_the_column_survives_the_way_through_a_data_file(tmp_path: Any) -> None:
    import json

    from tasks.jsonl import jsonl

    rows = [{"prompt": f"Question {i}?", "keywords": REFUND if i % 2 else ["refund"]} for i in range(8)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    train = jsonl(path=str(tmp_path / "train.jsonl"), test_fraction=0.25).train
    completions = ["You get a refund within two weeks of buying it."] * len(train)
    assert keyword_coverage(train["prompt"], completions, keywords=list(train["keywords"])) == [1.0] * len(train)


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        (None, "missing"),
        ([], "an empty list"),
        ("refund", "no list"),
        ([7], "a number"),
        ([""], "an empty term"),
        (["?!"], "signs only"),
        ([[]], "no synonyms"),
        ([["refund", 14]], "a number among synonyms"),
        ([["refund", ["deeper"]]], "nested too deeply"),
    ],
)
def test_a_row_without_terms_is_refused(keywords: Any, why: str) -> None:
    good, bad = validate_rows(keywords=[["refund"], keywords])
    assert good is None and bad is not None, why
    with pytest.raises(InputError) as error:
        keyword_coverage([""] * 2, [""] * 2, keywords=[["refund"], keywords])
    assert (error.value.kind, error.value.key) == ("invalid-row", "keywords"), why


def test_a_row_needs_no_keywords_beside_terms_of_all_rows() -> None:
    assert validate_rows(keywords=[None], terms=["refund"]) == [None]
    assert validate_rows(terms=["refund"]) == []


@pytest.mark.parametrize("option", ["negators", "least_words", "ordered", "full"])
def test_an_option_of_earlier_recipes_is_refused_with_the_options_there_are(option: str) -> None:
    with pytest.raises(InputError) as error:
        load_reward(RewardSpec("keyword_coverage", options={"terms": ["refund"], option: True}))
    assert (error.value.kind, error.value.key) == ("unknown-option", option)


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


@pytest.mark.parametrize("completion", [None, [], {}, 7, [None], [{"role": "assistant", "content": {}}], "\ud800\x00"])
def test_no_completion_raises(completion: Any) -> None:
    assert keyword_coverage([None], [completion], terms=["refund"]) == [0.0]


@pytest.mark.parametrize(
    "piece",
    ["refund ", "refund.", "refund. ", "no refund, ", "\u0301\u0316", "\ufdfa", "\n", "-‐", "14,", "not ", "字"],
)
def test_a_hundred_thousand_characters_take_no_time(piece: str) -> None:
    started = time.process_time()
    keyword_coverage([""], [piece * (100_000 // len(piece))], terms=REFUND, forbidden=["guaranteed"])
    assert time.process_time() - started < 5
