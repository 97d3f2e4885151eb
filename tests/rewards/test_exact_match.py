"""The reward for the reference's text after normalisation."""

from __future__ import annotations

from typing import Any

import pytest

from rewards.exact_match import exact_match, validate_rows
from tests.support.input_errors import input_error


@pytest.mark.parametrize(
    ("completion", "gold", "options", "reward", "why"),
    [
        ("Paris", "Paris", {}, 1.0, "the whole turn"),
        (" Paris\n", "Paris", {}, 1.0, "white space is normalised by default"),
        ("Ｐａｒｉｓ", "Paris", {}, 1.0, "and so is width"),
        ("paris", "Paris", {}, 0.0, "and case is not"),
        ("It is Paris", "Paris", {}, 0.0, "words before"),
        ("New  York", "New York", {"normalise": []}, 0.0, "as it is"),
        ("PARIS", "Paris", {"normalise": ["case"]}, 1.0, "case"),
        ("#### PARIS", "Paris", {"normalise": ["case"], "answer_in": "marker"}, 1.0, "the blank behind the marker"),
        ("Paris!", "Paris", {"normalise": ["punctuation"]}, 1.0, "punctuation"),
        ("the Eiffel tower.", "Eiffel Tower", {"normalise": ["squad"]}, 1.0, "as SQuAD compares"),
        ("Theatre", "atre", {"normalise": ["squad"]}, 0.0, "an article within a word"),
        ("London", ["Paris", "London"], {}, 1.0, "one of several references"),
        ("Paris London", ["Paris", "London"], {}, 0.0, "both of them"),
        ("London", '["Paris", "London"]', {}, 1.0, "one of several references in JSON text"),
        ("Zürich", ' ["Paris", "Z\\u00fcrich"]', {}, 1.0, "with an escape"),
        ('["Paris", "London"]', '["Paris", "London"]', {}, 1.0, "the JSON text itself"),
        ('["Paris"]', '["Paris", "London"]', {}, 0.0, "a list of one of them"),
        ("1", "[1, 2]", {}, 0.0, "a list of numbers is one reference"),
        ("[1, 2]", "[1, 2]", {}, 1.0, "which is met by itself"),
        ("[Paris", "[Paris", {}, 1.0, "no JSON"),
        ("So:\nParis\n", "Paris", {"answer_in": "last_line"}, 1.0, "the last line"),
        ("Paris\nor not", "Paris", {"answer_in": "last_line"}, 0.0, "another last line"),
        ("So.\n#### Paris", "Paris", {"answer_in": "marker"}, 1.0, "behind the marker"),
        ("#### Paris\n#### Rome", "Paris", {"answer_in": "marker"}, 0.0, "two answers"),
        ("#### Paris\nSo #### Paris", "Paris", {"answer_in": "marker"}, 1.0, "the same one twice"),
        ("Answer: Paris", "Paris", {"answer_in": "marker", "marker": "Answer:"}, 1.0, "another marker"),
        ("Paris", "Paris", {"answer_in": "marker"}, 0.0, "no marker"),
        (r"so \boxed{\frac{1}{2}}", r"\frac{1}{2}", {"answer_in": "boxed"}, 1.0, "nested braces"),
        (r"\boxed{\boxed{Paris}}", "Paris", {"answer_in": "boxed"}, 0.0, "nested boxes"),
        (r"\boxed{Paris} \boxed{Rome", "Paris", {"answer_in": "boxed"}, 0.0, "not closed"),
        ("<answer>Paris</answer> <answer>Rome", "Paris", {"answer_in": "tag"}, 0.0, "not closed"),
        ("<answer><answer>Paris</answer></answer>", "Paris", {"answer_in": "tag"}, 0.0, "nested tags"),
    ],
)
def test_what_equals_the_reference(
    completion: str, gold: Any, options: dict[str, Any], reward: float, why: str
) -> None:
    assert exact_match([""], [completion], final_answer=[gold], **options) == [reward], why


@pytest.mark.parametrize("gold", [None, 42, "", " \n", [], ["Paris", ""], ["Paris", 4], '["Paris", ""]'])
def test_a_row_whose_reference_is_none_is_refused_and_not_scored(gold: Any) -> None:
    assert [bool(fault) for fault in validate_rows(final_answer=["Paris", gold])] == [False, True]
    assert exact_match(["", ""], ["Paris", ""], final_answer=["Paris", gold]) == [1.0, None]


def test_a_reference_of_which_normalisation_leaves_nothing_is_refused() -> None:
    assert validate_rows(final_answer=["The"]) == [None]
    assert validate_rows(final_answer=["The", "..."], normalise=["squad"]) != [None, None]


def test_an_unknown_normalisation_is_named() -> None:
    with input_error("invalid-value", "normalise"):
        exact_match([""], [""], final_answer=["x"], normalise=["upper"])
