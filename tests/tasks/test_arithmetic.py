"""tasks/arithmetic.py: held out means held out, and every gold answer is the answer."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.data.number_pairs import number_pairs, split_of
from rlvr.data.task import Task
from tasks.arithmetic import WordProblem, arithmetic, worked_solution
from tests.support.input_errors import input_error

SPLITS = ("train", "validation", "test")
numbers = st.integers(10, 99)


@st.composite
def problems(draw: st.DrawFn) -> WordProblem:
    first, second, sign = draw(numbers), draw(numbers), draw(st.sampled_from("+-"))
    return (
        WordProblem(first, sign, second) if sign == "+" else WordProblem(max(first, second), sign, min(first, second))
    )


@pytest.fixture(scope="module")
def task() -> Task:
    return arithmetic(validation_rows=200)


@given(numbers, numbers)
def test_the_order_of_a_pair_does_not_change_its_split(first: int, second: int) -> None:
    assert split_of(first, second) == split_of(second, first)


def test_every_pair_is_in_exactly_one_split() -> None:
    pairs = [pair for split in SPLITS for pair in number_pairs(split)]
    assert len(pairs) == len(set(pairs)) == 90 * 91 // 2


def test_gold_is_right_for_every_row(task: Task) -> None:
    for split in SPLITS:
        for row in task.split(split):
            left, right = (int(number) for number in re.findall(r"\d+", row["question"]))
            expected = left + right if row["source"] == "addition" else left - right
            assert row["final_answer"] == str(expected), row
            assert row["id"] == f"{left}{'+' if row['source'] == 'addition' else '-'}{right}"


def test_difficulty_says_whether_the_ones_carry_or_borrow(task: Task) -> None:
    for row in task.test:
        left, right = (int(number) % 10 for number in re.findall(r"\d+", row["question"]))
        carries = left + right > 9 if row["source"] == "addition" else left < right
        assert row["difficulty"] == ("carry" if carries else "no carry"), row


def test_a_prompt_is_one_user_message_with_the_question(task: Task) -> None:
    for row in task.test:
        assert row["prompt"] == [{"role": "user", "content": row["question"]}]


def test_no_sum_comes_turned_round(task: Task) -> None:
    for split in SPLITS:
        ids = task.split(split)["id"]
        unordered = {tuple(sorted(re.split(r"([+-])", text))) for text in ids}
        assert len(unordered) == len(ids), "47+38 and 38+47 are one problem"


@given(problems())
def test_the_worked_solution_ends_in_the_right_answer(problem: WordProblem) -> None:
    assert worked_solution(problem).splitlines()[-1] == f"#### The final answer is {problem.answer}"


@given(problems(), st.booleans(), st.booleans())
def test_every_sum_written_in_a_worked_solution_is_true(
    problem: WordProblem, keep_carry: bool, closing_line: bool
) -> None:
    """Forgetting a carry leaves out a digit of the work; no mode writes down a false equation."""
    work = worked_solution(problem, keep_carry=keep_carry, closing_line=closing_line)
    equations = re.findall(r"^(?:ones|tens) (\S+)=(\d+)$", work, re.MULTILINE)
    assert len(equations) == 2
    for expression, result in equations:
        assert sum(map(int, re.findall(r"[+-]?\d+", expression))) == int(result)


@given(problems())
def test_a_forgotten_carry_makes_the_answer_wrong_by_ten_and_only_where_there_is_one(
    problem: WordProblem,
) -> None:
    answer = int(worked_solution(problem, keep_carry=False).split()[-1])
    expected = (-10 if problem.sign == "+" else 10) if problem.needs_carry else 0
    assert answer - problem.answer == expected


@given(problems())
def test_without_the_closing_line_only_the_work_is_left(problem: WordProblem) -> None:
    assert worked_solution(problem).startswith(worked_solution(problem, closing_line=False) + "\n####")


@pytest.mark.parametrize(
    ("problem", "lines", "why"),
    [
        (WordProblem(47, "+", 38), ["47+38", "ones 7+8=15", "tens 4+3+1=8", "#### The final answer is 85"], "a carry"),
        (WordProblem(52, "-", 38), ["52-38", "ones 12-8=4", "tens 5-3-1=1", "#### The final answer is 14"], "a borrow"),
    ],
)
def test_worked_solution(problem: WordProblem, lines: list[str], why: str) -> None:
    assert worked_solution(problem).splitlines() == lines, why


@pytest.mark.parametrize("source", ["addition", "subtraction", "multiplication"])
def test_operations_picks_the_sign_and_the_defaults_of_the_rest_still_hold(source: str) -> None:
    task = arithmetic(operations=source)
    assert set(task.test["source"]) == set(task.train["source"]) == {source}
    assert len(task.test) == 250
    operate = {"addition": int.__add__, "subtraction": int.__sub__, "multiplication": int.__mul__}[source]
    for row in task.test:
        assert row["final_answer"] == str(operate(*map(int, re.findall(r"\d+", row["id"]))))


@pytest.mark.parametrize("option", ["train_rows", "test_rows"])
def test_the_most_rows_that_the_docstring_promises_can_be_had_and_no_more(option: str) -> None:
    lines = (arithmetic.__doc__ or "").split(f"{option}:")[1]
    most = int(re.findall(r"maximum is ([\d,]+)", lines)[0].replace(",", ""))
    arithmetic(**{option: most})  # type: ignore[arg-type]
    with input_error("invalid-value", option):
        arithmetic(**{option: most + 1})  # type: ignore[arg-type]
