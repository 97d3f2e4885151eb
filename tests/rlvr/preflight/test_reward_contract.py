"""The contract of rewards: what is an error, a warning or a note before training."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.preflight.reward_contract import check_contract
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer

RECIPE = Recipe(Path("r.yaml"), (TaskSpec("sums"),), (RewardSpec("r"),), None, {"on_reward_error": "raise"})


def right(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(text.endswith(f" {gold}")) for text, gold in zip(completions, final_answer, strict=True)]


def right_but_for_row_40(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    scores = right(completions, final_answer)
    return [0.0 if gold == "40" else score for gold, score in zip(final_answer, scores, strict=True)]


def wrong_sign(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [-value for value in right(completions, final_answer)]


def of_the_first_row(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(text == f"It is {final_answer[0]}") for text in completions]


def anywhere(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(any(gold in text for gold in set(final_answer))) for text in completions]


def form_alone(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(text.startswith("It is ")) for text in completions]


def by_default(completions: list[Any], final_answer: Any = None, **kwargs: Any) -> list[float]:
    return form_alone(completions, final_answer)


def from_kwargs(completions: list[Any], **kwargs: Any) -> list[float]:
    return form_alone(completions, kwargs["final_answer"])


def text_alone(completions: list[Any], **kwargs: Any) -> list[float]:
    return [float(text.startswith("It is ")) for text in completions]


def always(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


def never(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


def short(completions: list[Any], **kwargs: Any) -> list[float]:
    return [float(len(text) < 5) for text in completions]


def penalty(completions: list[Any], **kwargs: Any) -> list[float]:
    return [-0.1 * (len(text) > 10) for text in completions]


def unsure(completions: list[Any], **kwargs: Any) -> list[None]:
    return [None] * len(completions)


def fails_on_empty(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1 / len(text) for text in completions]


def not_a_number(completions: list[Any], **kwargs: Any) -> list[float]:
    return [float("nan") if text.startswith("qwv") else 0.0 for text in completions]


def reward(function: Any, weight: float = 1.0, gate: str | None = None) -> Reward:
    compares = "final_answer" in function.__annotations__ and function is not by_default
    return Reward(function.__name__, function, columns=("final_answer",) if compares else (), weight=weight, gate=gate)


def sums(rows: int = 64, gold: str | None = "It is {}") -> Task:
    data = Dataset.from_dict({"prompt": ["Which number?"] * rows, "final_answer": [str(row) for row in range(rows)]})
    write = None if gold is None else (lambda row: gold.format(row["final_answer"]))
    return Task(data, data.select([]), data.select([]), gold=write)


def tried(*rewards: Reward, task: Task | None = None, **settings: Any) -> list[Problem]:
    """What is found, less the note with the table."""
    recipe = replace(RECIPE, settings={**RECIPE.settings, **settings})
    with Scorer(rewards) as scorer:
        problems = check_contract(recipe, task or sums(), rewards, rewards[0], scorer)
    assert problems[-1].kind == "reward-trial"
    return problems[:-1]


@pytest.mark.parametrize(
    ("metric", "found", "why"),
    [
        (right, {}, "a sound reward"),
        (right_but_for_row_40, {"refused-gold": "warning"}, "one wrong reference answer of 64"),
        (never, {"refused-gold": "error", "golds-earn-no-more": "warning"}, "no right answer scores"),
        (wrong_sign, {"refused-gold": "error", "golds-earn-no-more": "warning"}, "the sign"),
        (of_the_first_row, {"refused-gold": "error", "accepted-another": "error"}, "compares all rows with the first"),
        (anywhere, {"accepted-another": "error"}, "looks for the answer in the whole column"),
        (form_alone, {"accepted-another": "error"}, "reads the answer and ignores it"),
        (by_default, {"accepted-another": "error"}, "the column has a default"),
        (from_kwargs, {"accepted-another": "error"}, "the column comes in **kwargs"),
        (text_alone, {"blind-metric": "note"}, "does not read the answer"),
        (
            always,
            {"accepted-another": "error", "accepted-noise": "warning", "golds-earn-no-more": "warning"},
            "accepts everything",
        ),
        (
            unsure,
            {"unscored-rows": "error", "golds-earn-no-more": "warning"},
            "None for every answer",
        ),
    ],
)
def test_a_metric_must_score_reference_answers_alone(metric: Any, found: dict[str, str], why: str) -> None:
    assert {one.kind: one.level for one in tried(reward(metric))} == found, why


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([reward(short, 0.5)], []),
        ([reward(penalty)], []),
        ([reward(short, 2.0)], ["golds-earn-no-more"]),
        ([reward(short, 2.0, gate="right")], []),
        ([reward(wrong_sign, 2.0)], ["golds-earn-no-more"]),
        ([reward(unsure)], ["golds-earn-no-more"]),
    ],
)
def test_the_gated_sum_must_be_higher_for_reference_answers(others: list[Reward], expected: list[str]) -> None:
    problems = tried(reward(right), *others)
    assert [one.kind for one in problems] == expected and all(one.level == "warning" for one in problems)


@pytest.mark.parametrize(("on_error", "level"), [("raise", "error"), ("mask", "warning")])
def test_a_reward_that_fails_is_named_with_its_row(on_error: str, level: str) -> None:
    first, second = tried(reward(fails_on_empty), reward(not_a_number), on_reward_error=on_error)
    assert [(one.kind, one.level, one.key, one.row) for one in (first, second)] == [
        ("reward-failed", level, "rewards.fails_on_empty", 0),
        ("reward-failed", level, "rewards.not_a_number", 0),
    ]
    assert "ZeroDivisionError" in first.message and "the noise" in second.message


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["True", "'' in completions"], ids=["always", "at one text"])
def test_a_reward_that_hangs_is_named_within_two_timeouts(condition: str, tmp_path: Path) -> None:
    file = tmp_path / "hangs.py"
    file.write_text(
        "import time\n\ndef hangs(completions, **kwargs):\n"
        f"    time.sleep(1000 * ({condition}))\n    return [0.0] * len(completions)\n"
    )
    [hangs] = load_rewards([RewardSpec(str(file))])
    with Scorer([hangs], timeout_s=3.0, batch_timeout_s=600) as scorer:
        started = time.monotonic()
        problem = check_contract(RECIPE, sums(), [hangs], hangs, scorer)[0]
    assert time.monotonic() - started < 60, "and not after 64 of them"
    assert (problem.kind, problem.level, problem.row) == ("reward-timeout", "error", 0)


@pytest.mark.parametrize(
    ("bad", "kind", "level"), [(None, "reward-failed", "error"), ("seven", "refused-gold", "warning"), ("7", "", "")]
)
def test_fast_rewards_are_tried_on_every_row(bad: str | None, kind: str, level: str) -> None:
    def compares(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
        golds = [int(gold) if gold != "seven" else None for gold in final_answer]
        found = [text.removeprefix("It is ") for text in completions]
        return [float(text.isdigit() and int(text) == gold) for text, gold in zip(found, golds, strict=True)]

    golds: list[Any] = [str(row + 10) for row in range(1500)]
    golds[1001] = bad
    rows = Dataset.from_dict({"prompt": ["Which number?"] * 1500, "final_answer": golds})
    task = Task(rows, rows, rows, gold=lambda row: f"It is {row['final_answer']}")
    problems = tried(Reward("tested", compares, columns=("final_answer",)), task=task)
    assert [(one.kind, one.level, one.row) for one in problems] == ([(kind, level, 1001)] if kind else [])


@pytest.mark.parametrize(
    ("gold", "answers", "found"),
    [
        (None, ["1", "2"], [("undeclared-gold", "note")]),  # the reward wants "It is 1"
        ("It is {}", ["1", "1.0"], []),  # equal by value, so no row has another answer
        ("It is {}", ["Yes", "yes "], []),
    ],
)
def test_reference_answers_are_only_those_that_are_known(gold: str | None, answers: list[str], found: Any) -> None:
    def accepts(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
        return form_alone(completions, final_answer)

    rows = Dataset.from_dict({"prompt": ["Which?"] * 40, "final_answer": answers * 20})
    write = None if gold is None else (lambda row: gold.format(row["final_answer"]))
    problems = tried(Reward("accepts", accepts, columns=("final_answer",)), task=Task(rows, rows, rows, gold=write))
    assert [(one.kind, one.level) for one in problems] == found


def test_the_table_shows_each_reward_and_the_sum() -> None:
    rewards = [reward(right), reward(short, 0.5)]
    with Scorer(rewards) as scorer:
        [note] = check_contract(RECIPE, sums(), rewards, rewards[0], scorer)
    lines = [line.split() for line in note.message.splitlines() if line.strip()]
    assert [line[:6] for line in lines[3:]] == [
        ["right", "1.00", "0.00", "0.00", "0.00", "0.00"],
        ["short", "0.00", "0.00", "1.00", "0.00", "0.00"],
        ["weighted", "sum", "1.00", "0.00", "0.50", "0.00"],
    ]
    assert max(map(len, note.message.splitlines())) <= 80


def test_rewards_of_chat_tasks_get_messages() -> None:
    def reads_messages(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
        return right([completion[-1]["content"] for completion in completions], final_answer)

    rows = Dataset.from_dict(
        {"prompt": [[{"role": "user", "content": "Which?"}]] * 32, "final_answer": [str(row) for row in range(32)]}
    )
    task = Task(rows, rows, rows, gold=lambda row: f"It is {row['final_answer']}")
    assert tried(Reward("reads", reads_messages, columns=("final_answer",)), task=task) == []
