"""Trainers of a run that was not prepared: without the checks, an estimate or a checkpoint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from rlvr.artifacts.identity import Identity
from rlvr.artifacts.resumption import Resumption
from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.environments.loading import load_environments
from rlvr.modeling.loading import load_tokenizer
from rlvr.scoring.reward import Reward
from rlvr.scoring.scorer import Scorer
from rlvr.training.grpo_trainer import RecipeTrainer
from rlvr.training.prepared_run import PreparedRun
from rlvr.training.train import build_trainer


def trainer_of(recipe: Recipe, task: Task, rewards: list[Reward]) -> RecipeTrainer:
    """A trainer whose metric is the first reward."""
    prepared = PreparedRun(
        recipe,
        task,
        rewards,
        {"": rewards[0]},
        load_tokenizer(recipe, chat=not isinstance(task.train["prompt"][0], str)),
        state=cast(Any, None),
        plan=cast(Any, SimpleNamespace(steps=recipe.settings["max_steps"])),
        identity=Identity.of(recipe, task.train, 1, "python"),
        resumption=Resumption(),
        scorer=Scorer(rewards),
        scoring_versions={},
        estimate=None,
        remarks=(),
        environments=load_environments(recipe.environments),
    )
    return build_trainer(prepared)


def without_clock(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what a clock says."""
    return [
        {key: value for key, value in line.items() if key not in ("time", "step_time") and not key.startswith("time/")}
        for line in lines
    ]
