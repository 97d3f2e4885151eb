"""Any dataset of reasoning-gym as a task."""

from __future__ import annotations

import pytest

from rlvr.data.io import unpack
from rlvr.data.splits import question_key
from tasks.reasoning_gym import reasoning_gym
from tests.support.cases import cases
from tests.support.input_errors import input_error


def test_rows_have_the_documented_columns_and_state_the_answer_format() -> None:
    task = reasoning_gym(dataset="chain_sum", train_rows=4, test_rows=2)
    assert (len(task.train), len(task.validation), len(task.test)) == (4, 0, 2)
    assert task.train.column_names == ["prompt", "question", "final_answer", "source", "id", "entry"]
    row = task.train[0]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert "<answer>" in row["prompt"][0]["content"]
    assert row["prompt"][1]["content"] == row["question"]
    assert unpack(row["entry"])["item"]["answer"] == row["final_answer"]
    assert row["source"] == "reasoning_gym/chain_sum"


def test_a_template_without_a_system_turn_gets_the_instruction_from_the_user() -> None:
    prompt = reasoning_gym(dataset="chain_sum", train_rows=1, test_rows=1, instruction_role="user").train[0]["prompt"]
    assert [message["role"] for message in prompt] == ["user"]
    assert "<answer>" in prompt[0]["content"]


def test_training_and_test_share_no_question_even_where_questions_are_few() -> None:
    task = reasoning_gym(dataset="chain_sum", train_rows=150, test_rows=40, options={"max_terms": 2, "max_digits": 1})
    questions = [question_key(question) for split in (task.train, task.test) for question in split["question"]]
    assert len(questions) == len(set(questions))
    assert len(task.test) == 40


def test_a_dataset_that_runs_out_of_questions_says_so() -> None:
    task = reasoning_gym(dataset="chain_sum", train_rows=1000, test_rows=20, options={"max_terms": 2, "max_digits": 1})
    assert len(task.train) < 1000
    assert any("made only" in note for note in task.notes)


def test_the_same_seed_gives_the_same_problems_and_another_seed_others() -> None:
    first, again, other = (
        list(reasoning_gym(dataset="leg_counting", train_rows=5, test_rows=5, seed=seed).train) for seed in (1, 1, 99)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize(("options", "kind", "key", "hint", "why"), cases(__file__, "invalid options are refused"))
def test_invalid_options_are_refused(options: dict, kind: str, key: str, hint: str, why: str) -> None:
    with input_error(kind, key, why=why) as error:
        reasoning_gym(**{"dataset": "chain_sum", "train_rows": 2, "test_rows": 2, **options})
    assert hint in str(error.value), why


@pytest.mark.slow
def test_every_dataset_of_the_package_works_and_accepts_its_own_solutions() -> None:
    from reasoning_gym.factory import DATASETS

    from rewards.reasoning_gym import reasoning_gym as reward

    for name in sorted(set(DATASETS) - {"composite"}):
        task = reasoning_gym(dataset=name, train_rows=2, test_rows=1)
        assert task.gold is not None
        solved = [row for row in task.train if row["final_answer"]]
        completions = [task.gold(row) for row in solved]
        scores = reward([""] * len(solved), completions, entry=[row["entry"] for row in solved])
        assert scores == [1.0] * len(solved), name
