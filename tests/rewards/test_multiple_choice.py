"""Which forms of an answer state a choice, and which state none."""

from __future__ import annotations

import pytest

from rewards.multiple_choice import multiple_choice, validate_rows
from rlvr.verifiers.choices import read_choice

CITIES = ["Rome", "London", "Paris", "Rome and Paris"]
RIGHT = [
    "C",
    "c",
    "(C)",
    "(c)",
    "[C]",
    '"C"',
    "C)",
    "C:",
    "**C**",
    "#### C",
    "### Answer\nC",
    "C. Paris",
    "C. paris",
    "The answer is (C).",
    "The answer is: C",
    "the answer is c",
    "Answer: C",
    "**Answer:** C",
    "Answer: **C**",
    "**Answer: C**",
    "Final answer:\nC",
    "Final Answer: C.",
    "Answer: C) Paris",
    "Correct answer: C. Paris",
    "The correct answer is:\n\nC. Paris",
    "Answer: C – Paris",
    "Answer=C",
    "The answer is C, Paris.",
    "The answer is **(C) Paris**.",
    "The answer is option C.",
    "Option C",
    "Option C is correct.",
    "I choose C",
    "The correct option is (C) Paris.",
    "Answer: The correct option is C.",
    "The answer to the question is C.",
    "So the answer would be C.",
    "The correct answer is C because it is the capital.",
    "Answer: C\nAnswer: C",
    "The answer is C. I hope this helps.",
    "\\boxed{C}",
    "$\\boxed{\\text{C}}$",
    "\\boxed{\\text{C. Paris}}",
    "The answer is $\\boxed{C}$.",
    "answer: \\(C\\)",
    "<answer>C</answer>",
    "<answer>\nC. Paris\n</answer>",
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
    "It is in France, so the correct answer is (C).",
    "C. Paris\n\nExplanation: Paris is the capital of France.",
    "**C**\n\nParis is the capital.\nIt lies on the Seine.",
    "Option C is the answer.",
    "C is the answer, since Paris is the capital.",
    "C is correct because of its name.",
    "I don't think the answer is B. The answer is C.",
    "The answer is not B. The answer is C.",
]
RIGHT_WITH_TEXTS = ["Paris", "paris.", "**Paris**", "The answer is Paris.", "<answer>Paris</answer>"]
WRONG = [
    ("A", "another"),
    ("E", "none of the choices"),
    ("Answer: (letter)", "a placeholder"),
    ("С", "Cyrillic"),
    ("Answer: С", "Cyrillic"),
    ("A or C", "hedged"),
    ("Answer: C or A", "hedged"),
    ("The answer is C or maybe D", ""),
    ("Paris or Rome", "hedged by text"),
    ("Could be C, could be B", "hedged"),
    ("Answer: C (or D)", "hedged"),
    ("Answer: either C or B", "hedged"),
    ("Answer: A, B, C, D", "all"),
    ("A\nB\nC", "all, on lines"),
    ("A. Rome\nB. London\nC. Paris", "the prompt's list"),
    ("Rome, London or Paris", "all by text"),
    ("C & D", ""),
    ("Rome London Paris", "all by text"),
    ("Answer: AC", "two"),
    ("Answer: ABCD\nC", "all, then one"),
    ("C C C C D", ""),
    ("Answer: C/D", "two"),
    ("Answer: C and B", "two"),
    ("Answer: C\nAnswer: D", "two"),
    ("Answer: C\n\nD", "two"),
    ("Answer: C\nRome", "two, one by text"),
    ("\\boxed{C}\\boxed{D}", "two"),
    ("\\boxed{C, D}", "two"),
    ("<answer>C</answer><answer>A</answer>", "two"),
    ("<answer><answer>C</answer></answer>", "nested"),
    ("\\boxed{\\boxed{C}}", "nested"),
    ("<answer>C", "not closed"),
    ("\\boxed{}", "empty"),
    ("Cat", "in a word"),
    ("The answer is Cat", "in a word"),
    ("Answer: C-section", "in a word"),
    ("C++", "in a word"),
    ("CO2", "in a word"),
    ("It is not clear that the answer is C.", "doubted"),
    ("Is it Paris, so the answer is C?", "a question"),
    ("C\n\nThis is wrong.", "denied"),
    ("C. Paris\n\nIt may be B.", "another after it"),
    ("C\nRome is in Italy.", "no reason"),
    ("C is the answer? No.", "a question"),
    ("C is the answer, since A is not.", "another in its reason"),
    ("C is not the answer, since it is in Italy.", "denied"),
    ("C is the answer to another question.", "of another"),
    ("So not C", "denied"),
    ("It is C or D", "hedged"),
    ("Answer: not C", "denied"),
    ("C is wrong", "denied"),
    ("The answer is C? No.", "a question"),
    ("The answer is C. Wait, it is B.", "retracted"),
    ("C. Rome", "the text of another"),
    ("Answer: C Rome", ""),
    ("The answer is Rome and Paris.", "another, which contains the text"),
    ("", "nothing"),
]


@pytest.mark.parametrize("text", [*RIGHT, *RIGHT_WITH_TEXTS])
def test_common_forms_are_read(text: str) -> None:
    assert read_choice(text, CITIES).letter == "C"
    assert (read_choice(text).letter == "C") == (text in RIGHT), "texts are known from the column choices alone"


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_all_other_text_is_no_answer_or_another(text: str, why: str) -> None:
    assert multiple_choice([""], [text], final_answer=["C"], choices=[CITIES]) == [0.0], why


@pytest.mark.parametrize(
    ("choices", "text", "letter", "why"),
    [
        (["AA", "Aa", "aa"], "Aa", "B", "only case differs"),
        (["AA", "Aa", "aa"], "aA", None, "none of them"),
        (["4", "42", "4.5", "-4"], "Answer: 4.", "A", "a number and a full stop"),
        (["4", "42", "4.5", "-4"], "4.5", "C", "not the number before the point"),
        (["4", "42", "4.5", "-4"], "Answer: -4", "D", "a sign"),
        (["4", "42", "4.5", "-4"], "B. 4", None, "letter and text differ"),
        (["A whale", "A fish", "Both A and B"], "The answer is A fish.", "B", "the word A"),
        (["A whale", "A fish", "Both A and B"], "Both A and B", "C", "letters within a text"),
        (["A whale", "A fish", "Both A and B"], "The answer is A because it breathes.", "A", "a letter and a reason"),
        (["A whale", "A fish", "Both A and B"], "The answer is A tree", None, "the word A"),
    ],
)
def test_texts_of_choices_are_told_from_letters(choices: list[str], text: str, letter: str | None, why: str) -> None:
    assert read_choice(text, choices).letter == letter, why


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
