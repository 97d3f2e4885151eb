"""What a run is made of but for weights, loaded with every fault said at once: a missing model hides no bad reward."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rlvr import launch, model
from rlvr.errors import InputError
from rlvr.plugins import load_reward, load_rewards, load_task
from rlvr.preflight.arithmetic import arithmetic_faults
from rlvr.preflight.combinations import combination_faults, waiting_faults
from rlvr.preflight.data import data_faults
from rlvr.preflight.targets import target_faults
from rlvr.preflight.versions import version_faults
from rlvr.recipe import Recipe
from rlvr.rewarding import Reward
from rlvr.task import Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Part = TypeVar("Part")


class Parts(NamedTuple):
    """Task, rewards and metric (the reward that decides whether an answer is right), tokenizer and configuration."""

    task: Task
    rewards: list[Reward]
    metric: Reward
    tokenizer: PreTrainedTokenizerBase
    config: PretrainedConfig


def load_parts(recipe: Recipe, processes: int | None = None, *, here: bool = True) -> Parts:
    """Loads them.

    Args:
        processes: how many will train together; None for those of this launch.
        here: as `check`'s.

    Raises:
        InputError: with what is wrong with any of them; and then also with what `check` would say of the others.
    """
    from rlvr.evaluation import metric_of

    faults: list[str] = []

    def attempt(load: Callable[[], Part]) -> Part | None:
        try:
            return load()
        except InputError as error:
            faults.extend([] if str(error) in faults else [str(error)])  # a model that isn't there is missed twice
            return None

    rewards = attempt(lambda: load_rewards(recipe.rewards))
    if rewards is None:
        for spec in recipe.rewards[1:]:
            attempt(lambda spec=spec: load_reward(spec))  # type: ignore[misc]
    task = attempt(lambda: load_task(recipe.task))
    metric = attempt(lambda: metric_of(recipe.evaluation, rewards)) if rewards is not None else None
    tokenizer = attempt(lambda: model.load_tokenizer(recipe, chat=task is not None and task.is_chat))
    config = attempt(lambda: model.load_config(recipe))
    if not faults:
        assert task and rewards and metric and tokenizer is not None and config is not None
        return Parts(task, rewards, metric, tokenizer, config)
    processes = processes or int(os.environ.get("WORLD_SIZE", "1"))
    faults += [
        *version_faults(),
        *combination_faults(recipe, config, here=here),
        *target_faults(recipe, config),
        *waiting_faults(recipe, processes),
        *launch.launch_faults(recipe, here=here),
    ]
    if task is not None:
        found = list(rewards or [])
        unusable = data_faults(recipe, task, found if metric is None or metric in found else [*found, metric])
        faults += unusable or arithmetic_faults(recipe, len(task.train), processes)
    raise InputError("\n".join(faults))
