"""The reward that asks the verifier of a reasoning-gym dataset."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rewards.reasoning_gym import final_text, reasoning_gym
from tasks.reasoning_gym import reasoning_gym as task


@pytest.mark.parametrize(
    ("completion", "answer", "why"),
    [
        ("so <answer> 42 </answer>", "42", "tags"),
        ("<think><answer>41</answer></think><answer>42</answer>", "42", "thoughts are no answers"),
        ("<answer>42", "42", "a tag that is not closed"),
        ("<answer>a\nQ: b</answer>", "a\nQ: b", "a line of the answer that looks like a header"),
        ("<answer>42</answer>\nQuestion: next\n<answer>7</answer>", "42", "an invented problem"),
        ("so\n#### The final answer is 42", "42", "the answer line of the other tasks"),
        ("<answer>42</answer> or <answer>41</answer>", None, "two answers"),
        ("<answer>42</answer> yes <answer>42</answer>", "42", "the same answer twice"),
        ("42", None, "no form"),
        ("", None, "nothing"),
    ],
)
def test_takes_the_answer_out_of_the_own_turn(completion: str, answer: str | None, why: str) -> None:
    assert final_text(completion) == answer, why


@pytest.mark.parametrize(
    "dataset", ["chain_sum", "leg_counting", "word_sorting", "countdown", "arc_agi", "rearc", "n_queens"]
)
def test_the_packages_own_solution_scores_1_and_nonsense_less(dataset: str) -> None:
    rows = task(dataset=dataset, train_rows=3, test_rows=2).train
    right = [f"So it is:\n<answer>{answer}</answer>" for answer in rows["final_answer"]]
    assert score(right, rows["entry"]) == [1.0] * 3
    assert score([[{"role": "assistant", "content": text}] for text in right], rows["entry"]) == [1.0] * 3
    assert all(value is not None and value < 0.5 for value in score(["<answer>nonsense</answer>"] * 3, rows["entry"]))
    assert score(["I don't know"] * 3, rows["entry"]) == [0.0] * 3


def test_verifies_by_the_options_of_the_task() -> None:
    options = {"datasets": [{"name": "chain_sum", "weight": 1.0, "config": {}}]}
    rows = task(dataset="composite", options=options, train_rows=3, test_rows=1).train
    assert score([f"<answer>{answer}</answer>" for answer in rows["final_answer"]], rows["entry"]) == [1.0] * 3


def test_partial_credit_can_be_switched_off() -> None:
    rows = task(dataset="chain_sum", train_rows=1, test_rows=1).train
    verbose = [f"<answer>It is {rows['final_answer'][0]}, I think.</answer>"]
    assert score(verbose, rows["entry"]) != [0.0]
    assert reasoning_gym([""], verbose, entry=list(rows["entry"]), exact=True) == [0.0]


def score(completions: Sequence[object], entry: Sequence[str]) -> list[float | None]:
    return reasoning_gym([""] * len(completions), list(completions), entry=list(entry))
