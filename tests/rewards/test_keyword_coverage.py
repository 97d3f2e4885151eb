"""The reward for naming what an answer must name."""

from __future__ import annotations

import inspect
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.keyword_coverage import explain, keyword_coverage, validate_rows
from rlvr.errors import InputError

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
    assert keyword_coverage([""], [completion], terms=REFUND, full=True) == [float(reward == 1.0)], why


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
        ("can", "This can't be what we want.", False, "the opposite"),
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
    ("text", "counts", "why"),
    [
        ("Sadly there is no refund for these tickets.", False, "no"),
        ("This is not a refund but a voucher.", False, "not a"),
        ("You leave without a full refund this time.", False, "without"),
        ("You aren’t eligible for a refund this time.", False, "n't, with a typographic apostrophe"),
        ("We will never promise a refund to anyone.", False, "never"),
        ("We cannot offer you a refund this time.", False, "cannot"),
        ("You get a voucher instead of a refund here.", False, "instead of"),
        ("You get a voucher rather than a refund here.", False, "rather than"),
        ("A refund is not possible for such tickets.", False, "negated behind"),
        ("A refund isn't possible for such tickets.", False, "n't behind"),
        ("There is no\nrefund for this kind of ticket.", False, "over a line break"),
        ("No, a refund is what you get here.", True, "another clause"),
        ("It is not broken. A refund is what you get.", True, "another sentence"),
        ("You get not only a refund but also an apology.", True, "not only"),
        ("You get no less than a refund from us today.", True, "no less than"),
        ("There is no doubt that a refund is due.", True, "no doubt"),
        ("A refund will come, not a voucher this time.", True, "another thing is negated"),
        ("There is no refund. But then a refund comes after all.", True, "named elsewhere"),
        ("If you are not happy we refund it at once.", False, "in doubt it is negated"),
    ],
)
def test_a_negated_mention_does_not_count(text: str, counts: bool, why: str) -> None:
    assert keyword_coverage([""], [text], terms=["refund"]) == [float(counts)], why


def test_negators_of_another_language() -> None:
    text = ["Es gibt hier leider keine Erstattung mehr."]
    assert keyword_coverage([""], text, terms=["Erstattung"]) == [1.0]
    assert keyword_coverage([""], text, terms=["Erstattung"], negators=["kein", "keine", "nicht"]) == [0.0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("refund 14 days", "the bare list"),
        ("refund, 14 days, refund, two weeks", "with synonyms"),
        ("- refund\n- 14 days\n- two weeks", "as a list"),
        ("refund\n\n14 days\n\n", "a paragraph each"),
        ("Keywords: refund 14 days", "with a title"),
        ("the refund the 14 days the the the the", "one word of filler, repeated"),
        ("refund 1 2 3 14 days 4 5", "filled with numbers"),
        ("`refund` x y z `14 days` q", "filled with letters"),
        ("so we can refund refund refund refund 14 days 14 days", "more mentions than words"),
    ],
)
def test_stuffing_earns_nothing(text: str, why: str) -> None:
    assert keyword_coverage([""], [text], terms=REFUND) == [0.0], why


def test_the_defence_against_stuffing_is_an_option() -> None:
    assert keyword_coverage([""], ["refund 14 days"], terms=REFUND, least_words=0) == [1.0]
    assert keyword_coverage([""], ["You get a refund from us"], terms=["refund"], least_words=6) == [0.0]


@pytest.mark.parametrize(
    ("text", "reward", "why"),
    [
        ("We need one alpha, one beta and one gamma.", 1.0, "in order"),
        ("We need one beta, then some alpha and one gamma.", 2 / 3, "two in order"),
        ("We need one gamma, then one beta and some alpha.", 1 / 3, "backwards"),
        ("We take gamma at first. We take alpha now, beta next and gamma last.", 1.0, "in order at the second try"),
        ("We need one beta and then one gamma.", 2 / 3, "one is missing"),
    ],
)
def test_the_order_can_be_asked_for(text: str, reward: float, why: str) -> None:
    terms = ["alpha", "beta", "gamma"]
    assert keyword_coverage([""], [text], terms=terms, ordered=True) == [pytest.approx(reward)], why


@pytest.mark.parametrize(
    ("text", "reward", "why"),
    [
        ("You get a refund within 14 days from now.", 1.0, "not named"),
        ("You get a refund within 14 days, guaranteed.", 0.0, "named"),
        ("You get a refund within 14 days. Guaranteed!", 0.0, "in a sentence of one word"),
        ("You get a refund within 14 days, which is not guaranteed.", 1.0, "negated"),
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
        (["x" * 201], "too long"),
    ],
)
def test_an_invalid_entry_is_refused_with_its_row(keywords: Any, why: str) -> None:
    with pytest.raises(InputError) as error:
        keyword_coverage([""] * 2, [""] * 2, keywords=[["refund"], keywords])
    assert (error.value.kind, error.value.key, error.value.row) == ("invalid-row", "keywords", 1), why


def test_rows_can_be_checked_before_training() -> None:
    good, bad = validate_rows(keywords=[["refund"], [7]])
    assert good is None and bad is not None and "7 is neither a term" in bad
    assert validate_rows(keywords=[None], terms=["refund"]) == [None]
    assert validate_rows(terms=["refund"]) == []
    with pytest.raises(InputError) as error:
        validate_rows(forbidden=[""])
    assert (error.value.kind, error.value.key) == ("invalid-value", "forbidden")


@pytest.mark.parametrize(
    ("options", "kind", "key", "why"),
    [
        ({}, "invalid-row", "keywords", "neither a column nor terms"),
        ({"keywords": [["a"], ["b"]]}, "length-mismatch", "keywords", "two lists for one completion"),
        ({"keywords": "refund"}, "length-mismatch", "keywords", "no list"),
        ({"terms": []}, "invalid-value", "terms", "no terms"),
        ({"terms": ["a"], "forbidden": [7]}, "invalid-value", "forbidden", "a number"),
        ({"terms": ["a"], "least_words": -1}, "invalid-value", "least_words", "negative"),
        ({"terms": ["a"], "least_words": True}, "invalid-value", "least_words", "yes/no"),
        ({"terms": ["a"], "negators": "not"}, "invalid-value", "negators", "no list"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], kind: str, key: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        keyword_coverage([""], [""], **options)
    assert (error.value.kind, error.value.key) == (kind, key), why


def test_the_explanation_says_what_became_of_each_entry() -> None:
    steps = explain("We give no refund. It takes 14 days to answer you.", keywords=REFUND)
    assert steps == [
        "Read 50 characters of the own turn.",
        "'refund' is negated by 'no': 'we give no refund. it takes 14 days to answer y'.",
        "'14 days' or 'two weeks' is named: 'we give no refund. it takes 14 days to answer you.'.",
        "1 of 2 count.",
        "Reward: 0.5",
    ]


def test_the_explanation_takes_what_the_reward_takes() -> None:
    reward = set(inspect.signature(keyword_coverage).parameters) - {"prompts", "completions"}
    assert reward == set(inspect.signature(explain).parameters) - {"completion"}


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


@given(st.lists(st.sampled_from(SAID), max_size=12), st.booleans(), st.booleans())
def test_the_explanation_ends_in_the_reward(pieces: list[str], full: bool, ordered: bool) -> None:
    options: dict[str, Any] = {"terms": REFUND, "forbidden": ["guaranteed"], "full": full, "ordered": ordered}
    text = "".join(pieces)
    (reward,) = keyword_coverage([""], [text], **options)
    assert reward is not None and 0.0 <= reward <= 1.0
    assert explain(text, **options)[-1] == f"Reward: {reward:g}"


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
    keyword_coverage([""], [piece * (100_000 // len(piece))], terms=REFUND, forbidden=["guaranteed"], ordered=True)
    assert time.process_time() - started < 5
