"""Answers that are more than a number: right in any spelling, wrong in every other meaning, and never a danger."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlvr.verifiers.math import check_answer, check_answers, gold_faults, grader
from rlvr.verifiers.math.complexity_guard import check_complexity
from rlvr.verifiers.math.normalize import canonicalize
from rlvr.verifiers.math.symbolic import draw_points
from rlvr.workers.pool import WorkerPool
from tests.support.answer_cases import ATTACKS, BOMBS, NOT_STATED, RIGHT, STATED, USUAL, WRONG
from tests.support.cases import cases


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "gold", "why"), RIGHT)
def test_one_meaning_in_two_spellings_is_right(answer: str, gold: str, why: str) -> None:
    verdict = check_answer(f"So it is\n\\[ \\boxed{{{answer}}} \\]", gold)
    assert verdict.correct is True, (why, verdict)


@pytest.mark.parametrize(("answer", "gold", "why"), WRONG)
def test_another_meaning_is_wrong(answer: str, gold: str, why: str) -> None:
    verdict = check_answer(f"So it is\n\\[ \\boxed{{{answer}}} \\]", gold)
    assert verdict.correct is False, (why, verdict)


@pytest.mark.parametrize(("completion", "gold", "why"), STATED)
def test_expressions_are_found_in_every_notation(completion: str, gold: str, why: str) -> None:
    verdict = check_answer(completion, gold)
    assert verdict.correct is True, (why, verdict)


@pytest.mark.parametrize(("completion", "gold", "why"), NOT_STATED)
def test_what_is_no_single_answer_is_wrong(completion: str, gold: str, why: str) -> None:
    verdict = check_answer(completion, gold)
    assert verdict.correct is False, (why, verdict)


@pytest.mark.parametrize(("completion", "gold", "why"), ATTACKS)
def test_what_a_policy_may_try_is_wrong(completion: str, gold: str, why: str) -> None:
    verdict = check_answer(completion, gold)
    assert verdict.correct is False, (why, verdict)


@pytest.mark.parametrize(("completion", "gold"), USUAL)
def test_what_models_usually_write_is_right(completion: str, gold: str) -> None:
    verdict = check_answer(completion, gold)
    assert verdict.correct is True, verdict


@pytest.mark.parametrize(
    "completion",
    [
        " ".join(f"\\boxed{{\\sqrt{{1764}}+\\sum_{{k=1}}^{{9999}}\\frac{{1}}{{k+{n}}}}}" for n in range(160)),
        " ".join(f"\\boxed{{\\sqrt{{2}}+\\frac{{{n}}}{{7}}-\\frac{{{n}}}{{7}}}}" for n in range(40)),
        "\\boxed{" * 12500,
        "The answer is " * 7000,
        "#### 1\n" * 20000,
        "<answer>1</answer>" * 5000,
    ],
    ids=["sums", "surds", "boxes", "sentences", "marks", "tags"],
)
def test_one_row_cannot_take_the_time_of_the_others(completion: str) -> None:
    check_answer(r"\boxed{\sqrt{8}}", r"2\sqrt{2}")  # the workers are there
    start = time.monotonic()
    verdicts = check_answers([completion, *[r"\boxed{\sqrt{12}}"] * 40], [r"\sqrt{2}", *[r"2\sqrt{3}"] * 40])
    assert verdicts[0].correct is False
    assert all(verdict.correct for verdict in verdicts[1:])
    assert time.monotonic() - start < 30


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:24])
@pytest.mark.parametrize("gold", ["42", r"\sqrt{2}"])
def test_no_answer_stalls_the_verifier(bomb: str, gold: str) -> None:
    check_answer(r"\boxed{\sqrt{3}}", gold)  # the workers are there
    start = time.monotonic()
    verdict = check_answer(f"\\boxed{{{bomb}}}", gold)
    assert verdict.correct is False
    assert time.monotonic() - start < 20  # the deadline is 2 s; the rest is a busy machine's


@pytest.mark.parametrize(("text", "dangerous", "why"), cases(__file__, "dangerous"))
def test_what_is_dangerous_is_known_by_its_spelling(text: str, dangerous: bool, why: str) -> None:
    assert (check_complexity(canonicalize(text)) is not None) is dangerous, why


def test_an_answer_that_runs_into_the_deadline_is_wrong_and_counted() -> None:
    slow = r"\boxed{(a+b+c+d+e+f+g+h+k+m)^{60}}"
    verdict = check_answer(slow, "(a+b+c+d+e+f+g+h+k+n)^{60}+(a-b)^{50}", deadline_s=0.3)
    assert verdict.correct is False
    quick = check_answers([slow, r"\boxed{\sqrt{12}}"], ["(a+b)^{60}+c", r"2\sqrt{3}"], deadline_s=2.0)
    assert quick[1].correct is True


def test_workers_that_fail_are_not_held_against_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grader, "algebra_workers", lambda: WorkerPool("no_such_module_anywhere:f"))
    verdicts = check_answers([r"\boxed{\sqrt{12}}", r"\boxed{5}"], [r"2\sqrt{3}", "5"])
    assert [verdict.correct for verdict in verdicts] == [None, True]
    assert "no_such_module_anywhere" in verdicts[0].why


@pytest.mark.parametrize(("gold", "word", "why"), cases(__file__, "unverifiable golds"))
def test_a_gold_that_cannot_be_verified_says_why(gold: object, word: str, why: str) -> None:
    (fault,) = gold_faults([gold])
    assert fault is not None, why
    assert word in fault, why


def test_golds_that_can_be_verified_have_no_fault() -> None:
    golds = [gold for _, gold, _ in RIGHT]
    assert gold_faults(golds) == [None] * len(golds)


def test_every_gold_verifies_against_itself() -> None:
    golds = [gold for _, gold, _ in RIGHT + WRONG]
    verdicts = check_answers([f"$\\boxed{{{gold}}}$" for gold in golds], golds)
    assert [gold for gold, verdict in zip(golds, verdicts, strict=True) if verdict.correct is not True] == []


@pytest.mark.slow
@pytest.mark.parametrize("count", range(1, 8))
def test_the_points_of_a_comparison_are_fixed_and_have_all_signs(count: int) -> None:
    symbols = [f"x{number}" for number in range(count)]
    points = draw_points(symbols, seed="x |x|")
    assert points == draw_points(symbols, seed="x |x|") != draw_points(symbols, seed="y |y|")
    for scale in (points[4 : 4 + (len(points) - 4) // 2], points[4 + (len(points) - 4) // 2 :]):
        assert all(value < 0 for value in scale[0].values())
        for one, other in itertools.combinations(symbols, 2):
            assert {point[one] * point[other] > 0 for point in scale} == {True, False}
    assert all(value > 0 for point in points[:4] for value in point.values())


def test_no_seed_credits_an_expression_for_its_absolute_value() -> None:
    answers = [f"x_{{{number}}}" for number in range(30)]
    verdicts = check_answers([f"\\boxed{{{answer}}}" for answer in answers], [f"|{answer}|" for answer in answers])
    assert {verdict.correct for verdict in verdicts} == {False}


LEAVES = st.sampled_from(["x", "y", "2", "3", "7", r"\pi", r"\sqrt{2}", r"\frac{1}{3}", "0.5"])
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({}+{})".format, inner, inner),
        st.builds("({}-{})".format, inner, inner),
        st.builds(r"\frac{{{}}}{{{}}}".format, inner, LEAVES),
        st.builds(r"{} \cdot {}".format, inner, inner),
        st.builds("{}^{{2}}".format, LEAVES),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@given(EXPRESSIONS)
@settings(max_examples=25, deadline=None)
def test_an_expression_is_itself_and_neither_one_more_nor_its_double(expression: str) -> None:
    assume(not re.fullmatch(r"\(\d-\d\)", expression))  # a score, such as 2-2, is text
    texts = [expression, f"0+{expression}", f"{expression}+1", rf"{expression}+\frac{{1}}{{1000}}"]
    verdicts = check_answers([f"\\boxed{{{text}}}" for text in texts], [expression] * 4, deadline_s=60.0)
    assert [verdict.correct for verdict in verdicts] == [True, True, False, False]


@given(st.text(max_size=200), st.sampled_from(["42", r"\sqrt{2}", "(1,2)", "Evelyn", "x<3"]))
@settings(max_examples=300, deadline=None)
def test_no_text_raises(text: str, gold: str) -> None:
    check_answers([f"\\boxed{{{text}}}", f"#### {text}", f"The answer is ${text}$.", text], [gold] * 4)


MATHEMATICS = st.text(alphabet=r"0123456789xyin+-*/^_={}()[]<>,.;:| \$%!&", max_size=30)


@given(MATHEMATICS, st.sampled_from(["42", r"\sqrt{2}", "(1,2)", "x<3"]))
@settings(max_examples=150, deadline=None)
def test_no_jumble_of_signs_raises(text: str, gold: str) -> None:
    verdict = check_answer(f"\\boxed{{{text}}}", gold)
    assert verdict.correct is not None


FRAGMENTS = [fragment for (fragment,) in cases(__file__, "fragments")]


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_no_pattern_backtracks_without_end(fragment: str) -> None:
    text = (fragment * 500)[:490]
    forms = (
        "\\boxed{%s}",
        "#### %s",
        "The answer is %s",
        "%s",
        "<answer>%s</answer>",
        "%s\\boxed{42}",
        "\\boxed{42}%s",
        "%s the answer is 42",
        "\\boxed{42} %s \\boxed{41}",
    )
    for form in forms:
        for tail in ("", "!", "?\x00"):
            start = time.process_time()
            check_answer(form % (text + tail), r"2, \sqrt{2}")
            assert time.process_time() - start < 1.0, (form, tail)
