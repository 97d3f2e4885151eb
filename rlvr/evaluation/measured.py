"""What an evaluation measures by the recipe: the reward that decides, the rows, and how they are decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlvr.config.recipe import Recipe, value_of
from rlvr.config.specs import EvaluationSpec, RewardSpec
from rlvr.data.task import Task
from rlvr.evaluation.engines import Decoding, sampling_settings
from rlvr.scoring.registry import load_reward
from rlvr.scoring.reward import Metrics, Reward, metrics_of

if TYPE_CHECKING:
    from datasets import Dataset


def choose_metrics(recipe: Recipe, rewards: Sequence[Reward]) -> Metrics:
    """Choose the reward that decides whether an answer is right, for each task."""
    labels, named = [task.label for task in recipe.tasks], (recipe.evaluation or EvaluationSpec()).metric
    names = named if isinstance(named, Mapping) else dict.fromkeys(labels, named)
    metrics = {label: _choose(names.get(label), [one for one in rewards if one.applies(label)]) for label in labels}
    # One that is none of the recipe's rewards is called with the rows that it decides alone.
    for label, metric in metrics.items() if recipe.is_mixture else ():
        if metric not in rewards:
            own = tuple(other for other in labels if metrics[other].name == metric.name)
            metrics[label] = replace(metric, applies_to=own)
    return metrics


def _choose(name: str | None, rewards: Sequence[Reward]) -> Reward:
    """The reward of this name; without a name, the one with the largest weight."""
    name = name or max(rewards, key=lambda reward: reward.weight).name
    for reward in rewards:
        if name in (reward.name, reward.label):
            return reward
    return load_reward(RewardSpec(name))


def rewards_to_run(rewards: Sequence[Reward], metrics: Metrics) -> list[Reward]:
    """List the rewards that an evaluation needs: the recipe's, and a metric that is none of them."""
    return [*rewards, *(reward for reward in metrics_of(metrics) if reward not in rewards)]


def held_out_rows(task: Task, recipe: Recipe) -> Dataset:
    """The first rows of the split, or of each task's, as many as the recipe's section `evaluation` asks for."""
    spec = recipe.evaluation or EvaluationSpec()
    data = task.split(spec.split)
    if spec.rows is None:
        return data
    rows: list[int] = []
    start = 0
    for length in [len(part.split(spec.split)) for part in task.parts.values()]:
        rows += range(start, start + min(spec.rows, length))
        start += length
    return data.select(rows)


def greedy_decoding(task: Task, recipe: Recipe) -> Decoding:
    """Greedy decoding as the recipe's section `evaluation` says."""
    spec = recipe.evaluation or EvaluationSpec()
    max_new_tokens = spec.max_new_tokens or recipe.value("max_completion_length")
    return Decoding(max_new_tokens, tuple(task.stop_strings), seed=int(recipe.value("seed")))


def training_decoding(task: Task, recipe: Recipe) -> Decoding:
    """Sampling as in training."""
    settings = recipe.settings
    sampling = {**sampling_settings(recipe), **(settings.get("generation_kwargs") or {})}
    max_new_tokens = value_of(settings, "max_completion_length")
    return Decoding(max_new_tokens, tuple(task.stop_strings), sampling, seed=int(value_of(settings, "seed")))
