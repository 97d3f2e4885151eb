"""Preflight of a recipe for the hosts of its job.

It runs run_grpo.py's checks and estimates on a machine that may have neither the GPUs nor the model. What can't be
checked without the network becomes a note.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rlvr.config.recipe import Recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.errors import InputError, Problem
from rlvr.estimates.machines import INSTANCES
from rlvr.sagemaker import request

if TYPE_CHECKING:
    from rlvr.estimates import Estimate

Component = TypeVar("Component")

# Exceptions of the hub's client and of requests, anywhere in the chain, that mean a missing network.
_UNREACHABLE = {
    "OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "ConnectError", "ConnectTimeout",
    "ReadTimeout", "ProxyError", "MaxRetryError", "NameResolutionError", "OfflineModeError",
}  # fmt: skip


@dataclass(frozen=True)
class PreflightResult:
    """Result of a preflight.

    Attributes:
        notes: what was not checked.
        lines: the run in numbers, and its estimate.
        processes: None if the instance type's GPUs are unknown.
        estimate: None if the model or the machine is unknown.
    """

    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    lines: tuple[str, ...]
    processes: int | None
    estimate: Estimate | None


def check_for_hosts(recipe: Recipe, settings: SageMakerSettings) -> PreflightResult:
    """Check a recipe for the hosts of its section. The hub is asked only if the environment allows it."""
    from rlvr.evaluation import choose_metric
    from rlvr.modeling import loading
    from rlvr.preflight.check import check_components
    from rlvr.preflight.components import RunComponents, TargetMachine
    from rlvr.scoring.registry import load_rewards, load_task
    from rlvr.training import trl_config

    problems: list[Problem] = []
    notes: list[str] = []
    processes = count_processes(settings)

    def load(what: str, loader: Callable[[], Component]) -> Component | None:
        try:
            return loader()
        except InputError as error:
            if _is_unreachable(error):
                notes.append(_not_checked(what))
            else:
                problems.extend(error.problems)
            return None

    train = settings.train_group
    assert train is not None  # the plan requires it
    rewards = load("the reward", lambda: load_rewards(recipe.rewards))
    task = load("the data", lambda: load_task(recipe.task))
    metric = load("the metric", lambda: choose_metric(recipe.evaluation, rewards)) if rewards is not None else None
    tokenizer = None
    if _is_loadable(recipe):
        chat = task is not None and task.is_chat
        tokenizer = load("the model", lambda: loading.load_tokenizer(recipe, chat=chat))
    else:
        notes.append(_not_checked("the model"))
    config = load("the model", lambda: loading.load_config(recipe)) if tokenizer is not None else None
    process_count = processes or train.instance_count
    target = TargetMachine(process_count, launcher=request.launcher_of(settings))
    components = RunComponents(recipe, target, process_count, task, rewards, metric, tokenizer, config)
    findings = check_components(components)
    problems += findings.errors
    lines: list[str] = []
    estimate = None
    plan = components.plan if not findings.errors else None
    if task is not None and plan is not None:
        remarks = [problem for problem in findings.problems if problem.level != "error"]
        lines += [*task.notes, *plan.lines(), *map(str, remarks)]
    if config is not None and tokenizer is not None and plan is not None and not problems:
        stop_strings = task.stop_strings if task is not None else ()
        load("the recipe", lambda: trl_config.check_config(recipe, stop_strings, elsewhere=process_count))
        machine = INSTANCES.get(train.instance_type)
        if machine is not None and processes is not None and not recipe.settings.get("use_cpu"):
            from rlvr import estimates

            estimate = estimates.estimate(
                recipe,
                config,
                processes,
                request.launcher_of(settings),
                machine,
                prompt_tokens=plan.longest_prompt or 0,
                steps=plan.steps,
            )
            lines += estimate.lines()
    return PreflightResult(tuple(problems), tuple(dict.fromkeys(notes)), tuple(lines), processes, estimate)


def _not_checked(what: str) -> str:
    return f"not checked: {what}, not on this machine. The Hugging Face hub was not asked (--hub) or not reached."


def count_processes(settings: SageMakerSettings) -> int | None:
    """Number of training processes: one per GPU, or one per host without GPUs; None if the GPUs are unknown."""
    train = settings.train_group
    if train is None:
        return None
    if request.launcher_of(settings) == "cpu":
        return train.instance_count
    machine = INSTANCES.get(train.instance_type)
    return machine.gpus * train.instance_count if machine is not None else None


def _is_loadable(recipe: Recipe) -> bool:
    """Whether the model is on this machine or the hub may be asked. It avoids the 4-second import of transformers."""
    from rlvr.modeling.loading import find_model

    try:
        name = find_model(str(recipe.settings["model_name_or_path"]))
    except InputError:
        return True  # loading it raises this error again
    if os.environ.get("HF_HUB_OFFLINE", "0") in ("", "0") or os.path.isdir(name):
        return True
    from huggingface_hub import try_to_load_from_cache

    revision = recipe.settings.get("model_revision")
    return isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str)


def _is_unreachable(error: BaseException | None) -> bool:
    while error is not None:
        if {base.__name__ for base in type(error).__mro__} & _UNREACHABLE:
            return True
        error = error.__cause__ or error.__context__
    return False
