"""A run that was checked, with its resources open: what `rlvr.preflight.prepare.prepare_run` hands to the stages."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.artifacts.identity import Identity
from rlvr.artifacts.resumption import Resumption
from rlvr.config.batch_plan import BatchPlan
from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.environments.loading import Environment
from rlvr.errors import Problem
from rlvr.estimates import Estimate
from rlvr.scoring.reward import Metrics, Reward, file_of, metrics_of
from rlvr.scoring.scorer import Scorer

if TYPE_CHECKING:
    from accelerate import PartialState
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class PreparedRun:
    """A run without errors, its resources open.

    Attributes:
        recipe: with the engine of its rollouts in place of `auto`.
        metrics: the reward that decides whether an answer is right, by task.
        state: of the processes of this launch.
        identity, resumption: which run it is, and where it starts.
        scorer: with the workers of the rewards.
        scoring_versions: versions that scores depend on, beside the recipe.
        estimate: of memory and hours; None without a GPU.
        remarks: notes and warnings, in the order in which a person reads them.
    """

    recipe: Recipe
    task: Task
    rewards: list[Reward]
    metrics: Metrics
    tokenizer: PreTrainedTokenizerBase
    state: PartialState
    plan: BatchPlan
    identity: Identity
    resumption: Resumption
    scorer: Scorer
    scoring_versions: dict[str, str]
    estimate: Estimate | None
    remarks: tuple[Problem, ...]
    environments: tuple[Environment, ...] = ()

    def resolved_settings(self) -> dict[str, Any]:
        """What libraries derive from the recipe."""
        from rlvr.training import trl_config

        config = trl_config.training_config(self.recipe, self.rewards, self.task.stop_strings)
        return trl_config.resolved_settings(self.recipe, config)

    def source_files(self) -> dict[str, str | None]:
        """The files of the rewards, the metric and the environments, by label."""
        rewards = [*self.rewards, *metrics_of(self.metrics)]
        files = {reward.label: file_of(reward.function) for reward in rewards}
        modules = {one.label: sys.modules[one.cls.__module__] for one in self.environments}
        return {**files, **{f"environment {label}": module.__file__ for label, module in modules.items()}}
