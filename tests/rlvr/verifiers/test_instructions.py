"""IFEval's instructions: one text that follows each, and one that does not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rlvr.verifiers.instructions import LANGUAGE, count_sentences, read_instructions
from tests.support.cases import cases
from tests.support.input_errors import input_error

FEW: dict[str, Any] = {"relation": "less than", "num_words": 4}


SECOND: dict[str, Any] = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Weigh"}

# id, arguments, a text that follows, a text that does not, what the pair is about.
CASES: list[tuple[str, dict[str, Any], str, str, str]] = cases(__file__, "kinds")


@pytest.mark.parametrize(("id", "arguments", "follows", "breaks", "why"), CASES)
def test_each_kind_tells_two_texts_apart(
    id: str, arguments: dict[str, Any], follows: str, breaks: str, why: str
) -> None:
    (instruction,) = read_instructions([id], [{**arguments, "unused": None}])
    assert instruction.is_followed(follows), why
    assert not instruction.is_followed(breaks), why
    assert not instruction.is_followed(" \n"), "a blank text follows nothing"


@pytest.mark.parametrize(("text", "count"), cases(__file__, "sentences end where readers"))
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
    with input_error("invalid-row", key):
        read_instructions(ids, arguments)


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
