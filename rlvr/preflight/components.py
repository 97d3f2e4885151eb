"""The components of a run, loaded once: everything but weights, worker processes and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from rlvr import estimates
from rlvr.config.batch_plan import BatchPlan, plan_batches
from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.environments.loading import Environment, load_environments
from rlvr.modeling import loading
from rlvr.preflight.prompt_lengths import PromptLengths, measure_prompts
from rlvr.scoring.metric_choice import choose_metrics
from rlvr.scoring.registry import load_reward, load_rewards, load_tasks
from rlvr.scoring.reward import Metrics, Reward, metrics_of
from rlvr.training import launch

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Attempt = Callable[[Callable[[], Any], str], Any]


@dataclass(frozen=True)
class TargetMachine:
    """The machine that a recipe will run on, for a check on another machine. All None: this machine."""

    world_size: int | None = None
    machine: str | None = None
    launcher: str | None = None

    @property
    def is_here(self) -> bool:
        return self == TargetMachine()

    def processes(self) -> int | None:
        """The number of processes: as given, or one per GPU of the machine; None if neither is known."""
        if self.world_size is not None or self.machine is None:
            return self.world_size
        return estimates.find_machine(self.machine).gpus or None


@dataclass(frozen=True)
class RunComponents:
    """What the checks look at. A component is None if it could not be loaded.

    Attributes:
        recipe, target: what runs where.
        processes: how many train together.
        environments: those of the recipe.
        metrics: the reward that decides whether an answer is right, by task.
        config: the model's configuration.
    """

    recipe: Recipe
    target: TargetMachine = TargetMachine()
    processes: int = 1
    task: Task | None = None
    rewards: Sequence[Reward] | None = None
    metrics: Metrics | None = None
    tokenizer: PreTrainedTokenizerBase | None = None
    config: PretrainedConfig | None = None
    environments: Sequence[Environment] | None = ()

    @property
    def settings(self) -> Any:
        """The flat keys of the recipe."""
        return self.recipe.settings

    @property
    def train(self) -> Dataset | None:
        """The training rows; None if there are none, or none with prompts."""
        train = self.task.train if self.task is not None else None
        return train if train is not None and len(train) and "prompt" in train.column_names else None

    @property
    def all_rewards(self) -> list[Reward]:
        """The rewards that could be loaded, and the metric, each once."""
        rewards = [*(self.rewards or []), *(metrics_of(self.metrics) if self.metrics is not None else [])]
        return [reward for place, reward in enumerate(rewards) if reward not in rewards[:place]]

    @property
    def tasks(self) -> list[tuple[str, Task]]:
        """The tasks of the recipe, each with its label, or with the name of the only one."""
        assert self.task is not None
        return [(label or self.recipe.task_name, part) for label, part in self.task.parts.items()]

    @cached_property
    def prompt_lengths(self) -> PromptLengths | None:
        """The lengths of the prompts; None without rows, tokenizer, configuration and tools that can be described."""
        if self.train is None or self.task is None or self.tokenizer is None or self.config is None:
            return None
        tools = {}
        if self.environments:
            from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException

            try:
                tools = {environment.label: environment.tool_schemas() for environment in self.environments}
            except (DocstringParsingException, TypeHintParsingException):
                return None  # environment_checks.check_tools reports it
        return measure_prompts(self.recipe, self.task, self.tokenizer, self.config, tools)

    @cached_property
    def plan(self) -> BatchPlan | None:
        """The plan of the run; None if the rows make no whole generation."""
        if self.train is None:
            return None
        longest = self.prompt_lengths.longest if self.prompt_lengths is not None else None
        return plan_batches(self.recipe, len(self.train), self.processes, longest)

    def estimate(self, recipe: Recipe) -> estimates.Estimate | None:
        """Memory and hours of the recipe on the target machine, or on this one; None without rows, model or GPU."""
        plan, target = self.plan, self.target
        machine = estimates.find_machine(target.machine) if target.machine else estimates.this_machine()
        on_cpu = recipe.settings.get("use_cpu") and not target.machine
        if on_cpu or machine is None or self.config is None or plan is None:
            return None
        return estimates.estimate(
            recipe,
            self.config,
            plan.processes,
            target.launcher or launch.launcher(),
            machine,
            prompt_tokens=plan.longest_prompt or 0,
            steps=plan.steps,
        )


def load_components(
    recipe: Recipe,
    target: TargetMachine,
    processes: int,
    attempt: Attempt,
    *,
    with_model: bool = True,
    with_metric: bool = True,
) -> RunComponents:
    """Load the components, each whether or not the others could be loaded.

    Args:
        attempt: calls a function and returns its result, or records its InputError, which is about a section of the
            recipe, and returns None (`Findings.attempt`).
        with_model: whether to load the tokenizer and the model's configuration.
        with_metric: whether to choose the metric, which needs a right reward for each task.
    """
    each = [attempt(partial(load_reward, spec), f"rewards.{spec.name}") for spec in recipe.rewards]
    rewards = attempt(lambda: load_rewards(recipe.rewards), "rewards") if None not in each else None
    task = attempt(lambda: load_tasks(recipe.tasks), "tasks" if recipe.is_mixture else "task.name")
    environments = attempt(lambda: load_environments(recipe.environments), "environment")
    metrics = tokenizer = config = None
    if rewards is not None and with_metric:
        metrics = attempt(lambda: choose_metrics(recipe, rewards), "evaluation.metric")
    if with_model:
        tokenizer = attempt(lambda: loading.load_tokenizer(recipe, chat=task is not None and task.is_chat), "")
        config = attempt(lambda: loading.load_config(recipe), "")
    return RunComponents(recipe, target, processes, task, rewards, metrics, tokenizer, config, environments)
