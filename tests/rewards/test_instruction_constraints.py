"""The reward for following verifiable instructions: the share, and answers without sense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.instruction_constraints import instruction_constraints, validate_rows
from tests.support.cases import cases
from tests.support.input_errors import input_error

PROMPT = "Describe the lighthouse of Varn to a visitor who has never been to the coast, in at least 12 words."
ROW: dict[str, Any] = {
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words", "keywords:existence"],
    "kwargs": [{}, {"relation": "at least", "num_words": 12}, {"keywords": ["stone", "sea"]}],
}
ANSWER = "It stands on a narrow cliff of grey stone and sends its light far across the sea every night."


def score(completion: Any, prompt: Any = PROMPT, row: Any = None, **options: Any) -> Any:
    columns = {name: [value] for name, value in (row or ROW).items()}
    (reward,) = instruction_constraints([prompt], [completion], **columns, **options)
    return reward


@pytest.mark.parametrize(
    ("completion", "reward", "why"),
    [
        (ANSWER, 1.0, "all three"),
        (ANSWER.replace(" and", ", and"), 2 / 3, "a comma"),
        (ANSWER.replace("stone", "rock"), 2 / 3, "a keyword is missing"),
        (f"<think>Hm, no commas, I see.</think>\n{ANSWER}", 1.0, "thoughts are not read"),
        (f"<think>{ANSWER}", 0.0, "thoughts that never end"),
        (f"{PROMPT}\n{ANSWER}", 2 / 3, "the prompt has a comma, and the answer counts"),
    ],
)
def test_pays_the_share_that_is_followed(completion: str, reward: float, why: str) -> None:
    chat = [{"role": "assistant", "content": completion}]
    assert score(completion) == score(chat, [{"role": "user", "content": PROMPT}]) == pytest.approx(reward), why
    assert score(completion, all_or_nothing=True) == float(reward == 1.0), why


def one(id: str, **arguments: Any) -> dict[str, Any]:
    return {"instruction_id_list": [id], "kwargs": [arguments]}


@pytest.mark.parametrize(("completion", "row", "why"), cases(__file__, "senseless"))
def test_an_answer_without_sense_earns_nothing(completion: str, row: dict[str, Any], why: str) -> None:
    chat = [{"role": "user", "content": PROMPT}]
    assert score(completion, row=row) == score(completion, chat, row=row) == 0.0, why


@pytest.mark.parametrize(
    ("completion", "row", "why"),
    [
        ("My answer is yes.", one("detectable_format:constrained_response"), "the choice is all that is asked"),
        ("The old lighthouse.", one("length_constraints:number_words", relation="less than", num_words=5), "few words"),
        (f"{PROMPT}\n\n{ANSWER}", one("combination:repeat_prompt", prompt_to_repeat=PROMPT), "an answer after it"),
        ("它建在灰色的悬崖上面每天晚上把光送到很远的海面", one("punctuation:no_comma"), "Chinese words"),
    ],
)
def test_a_short_answer_earns_where_it_is_asked_for(completion: str, row: dict[str, Any], why: str) -> None:
    assert score(completion, row=row) == 1.0, why


def test_without_the_guards_it_is_the_strict_accuracy_of_ifeval() -> None:
    assert score("stone sea " * 8, least_words=0) == 1.0
    assert score(" \n", least_words=0) == 0.0


def test_an_invalid_row_is_refused() -> None:
    columns = {
        "instruction_id_list": [ROW["instruction_id_list"], ["punctuation:no_commas"]],
        "kwargs": [ROW["kwargs"], [{}]],
    }
    faults = validate_rows(**columns)
    assert faults[0] is None and faults[1]
    with input_error("invalid-row", "instruction_id_list"):
        instruction_constraints([ANSWER] * 2, [ANSWER] * 2, **columns)


@given(st.lists(st.sampled_from(["stone ", "sea, ", "a ", "old light ", ". ", "\n", "<think>", "</think>", PROMPT])))
def test_any_text_has_a_share(pieces: list[str]) -> None:
    assert 0.0 <= score("".join(pieces)) <= 1.0
