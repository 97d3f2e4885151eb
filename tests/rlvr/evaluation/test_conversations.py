"""Evaluation with environments: the conversations of training, kept, repeated and scored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.config.recipe import Recipe
from rlvr.config.specs import EnvironmentSpec, EvaluationSpec, RewardSpec, TaskSpec
from rlvr.data.task import Task
from rlvr.evaluation.conversations import open_player
from rlvr.evaluation.engines import Completion, Decoding
from rlvr.evaluation.evaluated_model import EvaluatedModel
from rlvr.evaluation.evaluation_file import write_evaluation
from rlvr.evaluation.measured import greedy_decoding
from rlvr.modeling import loading
from rlvr.reward_audit.completions import read_completions
from rlvr.scoring.metric_choice import choose_metrics
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import Scorer
from rlvr.training.train import TrainingError
from tests.rlvr.environments.test_training import HOSTILE_TURNS, build, check_hostile_turns, table, train
from tests.rlvr.training.test_train import BASE
from tests.support.tool_model import Script, call, follow, write_tool_model

COUNTER = EnvironmentSpec("tests/support/counting.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tool_model(tmp_path_factory.mktemp("model"))


class ScriptedEngine:
    """An engine whose turns a script writes."""

    def __init__(self, tokenizer: Any, script: Script) -> None:
        self.tokenizer, self.script = tokenizer, script
        self.turns = 0
        self.seen: list[str] = []

    def complete(self, prompts: Sequence[list[int]], decoding: Decoding, seed: int) -> list[Completion]:
        self.turns += len(prompts)
        completions = []
        for ids in prompts:
            self.seen.append(self.tokenizer.decode(ids))
            turn = self.tokenizer(self.script(self.seen[-1]) + "<|im_end|>")["input_ids"]
            cut = turn[: decoding.max_new_tokens]
            text = self.tokenizer.decode(cut, skip_special_tokens=True)
            completions.append(Completion(text, len(cut), len(cut) == len(turn), cut))
        return completions

    def close(self) -> None: ...


def by_target(text: str) -> str:
    """Turns that depend on the conversation alone."""
    if "to 3." in text:  # the right number at once
        return call("add", number=3) if "<tool_response>" not in text else "The count is right."
    if "to 4." in text:  # calls without end
        return call("add", number=1)
    if "to 5." in text:  # two calls in one turn, a tool that is missing, and one that raises
        two = call("add", number=2) + call("add", number=3)
        turns = [two, call("subtract", number=1), call("misbehave", how="raise"), "Done."]
        return turns[min(text.count("<|im_start|>assistant") - 1, 3)]
    return "x" * 700  # cut by the length


@pytest.mark.slow
def test_an_evaluation_has_the_conversations_of_training(tmp_path: Path, model: Path) -> None:
    columns = {"target": [3, 4, 5, 6]}
    trainer, recipe = build(
        tmp_path,
        model,
        columns,
        max_tool_calling_iterations=3,
        per_device_train_batch_size=16,
        generation_batch_size=16,
        num_generations=4,
        shuffle_dataset=False,
    )
    follow(trainer, by_target)
    with pytest.raises(TrainingError, match="same reward"):  # the rollouts of a group are alike
        train(trainer, recipe)
    trainer.end_rollouts()
    trained = {row["prompt"][-1]["content"]: row for row in table(tmp_path)}
    tokenizer = loading.load_tokenizer(recipe, chat=True)
    rows = [{"prompt": [{"role": "user", "content": "Go."}], "target": target} for target in columns["target"]]
    keys = [(number, 0) for number in range(4)]
    with open_player(recipe, tokenizer, ["target"]) as player:
        assert player is not None
        played = player.play(ScriptedEngine(tokenizer, by_target), rows, keys, Decoding(600), seed=0)
        conversations = [completion.conversation for completion in played if completion.conversation is not None]
        environments = player.replay(rows, keys, conversations)
        assert [environment.count for environment in environments] == [3, 3, 105, 0]
    for conversation in conversations:
        row = trained[conversation.prompt[-1]["content"]]
        messages = [dict(message) for message in row["completion"]]
        assert [message["role"] for message in messages] == [message["role"] for message in conversation.messages]
        assert [message["content"] for message in messages] == [m.get("content") for m in conversation.messages]
        assert row["stopped"] == conversation.stopped
        made = json.loads(row["tool_seconds"])
        assert [value is None for value in made] == [value is None for value in conversation.tool_seconds]
    assert [conversation.stopped for conversation in conversations] == ["answer", "iterations", "answer", "length"]
    assert [completion.ended for completion in played] == [True, False, True, False]


def test_an_evaluation_reads_calls_as_training_does(model: Path) -> None:
    settings = {**BASE, "model_name_or_path": str(model)}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (), None, settings, environments=(COUNTER,))
    tokenizer = loading.load_tokenizer(recipe, chat=True)
    turns = iter(HOSTILE_TURNS)
    engine = ScriptedEngine(tokenizer, lambda text: "Done." if "<tool_response>\n" in text else next(turns))
    rows = [{"prompt": [{"role": "user", "content": "Go."}]}] * len(HOSTILE_TURNS)
    with open_player(recipe, tokenizer, []) as player:
        assert player is not None
        played = player.play(engine, rows, [(number, 0) for number in range(len(rows))], Decoding(1800), seed=0)
    check_hostile_turns(one.conversation.messages for one in played if one.conversation is not None)


def evaluated(tmp_path: Path, model: Path, targets: list[int], **evaluation: Any) -> tuple[Any, ...]:
    data = Dataset.from_dict({"prompt": [[{"role": "user", "content": "Go."}]] * len(targets), "target": targets})
    specs = (RewardSpec("environment"),)
    settings = {**BASE, "model_name_or_path": str(model), "max_completion_length": 690}
    settings |= {"max_tool_calling_iterations": 3, "chat_template_kwargs": {"enable_thinking": False}}
    recipe = Recipe(
        Path("r.yaml"), (TaskSpec("t"),), specs, EvaluationSpec(split="test"), settings, environments=(COUNTER,)
    )
    rewards = load_rewards(specs)
    tokenizer = loading.load_tokenizer(recipe, chat=True)
    engine = ScriptedEngine(tokenizer, by_target)
    task = Task(data, data, data)
    metrics = choose_metrics(recipe, rewards)
    with Scorer(rewards) as scorer:
        measured = EvaluatedModel(recipe, tokenizer, task, rewards, metrics, scorer, "base", tmp_path)
        measured._engine = engine
        result = measured.measure(greedy_decoding(task, recipe), "before", **evaluation)
    return (*result, engine)


@pytest.mark.slow
def test_an_evaluation_plays_scores_and_keeps_conversations(tmp_path: Path, model: Path) -> None:
    score, records, engine = evaluated(tmp_path, model, [3, 4, 5, 6, -1])
    assert [record["correct"] for record in records] == [True, False, False, False, None]
    assert (score.rows, score.unscored, score.cut_off) == (4, 1, 3 / 5)
    assert [len(record["completion"]) for record in records] == [3, 7, 8, 1, 1]
    assert records[0]["prompt"][-1]["content"] == "Go. Count from 0 to 3."
    assert engine.seen[0].endswith("<think>\n\n</think>\n\n"), "chat_template_kwargs"
    again, same_records, idle = evaluated(tmp_path, model, [3, 4, 5, 6, -1])
    assert idle.turns == 0 and same_records == records and again == score
    write_evaluation(tmp_path, {"split": "test", "metric": "environment"}, {"base": (score, records)})
    rows = read_completions(str(tmp_path / "completions" / "evaluation_base.parquet")).rows
    calls = rows[0]["completion"][0]["tool_calls"]
    assert json.loads(calls[0]["function"]["arguments"]) == {"number": 3}


def test_samples_of_a_row_are_rollouts_of_their_own(tmp_path: Path, model: Path) -> None:
    _, records, _ = evaluated(tmp_path, model, [3, 4], samples=2)
    assert [(record["row"], record["sample"], record["correct"]) for record in records] == [
        (0, 0, True),
        (0, 1, True),
        (1, 0, False),
        (1, 1, False),
    ]
