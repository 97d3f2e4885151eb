"""IFEval's instructions: one text that follows each, and one that does not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rlvr.errors import InputError
from rlvr.verifiers.instructions import LANGUAGE, count_sentences, read_instructions

FEW: dict[str, Any] = {"relation": "less than", "num_words": 4}
TWICE = {"keyword": "jar", "frequency": 2, "relation": "at least"}
SECOND: dict[str, Any] = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Weigh"}

# id, arguments, a text that follows, a text that does not, what the pair is about.
CASES: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("keywords:existence", {"keywords": ["jar", "C++ (new)"]}, "JARS of C++ (new) code", "a jar of C (new)", "as text"),
    ("keywords:frequency", TWICE, "a jar and ajar", "a jar", "parts of words count"),
    (
        "keywords:frequency",
        {**TWICE, "relation": "exactly"},
        "a jar, a Jar",
        "a jar, a jar, jars, a jar",
        "whole words",
    ),
    ("keywords:frequency", {**TWICE, "relation": "less than"}, "a jar", "jar, jar", "less than"),
    ("keywords:forbidden_words", {"forbidden_words": ["jar"]}, "Jars of ajar", "A Jar.", "whole words, any case"),
    (
        "keywords:letter_frequency",
        {"letter": "R", "let_frequency": 2, "let_relation": "at most"},
        "rR",
        "rrr",
        "at most",
    ),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_frequency": 2, "let_relation": "at least"},
        "#a #b",
        "#a",
        "a sign",
    ),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "exactly"}, "Go. Now!", "Go.", "two"),
    ("length_constraints:number_words", FEW, "two small jars", "two small green jars", "less than"),
    (
        "length_constraints:number_words",
        {"relation": "around", "num_words": 20},
        "a " * 22,
        "a " * 23,
        "within a tenth",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n***\n***\nb", "an empty one"),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        "a\n* * *\nb\n***",
        "a\n\nb",
        "RLVR-IFeval's divider",
    ),
    ("length_constraints:nth_paragraph_first_word", SECOND, 'Take it.\n\n"Weigh, it.', "Weigh.\n\nTake.", "the second"),
    ("length_constraints:nth_paragraph_first_word", SECOND, "Take.\n\nweigh it", "a\n\nWeigh\n\nb", "three paragraphs"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] for [b]", "[a\n] for [b]", "on a line"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "a\np. s. b", "a\nPS b", "a space between"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "a\nP.P.S b", "a\nP.S. b", "the second one"),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        "* a\n - b\n**c**",
        "* a\n- b\n- c",
        "bold is no bullet",
    ),
    ("detectable_format:constrained_response", {}, "My answer is no.", "My answer is no", "IFEval's three"),
    ("detectable_format:constrained_response", {"options": ["red", "green"]}, "green", "blue", "the row's own"),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "*a* and *b*",
        "*a* and * *",
        "an empty one",
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1 a\nSECTION 2 b",
        "Section 1 a\nSECTION 2 b",
        "as written",
    ),
    ("detectable_format:json_format", {}, '```json\n{"jars": 2}\n```', '{"jars": 2', "in a fence"),
    ("detectable_format:title", {}, "<<Jars>>\nTwo.", "<< >>\nTwo.", "an empty one"),
    ("combination:two_responses", {}, "a ****** b", "a ****** a", "equal ones"),
    ("combination:two_responses", {}, "******a ****** b", "a ****** b ****** c", "three"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Tell me."}, "tell me. Yes.", "Yes. Tell me.", "in front"),
    (
        "startend:end_checker",
        {"end_phrase": "Any questions?"},
        '"a any questions?"',
        "Any questions? No.",
        "at the end",
    ),
    ("startend:quotation", {}, ' "a" ', '"a" b', "around all"),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "WELL-KNOWN, IT'S",
        "WELL-KNOWN it",
        "a hyphen joins",
    ),
    ("change_case:english_capital", {}, "TWO JARS: 2", "Two JARS", "capitals"),
    ("change_case:english_lowercase", {}, "two jars: 2", "two Jars", "no capitals"),
    ("change_case:english_lowercase", {}, "a", "123", "no letter at all"),
    ("punctuation:no_comma", {}, "a b", "a, b", "a comma"),
]


@pytest.mark.parametrize(("id", "arguments", "follows", "breaks", "why"), CASES)
def test_each_kind_tells_two_texts_apart(
    id: str, arguments: dict[str, Any], follows: str, breaks: str, why: str
) -> None:
    (instruction,) = read_instructions([id], [{**arguments, "unused": None}])
    assert instruction.is_followed(follows), why
    assert not instruction.is_followed(breaks), why
    assert not instruction.is_followed(" \n"), "a blank text follows nothing"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three?", 3),
        ("Dr. A. Holm paid 3.50 for it. It was cheap (e.g. free)", 2),
        ('She said "Go." Then she went...', 2),
        ("1. Take a jar\n2. Weigh it.", 1),
        ("两个罐子。三个。", 2),
        ("... !!! ?", 0),
        ("", 0),
    ],
)
def test_sentences_end_where_readers_end_them(text: str, count: int) -> None:
    assert count_sentences(text) == count


@pytest.mark.parametrize(
    ("ids", "arguments", "key"),
    [
        (["keywords:existance"], [{}], "instruction_id_list"),
        ([LANGUAGE], [{"language": "fr"}], "instruction_id_list"),
        ([], [], "instruction_id_list"),
        ("punctuation:no_comma", [{}], "instruction_id_list"),
        (["punctuation:no_comma"], [{}, {}], "kwargs"),
        (["punctuation:no_comma"], "[{}", "kwargs"),
        (["punctuation:no_comma"], [7], "kwargs"),
        (["punctuation:no_comma"], [{"commas": 0}], "kwargs"),
        (["keywords:existence"], [{}], "kwargs"),
        (["keywords:existence"], [{"keywords": "jar"}], "kwargs"),
        (["keywords:letter_frequency"], [{"letter": "ab", "let_frequency": 1, "let_relation": "at least"}], "kwargs"),
        (["length_constraints:number_words"], [{"num_words": 9, "relation": "more than"}], "kwargs"),
        (["length_constraints:number_words"], [{"num_words": True, "relation": "at least"}], "kwargs"),
        (["length_constraints:nth_paragraph_first_word"], [{**SECOND, "nth_paragraph": 3}], "kwargs"),
    ],
)
def test_wrong_columns_are_named(ids: Any, arguments: Any, key: str) -> None:
    with pytest.raises(InputError) as error:
        read_instructions(ids, arguments)
    assert (error.value.kind, error.value.key) == ("invalid-row", key)


def test_arguments_may_be_json() -> None:
    (instruction,) = read_instructions(
        ["length_constraints:number_words"], '[{"relation": "less than", "num_words": 4}]'
    )
    assert instruction.arguments == FEW


@pytest.mark.parametrize("piece", ["[", "<<", "*", "a.", "'", "P. ", "\n", "* * *", "-", "``` ", "1"])
def test_every_check_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    for id, arguments, *_ in CASES:
        read_instructions([id], [arguments])[0].is_followed(piece * (100_000 // len(piece)))
    assert time.process_time() - started < 20
