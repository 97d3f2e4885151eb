"""tasks/arithmetic.py: held out means held out, and every gold answer is the answer."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.config.specs import TaskSpec
from rlvr.data.number_pairs import number_pairs, split_of
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.scoring.registry import load_task
from tasks.arithmetic import (
    THINGS,
    WORDINGS,
    WordProblem,
    arithmetic,
    question,
    worked_solution,
)

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


def pairs_in(task: Task, split: str) -> set[tuple[int, ...]]:
    """The number pairs of a split, read from the questions as a model would read them."""
    return {tuple(sorted(map(int, re.findall(r"\d+", text)))) for text in task.split(split)["question"]}


def test_no_number_pair_is_in_two_splits(task: Task) -> None:
    train, validation, test = (pairs_in(task, split) for split in SPLITS)
    assert all(len(pair) == 2 for pair in train | validation | test)
    assert not train & test
    assert not train & validation
    assert not validation & test


@pytest.mark.parametrize("seed", [0, 1, 42])
def test_held_out_pairs_are_held_out_whatever_the_seed(seed: int) -> None:
    held_out = set(number_pairs("test"))
    assert pairs_in(arithmetic(seed=seed), "test") <= held_out
    assert not pairs_in(arithmetic(seed=seed), "train") & held_out


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


def test_no_problem_comes_twice(task: Task) -> None:
    for split in SPLITS:
        ids, questions = task.split(split)["id"], task.split(split)["question"]
        assert len(set(ids)) == len(ids)
        assert len(set(questions)) == len(questions)
        unordered = {tuple(sorted(re.split(r"([+-])", text))) for text in ids}
        assert len(unordered) == len(ids), "47+38 and 38+47 are one problem"


def test_two_problems_in_three_need_a_carry_and_signs_are_even(task: Task) -> None:
    difficulties, sources = list(task.train["difficulty"]), list(task.train["source"])
    assert difficulties.count("carry") / len(difficulties) == pytest.approx(2 / 3, abs=0.01)
    assert sources.count("addition") == sources.count("subtraction")


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
        (WordProblem(42, "+", 35), ["42+35", "ones 2+5=7", "tens 4+3=7", "#### The final answer is 77"], "no carry"),
        (
            WordProblem(99, "+", 99),
            ["99+99", "ones 9+9=18", "tens 9+9+1=19", "#### The final answer is 198"],
            "three digits",
        ),
        (WordProblem(52, "-", 38), ["52-38", "ones 12-8=4", "tens 5-3-1=1", "#### The final answer is 14"], "a borrow"),
        (
            WordProblem(52, "-", 48),
            ["52-48", "ones 12-8=4", "tens 5-4-1=0", "#### The final answer is 4"],
            "no leading 0",
        ),
        (WordProblem(30, "-", 30), ["30-30", "ones 0-0=0", "tens 3-3=0", "#### The final answer is 0"], "nothing left"),
    ],
)
def test_worked_solution(problem: WordProblem, lines: list[str], why: str) -> None:
    assert worked_solution(problem).splitlines() == lines, why


@given(problems(), st.integers(0, 3), st.sampled_from(THINGS))
def test_a_question_names_the_two_numbers_in_order_and_no_other(
    problem: WordProblem, wording: int, things: str
) -> None:
    text = question(problem, wording, things)
    assert re.findall(r"\d+", text) == [str(problem.left), str(problem.right)]
    assert "{" not in text


def test_no_two_wordings_are_alike() -> None:
    wordings = [wording for of_sign in WORDINGS.values() for wording in of_sign]
    assert len(set(wordings)) == len(wordings) == 12


def test_the_same_seed_gives_the_same_rows(task: Task) -> None:
    again = arithmetic(validation_rows=200)
    for split in SPLITS:
        assert again.split(split).to_list() == task.split(split).to_list()


def test_another_seed_gives_other_rows(task: Task) -> None:
    other = arithmetic(validation_rows=200, seed=43)
    for split in SPLITS:
        assert list(other.split(split)["id"]) != list(task.split(split)["id"])


def test_test_rows_do_not_depend_on_how_many_rows_are_trained_on(task: Task) -> None:
    assert arithmetic(train_rows=10).test.to_list() == task.test.to_list()


@pytest.mark.parametrize("source", ["addition", "subtraction", "multiplication"])
def test_operations_picks_the_sign_and_the_defaults_of_the_rest_still_hold(source: str) -> None:
    task = arithmetic(operations=source)
    assert set(task.test["source"]) == set(task.train["source"]) == {source}
    assert len(task.test) == 250
    operate = {"addition": int.__add__, "subtraction": int.__sub__, "multiplication": int.__mul__}[source]
    for row in task.test:
        assert row["final_answer"] == str(operate(*map(int, re.findall(r"\d+", row["id"]))))


def test_row_counts_are_as_asked_and_columns_the_same_in_an_empty_split() -> None:
    task = arithmetic(train_rows=7, test_rows=1)
    assert [len(task.split(split)) for split in SPLITS] == [7, 0, 1]
    assert task.validation.features == task.train.features == task.test.features


@pytest.mark.parametrize(
    ("options", "named", "why"),
    [
        ({"operations": "division"}, "operations", "not a sign we have"),
        ({"operations": ["addition"]}, "operations", "a list where a name belongs"),
        ({"train_rows": 0}, "train_rows", "nothing to train on"),
        ({"test_rows": 0}, "test_rows", "nothing to measure on"),
        ({"validation_rows": -1}, "validation_rows", "negative"),
        ({"train_rows": 10.0}, "train_rows", "not a whole number"),
        ({"train_rows": True}, "train_rows", "yes/no where a number belongs"),
        ({"train_rows": 100_000}, "train_rows", "more than there are"),
        ({"test_rows": 1000}, "test_rows", "more than there are"),
        ({"seed": "x"}, "seed", "not a number"),
    ],
)
def test_a_bad_option_is_an_input_error_that_names_it(options: dict[str, object], named: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        load_task(TaskSpec("arithmetic", options))
    assert error.value.kind in ("invalid-value", "invalid-option") and error.value.key == named, why


@pytest.mark.parametrize("option", ["train_rows", "test_rows"])
def test_the_most_rows_that_the_docstring_promises_can_be_had_and_no_more(option: str) -> None:
    lines = (arithmetic.__doc__ or "").split(f"{option}:")[1]
    most = int(re.findall(r"at most ([\d,]+)", lines)[0].replace(",", ""))
    arithmetic(**{option: most})  # type: ignore[arg-type]
    with pytest.raises(InputError) as error:
        arithmetic(**{option: most + 1})  # type: ignore[arg-type]
    assert error.value.key == option
