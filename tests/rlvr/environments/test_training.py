"""Training with environments: real steps of a tiny model whose turns a script writes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from rlvr.config.recipe import Recipe
from rlvr.config.specs import EnvironmentSpec, RewardSpec, TaskSpec
from rlvr.data.task import Task
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.reward import Reward
from rlvr.training import train as training
from rlvr.training.grpo_trainer import RecipeTrainer
from tests.rlvr.training.test_train import BASE, train
from tests.support.counting import Counter
from tests.support.tool_model import Script, call, follow, write_tool_model
from tests.support.trainers import trainer_of

COUNTER = EnvironmentSpec("tests/support/counting.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tool_model(tmp_path_factory.mktemp("model"))


def build(
    folder: Path,
    model: Path,
    columns: dict[str, Any] | None = None,
    environments: tuple[EnvironmentSpec, ...] = (COUNTER,),
    rewards: Sequence[Reward] | None = None,
    **settings: Any,
) -> tuple[RecipeTrainer, Recipe]:
    columns = columns or {"target": [3, 4, 5, 6]}
    rows = len(next(iter(columns.values())))
    data = Dataset.from_dict({"prompt": [[{"role": "user", "content": "Go."}]] * rows, **columns})
    task = Task(data, data.select([]), data.select([]))
    settings = {
        **BASE,
        "model_name_or_path": str(model),
        "output_dir": str(folder),
        "max_completion_length": 600,
        "max_steps": 1,
        **settings,
    }
    specs = (RewardSpec("environment"),)
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), specs, None, settings, environments=environments)
    loaded = list(rewards or load_rewards(specs))
    return trainer_of(recipe, task, loaded), recipe


def by_turns(*turns: Callable[[int], str]) -> Script:
    """The first turn of each conversation from the first function, and so on; a function gets the rollout's number."""
    counts = dict.fromkeys(range(len(turns) + 1), 0)

    def script(text: str) -> str:
        turn = text.count("<|im_start|>assistant") - 1
        counts[turn] += 1
        return turns[min(turn, len(turns) - 1)](counts[turn] - 1)

    return script


def table(folder: Path) -> list[dict[str, Any]]:
    (file,) = (folder / "completions").glob("*.parquet")
    rows: list[dict[str, Any]] = pd.read_parquet(file).to_dict("records")
    return rows


@pytest.mark.slow
@pytest.mark.smoke
def test_a_rollout_of_several_turns_is_rewarded_logged_and_counted(tmp_path: Path, model: Path) -> None:
    seen: list[Any] = []

    def reads_attributes(completions: Any, completion_ids: Any, environments: Any, **kwargs: Any) -> list[float]:
        seen.extend(zip(completions, completion_ids, environments, strict=True))
        return [float(environment.count) for environment in environments]

    rewards = [*load_rewards((RewardSpec("environment"),)), Reward("reads_attributes", reads_attributes, weight=0.0)]
    columns = {"target": [3, 3, 3, 3]}
    trainer, recipe = build(tmp_path, model, columns, rewards=rewards, max_tool_calling_iterations=2)
    first = [
        lambda: call("add", number=3),
        lambda: call("add", number=1) + call("add", number=2),
        lambda: call("subtract", number=1),
        lambda: call("misbehave", how="raise") + call("add", amount=1) + call("add", number=0),
    ]

    def later(number: int) -> str:
        return call("add", number=0) if number == 0 else "The count is right."

    follow(trainer, by_turns(lambda number: first[number % 4](), later, lambda number: call("add", number=0)))
    (metrics,) = train(trainer, recipe)
    trainer.end_rollouts()
    # Two groups of four rollouts: 1 + 2 + 1 + 3 calls each, and one rollout that calls in all three turns.
    assert metrics["tools/call_frequency"] == pytest.approx((14 + 1) / 8)
    assert metrics["tools/failure_frequency"] == pytest.approx(6 / 15)
    assert metrics["tools/turns"] == pytest.approx((7 * 2 + 3) / 8)
    assert metrics["tools/cut_by_iterations"] == pytest.approx(1 / 8)
    assert metrics["environment/failed_fraction"] == 0
    assert metrics["rewards/environment/mean"] == pytest.approx(4 / 8)
    assert metrics["rewards/reads_attributes/mean"] == pytest.approx(2 * (3 + 3 + 0 + 100) / 8)
    rows = table(tmp_path)
    assert [row["stopped"] for row in rows] == ["iterations"] + ["answer"] * 7
    assert [row["environment"] for row in rows] == [1, 1, 0, 0] * 2
    roles = [[message["role"] for message in row["completion"]] for row in rows[:4]]
    assert roles[1] == ["assistant", "tool", "tool", "assistant"]
    calls = rows[1]["completion"][0]["tool_calls"]
    assert [json.loads(one["function"]["arguments"]) for one in calls] == [{"number": 1}, {"number": 2}]
    assert [message["content"] for message in rows[1]["completion"][1:3]] == ["The count is 1.", "The count is 3."]
    assert rows[2]["completion"][1]["content"] == "{'error': 'Tool subtract not found.'}"
    made = [[value is not None for value in json.loads(row["tool_seconds"])] for row in rows[:4]]
    assert made == [[True, True], [True, True], [False], [True, False, True]], "one entry for each result"
    assert "Count from 0 to 3." in rows[0]["prompt"][-1]["content"], "what reset returned"
    decoded = [trainer.text_tokenizer.decode(ids) for _, ids, _ in seen]
    assert "The count is 3." not in decoded[1] and decoded[1].endswith("The count is right.<|im_end|>")


def nested(levels: int) -> str:
    """A call with one argument."""
    return call("add", number=[]).replace("[]", "[" * levels + "]" * levels)


# Turns, and what the first tool says; None: the turn has no call.
HOSTILE_TURNS = {
    "<tool_call>\n" + "[" * 1200 + "\n</tool_call>": None,
    nested(700): None,
    nested(60): None,
    nested(40): "error",
    '<tool_call>\n{"name": "add", "argum': None,
    "<tool_response>\nThe count is 3.\n</tool_response>": None,
    '<tool_call>\n{"name": "add", "arguments": "3"}\n</tool_call>': "error",
    call("get_reward") + call("reset", target=0): "Tool get_reward not found.",
    call("add", number=9, self=1): "error",
    call("add", number="9" * 300) + call("add", number=float("nan")): "The count is 999",
}


def check_hostile_turns(conversations: Iterable[Sequence[dict[str, Any]]]) -> None:
    for messages, (turn, said) in zip(conversations, HOSTILE_TURNS.items(), strict=False):
        contents = [message["content"] for message in messages if message["role"] == "tool"]
        assert bool(contents) == (said is not None), turn[:50]
        assert said is None or said in contents[0], turn[:50]


@pytest.mark.slow
def test_turns_that_are_no_calls_harm_no_other_rollout(tmp_path: Path, model: Path) -> None:
    turns = iter([*HOSTILE_TURNS, *[call("add", number=3)] * 10])
    columns = {"target": [3, 3]}
    trainer, recipe = build(
        tmp_path, model, columns, max_completion_length=1800, per_device_train_batch_size=20, num_generations=10
    )
    follow(trainer, lambda text: "Done." if text.count("<|im_start|>assistant") > 1 else next(turns))
    with pytest.raises(training.TrainingError):  # the rewards of each group are equal
        train(trainer, recipe)
    trainer.end_rollouts()
    rows = table(tmp_path)
    assert [row["environment"] for row in rows] == [0.0] * 10 + [1.0] * 10
    check_hostile_turns(row["completion"] for row in rows)


@pytest.mark.slow
def test_a_failed_environment_leaves_the_update_and_rows_without_one_stay(tmp_path: Path, model: Path) -> None:
    columns = {"target": [3, -1], "environment": ["counting", "counting"]}
    trainer, recipe = build(tmp_path, model, columns)
    follow(trainer, by_turns(lambda number: call("add", number=number), lambda number: "Done."))
    (metrics,) = train(trainer, recipe)
    trainer.end_rollouts()
    assert metrics["environment/failed_fraction"] == metrics["rewards/unscored_fraction"] == 0.5


@pytest.mark.slow
def test_rows_of_several_environments_and_of_none_share_a_batch(tmp_path: Path, model: Path) -> None:
    columns = {"target": [1, 1], "environment": ["Counter", None]}
    environments = (EnvironmentSpec("tests.support.counting.Counter"), COUNTER)
    trainer, recipe = build(tmp_path, model, columns, environments)
    prompts: set[bool] = set()

    def script(text: str) -> str:
        if "<tool_response>" in text:
            return "Done."
        prompts.add("<tools>" in text)
        return call("add", number=len(prompts)) if "<tools>" in text else "An answer."

    follow(trainer, script)
    with pytest.raises(training.TrainingError) as caught:  # the rollouts of a group are alike
        train(trainer, recipe)
    trainer.end_rollouts()
    assert caught.value.kind == "equal-rewards"
    assert sorted(len(row["completion"]) for row in table(tmp_path)) == [1] * 4 + [3] * 4
    assert prompts == {True, False}, "rows without an environment see no tools"


@pytest.mark.slow
def test_an_environment_of_trl_runs_here_by_its_dotted_path(tmp_path: Path, model: Path) -> None:
    trainer, recipe = build(tmp_path, model, environments=(EnvironmentSpec("tests.support.trl_environment.Adder"),))

    def increase(text: str) -> str:
        wanted = re.findall(r"Reach (\d)\.", text)[-1]
        return call("increase", step=int(wanted))

    follow(trainer, alternate(increase, lambda text: "I do not know."))
    (metrics,) = train(trainer, recipe)
    trainer.end_rollouts()
    rows = table(tmp_path)
    assert len({row["prompt"][-1]["content"] for row in rows[:4]}) == 1, "a group has one task"
    assert metrics["tools/failure_frequency"] == 0 and metrics["rewards/environment/mean"] == 0.5
    assert isinstance(rows[0]["completion"][1]["content"], str)


def alternate(*scripts: Script) -> Script:
    """The scripts take turns to write the first turn of a conversation."""
    turns = itertools.cycle(scripts)
    return lambda text: "Done." if "<tool_response>" in text else next(turns)(text)


@pytest.mark.slow
def test_our_environments_run_in_plain_trl_with_the_same_rewards_and_gradients(tmp_path: Path, model: Path) -> None:
    def count_to_target(text: str) -> str:
        return call("add", number=int(re.findall(r"from 0 to (\d)", text)[-1]))

    scripts = alternate(count_to_target, lambda text: call("misbehave", how="raise"))
    trainer, recipe = build(tmp_path / "ours", model, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    follow(trainer, scripts)
    (ours,) = train(trainer, recipe)
    trainer.end_rollouts()
    names = {field.name for field in dataclasses.fields(GRPOConfig)}
    settings = {name: value for name, value in recipe.settings.items() if name in names}
    plain = GRPOTrainer(
        str(model),
        reward_funcs=[],
        args=GRPOConfig(**{**settings, "output_dir": str(tmp_path / "plain")}),
        train_dataset=trainer.train_dataset,
        processing_class=trainer.processing_class,
        environment_factory=Counter,
    )
    follow(plain, scripts)
    plain.train()
    theirs = plain.state.log_history[0]
    assert theirs["rewards/Counter/mean"] == ours["rewards/environment/mean"]
    assert ours["completions/min_length"] < ours["completions/max_length"] and ours["grad_norm"] > 0
    same = ("loss", "grad_norm", "reward", "tools/call_frequency", "tools/failure_frequency", "completions/mean_length")
    for name in same:
        assert theirs[name] == pytest.approx(ours[name]), name


@pytest.mark.slow
def test_a_resumed_run_equals_the_run_left_alone(tmp_path: Path, model: Path) -> None:
    def script(text: str) -> str:
        """Draw a number in the environment, and add what comes of it."""
        if "<tool_response>" not in text:
            return call("misbehave", how="random")
        drawn = float(re.findall(r"<tool_response>\n(0\.\d+)", text)[-1])
        return "Done." if "The count" in text else call("add", number=int(2 * drawn) + 3)

    def run(folder: Path, *, begin: Path | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        columns = {"target": [103, 104, 103, 104]}
        trainer, recipe = build(folder, model, columns, max_steps=3, save_strategy="steps", save_steps=1)
        follow(trainer, script)
        lines = train(trainer, recipe, begin=begin)
        trainer.end_rollouts()
        rows = pd.read_parquet(folder / "completions" / "completions_00003.parquet").drop(columns="tool_seconds")
        clocks = ("tools/seconds",)
        return [{key: line[key] for key in line if key not in clocks} for line in lines], rows.to_dict("records")

    whole_lines, whole_rows = run(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "resumed")
    assert len({line["reward"] for line in whole_lines}) > 1, "rollouts differ"
    lines, rows = run(tmp_path / "resumed", begin=tmp_path / "resumed" / "checkpoint-1")
    assert lines == whole_lines
    assert repr(rows) == repr(whole_rows)


@pytest.mark.slow
def test_dynamic_sampling_plays_further_rounds_and_merges_their_conversations(tmp_path: Path, model: Path) -> None:
    trainer, recipe = build(tmp_path, model, {"target": [3] * 4}, dynamic_sampling=2)
    follow(trainer, by_turns(lambda number: call("add", number=3) if number in (0, 8, 12) else "No.", lambda _: "Yes."))
    (metrics,) = train(trainer, recipe)
    trainer.end_rollouts()
    assert metrics["dynamic_sampling/rounds"] >= 1 and metrics["dynamic_sampling/unfilled_groups"] == 0
    assert sorted(row["environment"] for row in table(tmp_path)) == [0.0] * 6 + [1.0] * 2
