"""tasks/one_line_programs.py: held out means held out, right programs pass all tests, and the traps are traps."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.data.task import Task
from tasks.one_line_programs import KINDS, LARGEST_INPUT, SMALLEST_INPUT, OneLiner, answer, one_line_programs

SPLITS = ("train", "validation", "test")
STEPS = [steps for kinds in KINDS.values() for steps in kinds]
TRAPS = [steps for (_, difficulty), kinds in KINDS.items() for steps in kinds if difficulty == "trap"]
numbers = st.integers(10, 99)
inputs = st.integers(SMALLEST_INPUT, LARGEST_INPUT)


def problems(steps: list[tuple[str, str]]) -> st.SearchStrategy[OneLiner]:
    made = st.tuples(st.sampled_from(steps), numbers, numbers)
    return made.map(lambda drawn: OneLiner(drawn[0][0], drawn[1], drawn[0][1], drawn[2]))


def value(expression: str, n: int) -> int:
    """What Python makes of an expression of the task's own."""
    return int(eval(expression, {"n": n}))


@pytest.fixture(scope="module")
def task() -> Task:
    return one_line_programs(validation_rows=200)


def test_a_right_program_passes_every_test_of_every_row(task: Task) -> None:
    for split in SPLITS:
        for row in task.split(split):
            for test in row["tests"]:
                assert f"{value(row['id'], int(test['input']))}\n" == test["output"], row


@given(problems(STEPS), inputs)
def test_the_output_is_what_python_computes(problem: OneLiner, n: int) -> None:
    assert problem.output(n) == value(problem.expression(), n)


@given(problems(TRAPS), inputs)
def test_who_falls_into_a_trap_is_wrong_for_every_input(problem: OneLiner, n: int) -> None:
    assert problem.has_trap
    assert value(problem.expression(careful=False), n) != problem.output(n)


@given(problems([steps for steps in STEPS if steps not in TRAPS]))
def test_without_a_trap_there_is_nothing_to_be_careful_about(problem: OneLiner) -> None:
    assert not problem.has_trap
    assert problem.expression(careful=False) == problem.expression()


@given(problems([("sum below", second) for second in "+-*"]), inputs)
def test_adding_one_where_the_end_is_excluded_is_wrong(problem: OneLiner, n: int) -> None:
    """So no single habit is right for both kinds of sums; a model must read which one is asked for."""
    assert value(problem.expression().replace("n)", "n+1)"), n) != problem.output(n)


def test_a_program_that_prints_a_constant_passes_one_test_at_most(task: Task) -> None:
    for row in task.train:
        outputs = [test["output"] for test in row["tests"]]
        assert len(set(outputs)) == len(outputs) == 4


def test_the_columns_describe_the_row(task: Task) -> None:
    for row in task.test:
        assert row["prompt"] == [{"role": "user", "content": row["question"]}]
        assert (row["language"], row["entry_point"]) == ("python", None)
        assert row["source"] == ("sum" if "sum(" in row["id"] else "expression")
        trap = row["id"].startswith("(") or "n+1)" in row["id"]
        assert row["difficulty"] == ("trap" if trap else "plain"), row["id"]


def test_the_words_say_what_the_program_computes(task: Task) -> None:
    words = {"+": "add", "-": "subtract", "*": "multiply", "//": "divide", "%": "remainder"}
    for row in task.test:
        text = row["question"].lower()
        # Two numbers, in the order of the program, and the operations in that order too.
        assert re.findall(r"\d+", text) == re.findall(r"\d\d+", row["id"])
        body = re.sub(r"sum\(range\(\d+,n(\+1)?\)\)", "n", row["id"])
        places = [text.index(words[sign]) for sign in re.findall(r"//|[-+*%]", body)]
        assert places == sorted(places), row
        if row["source"] == "sum":
            assert ("n included" in text) == ("n+1)" in row["id"])
            assert ("n excluded" in text) == ("n+1)" not in row["id"])


@pytest.mark.parametrize(
    ("problem", "careful", "line", "why"),
    [
        (OneLiner("+", 12, "*", 47), True, "n=int(input());print((n+12)*47)", "parentheses"),
        (OneLiner("+", 12, "*", 47), False, "n=int(input());print(n+12*47)", "without them, the product comes first"),
        (OneLiner("*", 12, "+", 47), True, "n=int(input());print(n*12+47)", "none are needed"),
        (OneLiner("sum to", 12, "*", 47), True, "n=int(input());print(sum(range(12,n+1))*47)", "n is included"),
    ],
)
def test_answer(problem: OneLiner, careful: bool, line: str, why: str) -> None:
    expression = problem.expression(careful=careful)
    assert answer(expression) == f"```python\n{line}\n```", why
    assert answer(expression, closing_fence=False) == f"```python\n{line}"


@pytest.mark.parametrize("kinds", ["expression", "sum"])
def test_kinds_picks_the_source(kinds: str) -> None:
    task = one_line_programs(kinds=kinds)  # type: ignore[arg-type]
    assert set(task.test["source"]) == set(task.train["source"]) == {kinds}
    assert len(task.test) == 250


def test_tests_per_problem_is_the_number_of_tests() -> None:
    assert {
        len(tests) for tests in one_line_programs(train_rows=7, test_rows=1, tests_per_problem=8).train["tests"]
    } == {8}
