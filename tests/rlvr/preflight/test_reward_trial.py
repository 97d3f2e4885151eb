"""Before a run its rewards are tried: golds must earn what empty answers and noise must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.config.recipe import Recipe, RewardSpec, TaskSpec
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.preflight import try_rewards
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer


def right(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [float(text.endswith(f" {gold}")) for text, gold in zip(completions, final_answer, strict=True)]


def right_but_for_row_40(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    scores = right(completions, final_answer)
    return [0.0 if gold == "40" else score for gold, score in zip(final_answer, scores, strict=True)]


def never(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


def always(completions: list[Any], final_answer: list[str], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


def short(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1.0 if len(text) < 5 else 0.0 for text in completions]


def cannot(completions: list[Any], **kwargs: Any) -> list[float]:
    return [1 / len(text) for text in completions]  # of an empty one: never seen in training until one comes


def reward(function: Any, weight: float = 1.0) -> Reward:
    made = Reward(function.__name__, function, columns=() if function in (short, cannot) else ("final_answer",))
    made.weight = weight
    return made


def tried(*rewards: Reward, gold: bool = True, **settings: Any) -> list[str]:
    rows = Dataset.from_dict({"prompt": ["?"] * 64, "final_answer": [str(row) for row in range(64)]})
    task = Task(
        rows, rows.select([]), rows.select([]), gold=(lambda row: f"It is {row['final_answer']}") if gold else None
    )
    recipe = Recipe(
        Path("r.yaml"), TaskSpec("sums"), (RewardSpec("r"),), None, {"on_reward_error": "raise", **settings}
    )
    scorer = Scorer(rewards)
    try:
        return try_rewards(recipe, task, rewards, rewards[0], scorer)
    finally:
        scorer.close()


def test_rewards_that_fit_are_said_to() -> None:
    assert tried(reward(right), reward(short, 0.1)) == [
        "the rewards pay 16 golds in full, and neither empty nor senseless answers"
    ]


@pytest.mark.parametrize(
    ("function", "said", "why"),
    [
        (
            never,
            r"takes the task's own gold for wrong in 16 of 16 tried training rows \(0, 4, 8,",
            "misfit",
        ),
        (always, "takes an empty answer for right in 16 of 16", "everything is right"),
        (cannot, "cannot.*raised ZeroDivisionError", "the first empty completion would have stopped the run"),
    ],
)
def test_rewards_that_cannot_be_right_are_refused(function: Any, said: str, why: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        tried(reward(function))


def test_a_single_gold_that_fails_is_named_and_stops_nothing() -> None:
    [note] = tried(reward(right_but_for_row_40))
    assert "own gold for wrong in 1 of 16 tried training rows (40)" in note and note.startswith("warning: ")


def test_a_recipe_that_masks_faults_begins_with_a_warning() -> None:
    [note] = tried(reward(cannot), on_reward_error="mask")
    assert note.startswith("warning: ") and "ZeroDivisionError" in note


def test_weights_that_pay_for_nothing_are_told() -> None:
    [note] = tried(reward(right), reward(short, 2.0))
    assert note.startswith("warning: the sum of the rewards is 2 for empty answers and 1 for the task's golds")


def test_without_golds_the_rewards_are_still_tried_on_what_is_no_answer() -> None:
    assert tried(reward(right), gold=False) == [
        "the rewards refuse empty and senseless answers; the task sums has no golds to try"
    ]
    with pytest.raises(InputError, match="takes an empty answer for right"):
        tried(reward(always), gold=False)


@pytest.mark.parametrize(
    ("task", "options", "names"),
    [
        ("arithmetic", {"train_rows": 100, "test_rows": 1}, ("math_correctness", "answer_format")),
        ("one_line_programs", {"train_rows": 100, "test_rows": 1}, ("code_execution", "code_format")),
    ],
)
def test_the_golds_of_our_tasks_earn_all_rewards(task: str, options: dict[str, Any], names: tuple[str, ...]) -> None:
    from rlvr.scoring.registry import load_task

    loaded = load_task(TaskSpec(task, options))
    rewards = load_rewards([RewardSpec(name) for name in names])
    recipe = Recipe(Path("r.yaml"), TaskSpec(task), (RewardSpec("r"),), None, {"on_reward_error": "raise"})
    with Scorer(rewards) as scorer:
        [note] = try_rewards(recipe, loaded, rewards, rewards[0], scorer)
        assert note == "the rewards pay 16 golds in full, and neither empty nor senseless answers"
        rows = [loaded.train[number] for number in range(40)]
        completions = [[{"role": "assistant", "content": loaded.gold(row)}] for row in rows]  # type: ignore[misc]
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        assert scorer.score([row["prompt"] for row in rows], completions, columns).values == [[1.0, 1.0]] * 40


def test_the_golds_of_gsm8k_earn_all_rewards_in_both_styles(gsm8k_folder: Path) -> None:
    from rlvr.scoring.registry import load_task

    rewards = load_rewards([RewardSpec("math_correctness"), RewardSpec("answer_format")])
    for style in ("text", "chat"):
        spec = TaskSpec("gsm8k", {"path": str(gsm8k_folder), "style": style, "shots": 0})
        recipe = Recipe(Path("r.yaml"), spec, (RewardSpec("r"),), None, {"on_reward_error": "raise"})
        with Scorer(rewards) as scorer:
            [note] = try_rewards(recipe, load_task(spec), rewards, rewards[0], scorer)
        assert note == "the rewards pay 16 golds in full, and neither empty nor senseless answers"
