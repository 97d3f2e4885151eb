"""The answer of a completion: which one counts, and that wrong ones never pass."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify_sentences import questions, sentences
from rlvr.verifiers.completion_text import completion_text, own_turn
from rlvr.verifiers.math import check_answer, normalise_gold
from tasks.gsm8k import one_paragraph
from tests.support.answer_cases import RIGHT_42, WRONG_42
from tests.support.cases import cases

DATA = Path(__file__).resolve().parents[4] / "../shared/data"


@pytest.mark.parametrize("gold", ["7", "8", "unreadable ("])
def test_a_verdict_has_no_truth_value(gold: str) -> None:
    with pytest.raises(TypeError, match=r"\.correct"):
        bool(check_answer("#### 7", gold))


@pytest.mark.parametrize(("completion", "why"), RIGHT_42)
def test_right_answers_pass(completion: str, why: str) -> None:
    assert check_answer(completion, "42").correct is True, why


@pytest.mark.parametrize(("completion", "why"), WRONG_42)
def test_wrong_answers_never_pass(completion: str, why: str) -> None:
    assert check_answer(completion, "42").correct is False, why


@pytest.mark.parametrize(("completion", "gold", "other", "why"), cases(__file__, "right, and wrong with another gold"))
def test_a_right_answer_passes_and_with_another_gold_does_not(completion: str, gold: str, other: str, why: str) -> None:
    assert check_answer(completion, gold).correct is True, why
    assert check_answer(completion, other).correct is False, why


def test_a_conclusion_of_a_completion_that_was_cut_off_may_be_an_intermediate_result() -> None:
    completion = "She buys 3 boxes of 4.\nSo she has 12 eggs."
    assert check_answer(completion, "12").correct is True
    assert check_answer(completion, "12", ended=False).correct is False


@pytest.mark.parametrize(
    "header",
    [
        "Question:",
        "Question 2:",
        "**Question:**",
        "### Problem 3",
        "Q:",
        "Q2.",
        "Problem:",
        "User:",
        "Human:",
        "[Question]",
        "Example 2:",
        "Next question:",
        "Here is another problem.",
        "<|im_end|>",
        "<|endoftext|>",
        "</s>",
        "QUESTION:",
        "Exercise 1.",
    ],
)
def test_what_follows_the_next_problem_is_not_read(header: str) -> None:
    answered = "6 * 7 = 42.\n#### The final answer is 42"
    completion = f"{answered}\n\n{header} How many?\nSolution: 5.\n#### The final answer is 5"
    if header in ("### Problem 3", "[Question]"):
        completion = completion.replace(" How many?", "\nHow many?")
    assert own_turn(completion).strip() == answered
    assert check_answer(completion, "42").correct is True
    assert check_answer(completion, "5").correct is False


@pytest.mark.parametrize(
    "text", ["The question: how many?", "No problem, as 3 < 4.", "Quantity: 3", "Questions are 3."]
)
def test_a_line_that_is_no_header_does_not_end_the_turn(text: str) -> None:
    assert own_turn(f"{text}\n#### 42") == f"{text}\n#### 42"


@pytest.mark.parametrize(
    ("completion", "opened", "unopened", "why"),
    [
        ("Half of 84 is 42.\n#### 42", False, True, "thoughts that never end"),
        ("Or 41.\n#### 41\n</think>\n#### 42", True, True, "thoughts that end"),
        ("<think>\n\\boxed{41}\n</think>\n\\boxed{42}", True, True, "the model repeats the tag"),
        ("So 41.</think><think>No.\n#### 42", False, False, "thoughts begin again"),
        ("#### 42\n</think>\n#### 41", False, False, "the answer is another one"),
    ],
)
def test_thoughts_that_the_template_opens_hold_no_answer(
    completion: str, opened: bool, unopened: bool, why: str
) -> None:
    chat = [{"role": "user", "content": "#### 42"}, {"role": "assistant", "content": completion}]
    for form in (completion, chat):
        assert check_answer(form, "42", think_opened=True).correct is opened, why
        assert check_answer(form, "42").correct is unopened, why
    parsed = [{"role": "assistant", "content": "#### 42", "reasoning_content": "Half of 84."}]
    assert check_answer(parsed, "42", think_opened=True).correct is True


def test_a_turn_cut_off_within_the_next_header_ends_before_it() -> None:
    assert own_turn("#### 42\n\nQuestion").strip() == "#### 42"


def test_what_stood_around_a_thought_does_not_grow_together() -> None:
    assert check_answer("##<think>x</think>## 42", "42").correct is False


@pytest.mark.parametrize(("gold", "plain"), cases(__file__, "golds become bare numbers"))
def test_golds_become_bare_numbers(gold: str, plain: str) -> None:
    assert normalise_gold(gold) == plain


@pytest.mark.parametrize(
    "gold",
    [
        "",
        "   ",
        "<<3>>",
        "forty-two",
        "3 or 4",
        "\\frac{1}{",
        "10^{10^{10}}",
        "She left at noon and then she came back again",
        "1" * 600,
        "{" * 40,
        "3 +",
        "...",
        "quite a lot",
        "\\boxed{1}" * 2000,
    ],
)
def test_a_gold_that_cannot_be_verified_against_is_refused(gold: str) -> None:
    with pytest.raises(ValueError, match="can be verified"):
        normalise_gold(gold)


def test_a_gold_that_cannot_be_read_is_not_held_against_the_model() -> None:
    assert check_answer("#### 42", "forty-two").correct is None


def test_prose_can_be_switched_off() -> None:
    assert check_answer("The answer is 42.", "42", prose=False).correct is False
    assert check_answer("#### 42", "42", prose=False).correct is True


@pytest.mark.parametrize(("completion", "text", "why"), cases(__file__, "completions"))
def test_reads_plain_and_chat_completions(completion, text: str, why: str) -> None:  # type: ignore[no-untyped-def]
    assert completion_text(completion) == text, why
    check_answer(completion, "1")


NUMBERS = st.one_of(
    st.integers(min_value=-(10**15), max_value=10**15),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9),
)
FORMS = (
    "#### {}",
    "#### The final answer is {}",
    "\\boxed{{{}}}",
    "The answer is {}.",
    "<answer>{}</answer>",
    "#### ${}",
)


@pytest.mark.slow
@given(NUMBERS, st.sampled_from(FORMS), st.sampled_from(["", ","]), st.sampled_from(["-", "−"]))
@settings(max_examples=300)
def test_a_number_verifies_against_itself_and_no_other(
    number: int | Decimal, form: str, separator: str, minus: str
) -> None:
    kind = "d" if isinstance(number, int) else "f"
    completion = form.format(format(number, separator + kind).replace("-", minus))
    assert check_answer(completion, format(number, kind)).correct is True
    for other in (number + 1, number - 1, *((-number, number * 10) if number else ())):
        assert check_answer(completion, format(other, kind)).correct is False


@given(st.text(max_size=400))
def test_no_completion_raises(text: str) -> None:
    check_answer(text, "42")
    check_answer(f"#### {text}", "42")
    check_answer(f"\\boxed{{{text}", "42")
    check_answer(f"The answer is {text}", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bomb",
    [
        "#" * 1_000_000,
        "#### " * 200_000,
        "#### 1\n" * 100_000,
        "\\boxed{" * 200_000,
        "\\boxed{1} " * 100_000,
        "<think>" * 200_000,
        "</think>" * 200_000,
        "<answer>" * 200_000,
        "answer is " * 100_000,
        "answer is(" * 10_000,
        "answer to " + "a " * 200_000,
        "\n" * 1_000_000,
        " " * 1_000_000,
        "\n \t" * 300_000,
        "\nQ" * 200_000,
        "#### " + "9" * 1_000_000,
        "#### 9e999999999",
        "#### " + "(" * 190,
        "#### 1" + " " * 150 + "x",
        "not " * 20_000 + "\\boxed{1}",
        "the" + " " * 500_000 + "answer",
        "the answer to " * 50_000,
    ],
    ids=lambda bomb: bomb[:12].encode("unicode_escape").decode(),
)
def test_no_completion_takes_long(bomb: str) -> None:
    start = time.process_time()
    assert check_answer(bomb, "42").correct is False
    assert time.process_time() - start < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\n", "so ", "####x", "####x\n", "\u00a0", "\\boxed{", "$", "1234567890"])
@pytest.mark.parametrize(
    ("before", "behind", "right", "why"),
    [
        ("", "so it is $\\boxed{42}$.", True, "a flood before the answer"),
        ("#### 41", "The answer is 42.", False, "a flood that hides another answer"),
    ],
)
def test_a_flood_neither_costs_nor_hides_an_answer(unit: str, before: str, behind: str, right: bool, why: str) -> None:
    completion = f"{before}\n{unit * (2_000_000 // len(unit))}\n{behind}"
    start = time.process_time()
    assert check_answer(completion, "42").correct is right, why
    assert time.process_time() - start < 2.0


def test_a_turn_that_is_too_long_is_not_read() -> None:
    verdict = check_answer("#### 42\n" + "x " * 2_500_000, "42")
    assert verdict.correct is False
    assert "longer" in verdict.why


# ----------------------------------------------------------------------------------------------------------------------
# The real rows


def gsm8k(split: str) -> list[tuple[str, str]]:
    """(solution, gold) of the real rows, the gold as it stands there, commas and all."""
    file = DATA / f"gsm8k_{split}.jsonl"
    if not file.is_file():
        pytest.skip(f"the real GSM8K is not here ({file.name} in ../shared/data)")
    rows = [json.loads(line)["answer"] for line in file.read_text(encoding="utf-8").split("\n") if line]
    pairs = [row.rpartition("####") for row in rows]
    return [(solution, gold.strip()) for solution, _, gold in pairs]


# {work} is the worked solution as one paragraph, {solution} as it stands in the file.
RENDERINGS = {
    "as in the file": "{solution}#### {gold}",
    "#### N": "{work}\n#### {gold}",
    "#### The final answer is N": " {work}\n#### The final answer is {gold}",
    "without commas": "{work}\n#### The final answer is {digits}.",
    "boxed": "{work}\n$\\boxed{{{gold}}}$",
    "prose": "{work}\nThe answer is ${gold}.",
    "with an invented problem": "{work}\n#### {gold}\n\nQuestion: Why?\nSolution: So.\n#### 99999",
}


@pytest.mark.slow
@pytest.mark.parametrize("rendering", RENDERINGS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_solutions_of_gsm8k_are_right_for_their_own_row_and_wrong_for_the_next(split: str, rendering: str) -> None:
    rows = gsm8k(split)[:: 1 if rendering == "as in the file" else 8]
    for (solution, gold), (_, next_gold) in zip(rows, rows[1:] + rows[:1], strict=True):
        work = one_paragraph(solution)
        completion = RENDERINGS[rendering].format(solution=solution, work=work, gold=gold, digits=gold.replace(",", ""))
        verdict = check_answer(completion, gold)
        assert verdict.correct is True, (verdict, completion)
        if next_gold != gold:
            assert check_answer(completion, next_gold).correct is False, (completion, next_gold)


@pytest.mark.slow
def test_natural_sentences_around_the_answers_of_gsm8k_are_read_and_with_other_numbers_are_wrong() -> None:
    if not (DATA / "gsm8k_train.jsonl").is_file():
        pytest.skip("the real GSM8K is not here (gsm8k_train.jsonl in ../shared/data)")
    rows = list(sentences(questions(DATA)[::20], templates=8, seed=1))
    refused = [(right, gold) for right, _, gold in rows if check_answer(right, gold).correct is not True]
    assert len(refused) <= len(rows) / 1000, refused
    assert [wrong for _, wrong, gold in rows if check_answer(wrong, gold).correct is not False] == []
