"""Choose a recipe's metrics: for each task, the reward that decides whether an answer is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec, RewardSpec
from rlvr.scoring.registry import load_reward
from rlvr.scoring.reward import Metrics, Reward, metrics_of


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
