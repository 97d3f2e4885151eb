"""What a run is made of but for weights, loaded so that what is wrong with one part hides nothing of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.modeling import loading
from rlvr.scoring.registry import load_reward, load_rewards, load_task
from rlvr.scoring.reward import Reward

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Attempt = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True)
class RunComponents:
    """Task, rewards and metric (the reward that decides whether an answer is right), tokenizer and configuration.

    Each is None where it could not be loaded.
    """

    task: Task | None
    rewards: list[Reward] | None
    metric: Reward | None
    tokenizer: PreTrainedTokenizerBase | None
    config: PretrainedConfig | None


def load_parts(recipe: Recipe, attempt: Attempt) -> RunComponents:
    """Loads them.

    Args:
        attempt: calls what it is given and returns what that returns, or notes the InputError and returns None
            (`FaultCollector.attempt`).
    """
    from rlvr.evaluation import metric_of

    rewards = attempt(lambda: load_rewards(recipe.rewards))
    if rewards is None:
        for spec in recipe.rewards[1:]:
            attempt(partial(load_reward, spec))
    task = attempt(lambda: load_task(recipe.task))
    metric = attempt(lambda: metric_of(recipe.evaluation, rewards)) if rewards is not None else None
    tokenizer = attempt(lambda: loading.load_tokenizer(recipe, chat=task is not None and task.is_chat))
    config = attempt(lambda: loading.load_config(recipe))
    return RunComponents(task, rewards, metric, tokenizer, config)
