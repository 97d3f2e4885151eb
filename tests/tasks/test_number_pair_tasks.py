"""The tasks with problems about two numbers: held out means held out, and a seed decides everything."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rlvr.config.specs import TaskSpec
from rlvr.data.number_pairs import number_pairs
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.scoring.registry import load_task
from tasks.arithmetic import arithmetic
from tasks.one_line_programs import one_line_programs
from tests.support.cases import cases

SPLITS = ("train", "validation", "test")
# The task, and the difficulty that two rows in three have.
TASKS: dict[str, tuple[Callable[..., Task], str]] = {
    "arithmetic": (arithmetic, "carry"),
    "one_line_programs": (one_line_programs, "trap"),
}

pytestmark = pytest.mark.parametrize("name", TASKS)


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    return {name: load(validation_rows=200) for name, (load, _) in TASKS.items()}


def pairs_in(task: Task, split: str) -> set[tuple[int, ...]]:
    """The number pairs of a split, read from the questions as a model would read them."""
    return {tuple(sorted(map(int, re.findall(r"\d+", text)))) for text in task.split(split)["question"]}


def test_no_number_pair_is_in_two_splits(name: str, tasks: dict[str, Task]) -> None:
    train, validation, test = (pairs_in(tasks[name], split) for split in SPLITS)
    assert all(len(pair) == 2 for pair in train | validation | test)
    assert not train & test and not train & validation and not validation & test


@pytest.mark.parametrize("seed", [0, 1, 42])
def test_held_out_pairs_are_held_out_whatever_the_seed(name: str, seed: int) -> None:
    held_out, task = set(number_pairs("test")), TASKS[name][0](seed=seed)
    assert pairs_in(task, "test") <= held_out
    assert not pairs_in(task, "train") & held_out


def test_no_problem_comes_twice(name: str, tasks: dict[str, Task]) -> None:
    for split in SPLITS:
        ids, questions = tasks[name].split(split)["id"], tasks[name].split(split)["question"]
        assert len(set(ids)) == len(ids)
        assert len(set(questions)) == len(questions)


def test_two_problems_in_three_are_harder_and_sources_are_even(name: str, tasks: dict[str, Task]) -> None:
    difficulties, sources = list(tasks[name].train["difficulty"]), list(tasks[name].train["source"])
    assert difficulties.count(TASKS[name][1]) / len(difficulties) == pytest.approx(2 / 3, abs=0.01)
    first, second = set(sources)
    assert sources.count(first) == sources.count(second)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows_and_another_seed_others(name: str, tasks: dict[str, Task]) -> None:
    load = TASKS[name][0]
    again, other = load(validation_rows=200), load(validation_rows=200, seed=43)
    for split in SPLITS:
        assert again.split(split).to_list() == tasks[name].split(split).to_list()
        assert list(other.split(split)["id"]) != list(tasks[name].split(split)["id"])


def test_test_rows_do_not_depend_on_how_many_rows_are_trained_on(name: str, tasks: dict[str, Task]) -> None:
    assert TASKS[name][0](train_rows=10).test.to_list() == tasks[name].test.to_list()


def test_row_counts_are_as_asked_and_columns_the_same_in_an_empty_split(name: str) -> None:
    task = TASKS[name][0](train_rows=7, test_rows=1)
    assert [len(task.split(split)) for split in SPLITS] == [7, 0, 1]
    assert task.validation.features == task.train.features == task.test.features


def test_a_bad_option_is_an_input_error_that_names_it(name: str) -> None:
    for options, named, why in cases(__file__, name):
        with pytest.raises(InputError) as error:
            load_task(TaskSpec(name, options))
        assert error.value.kind in ("invalid-value", "invalid-option") and error.value.key == named, why
