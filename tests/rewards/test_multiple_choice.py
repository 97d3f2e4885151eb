"""Which forms of an answer state a choice, and which state none."""

from __future__ import annotations

import pytest

from rewards.multiple_choice import multiple_choice, validate_rows
from rlvr.verifiers.choices import read_choice
from tests.support.cases import cases

CITIES = ["Rome", "London", "Paris", "Rome and Paris"]
RIGHT = [
    "C",
    "c",
    "(C)",
    "[C]",
    '"C"',
    "C)",
    "**C**",
    "#### C",
    "### Answer\nC",
    "C. Paris",
    "The answer is (C).",
    "Answer: C",
    "**Answer: C**",
    "Final answer:\nC",
    "Correct answer: C. Paris",
    "The correct answer is:\n\nC. Paris",
    "Answer: C – Paris",
    "Answer=C",
    "The answer is **(C) Paris**.",
    "The answer is option C.",
    "Option C is correct.",
    "I choose C",
    "Answer: The correct option is C.",
    "The answer to the question is C.",
    "The correct answer is C because it is the capital.",
    "Answer: C\nAnswer: C",
    "The answer is C. I hope this helps.",
    "\\boxed{C}",
    "$\\boxed{\\text{C}}$",
    "The answer is $\\boxed{C}$.",
    "answer: \\(C\\)",
    "<answer>C</answer>",
    "Answer: Ｃ",
    "Rome is in Italy, London in the UK.\n\nC",
    "A is wrong since it is in Italy. B is in the UK.\nAnswer: C",
    "A. Rome\nB. London\nC. Paris\n\nAnswer: C",
    "If the answer is B, the city is London. But no.\nAnswer: C",
    "So C.",
    "A is wrong.\nThus, option C is correct.",
    "It's C",
    "Ans: C",
    "The answer is therefore C.",
    "The capital of France is Paris, so the answer is C.",
    "C. Paris\n\nExplanation: Paris is the capital of France.",
    "**C**\n\nParis is the capital.\nIt lies on the Seine.",
    "C is the answer, since Paris is the capital.",
    "I don't think the answer is B. The answer is C.",
]
RIGHT_WITH_TEXTS = ["Paris", "paris.", "**Paris**", "The answer is Paris.", "<answer>Paris</answer>"]
WRONG = cases(__file__, "wrong")


@pytest.mark.parametrize("text", [*RIGHT, *RIGHT_WITH_TEXTS])
def test_common_forms_are_read(text: str) -> None:
    assert read_choice(text, CITIES).letter == "C"
    assert (read_choice(text).letter == "C") == (text in RIGHT), "texts are known from the column choices alone"


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_all_other_text_is_no_answer_or_another(text: str, why: str) -> None:
    assert multiple_choice([""], [text], final_answer=["C"], choices=[CITIES]) == [0.0], why


@pytest.mark.parametrize(("choices", "text", "letter", "why"), cases(__file__, "texts of choices are"))
def test_texts_of_choices_are_told_from_letters(choices: list[str], text: str, letter: str | None, why: str) -> None:
    assert read_choice(text, choices).letter == letter, why


@pytest.mark.parametrize(("text", "letter"), cases(__file__, "among Paris, London, Rome and Oslo"))
def test_denials_and_reports_govern_and_later_sentences_do_not(text: str, letter: str | None) -> None:
    assert read_choice(text, ["Paris", "London", "Rome", "Oslo"]).letter == letter


def test_a_unit_is_no_letter() -> None:
    choices = [f"0.{number} J" for number in range(10)]
    assert read_choice("The answer is 0.46 J. So the answer is (H).", choices).letter == "H"
    assert read_choice("The answer is 0.46 J.", choices).letter is None


@pytest.mark.parametrize(
    ("gold", "choices", "is_right"),
    [
        ("c", CITIES, True),
        ("Paris", CITIES, True),
        ("Z", None, True),
        ("E", CITIES, False),
        ("Oslo", CITIES, False),
        (None, CITIES, False),
        ("A", ["x"], False),
        ("A", ["x", "x "], False),
        ("A", "Rome", False),
        ("", None, False),
    ],
)
def test_a_row_whose_reference_no_answer_meets_is_refused_and_not_scored(
    gold: str, choices: list, is_right: bool
) -> None:
    good, columns = ("A", ["x", "y"]), None if choices is None else [["x", "y"], choices]
    assert [fault is None for fault in validate_rows(final_answer=[good[0], gold], choices=columns)] == [True, is_right]
    rewards = multiple_choice(["", ""], ["A", "I don't know"], final_answer=["A", gold], choices=columns)
    assert rewards == [1.0, 0.0 if is_right else None]
