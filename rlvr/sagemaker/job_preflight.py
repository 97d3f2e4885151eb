"""Preflight of a recipe for the hosts of its job.

It runs run_grpo.py's checks and estimates on a machine that may have neither the GPUs nor the model. What can't be
checked without the network becomes a note.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from huggingface_hub import try_to_load_from_cache

from rlvr.config.recipe import Recipe
from rlvr.config.sagemaker import SageMakerSettings
from rlvr.errors import InputError, Problem
from rlvr.estimates import Estimate
from rlvr.estimates.machines import INSTANCES
from rlvr.modeling.loading import find_model
from rlvr.sagemaker import request

_WITHOUT_BF16 = ("p2", "p3", "p3dn", "g4dn", "g5g")  # families with GPUs older than Ampere: K80, V100, T4
# What could not be loaded, by the section that `load_components` names.
_SECTIONS = {"task.name": "the data", "": "the model"}


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
    # Seconds of imports, which other commands of sagemaker.py don't need.
    from rlvr.preflight.check import check_components
    from rlvr.preflight.compatibility import emulated_bf16
    from rlvr.preflight.components import TargetMachine, load_components
    from rlvr.training import trl_config

    problems: list[Problem] = []
    notes: list[str] = []

    def attempt(load: Callable[[], Any], section: str) -> Any:
        try:
            return load()
        except InputError as error:
            if error.kind == "file-not-found" and section == "task.name" and "train" in settings.channels:
                notes.append("not checked: the data, of which this machine has no copy.")
            elif error.kind == "hub-unreachable":
                notes.append(_not_checked(_SECTIONS.get(section, "the reward")))
            else:
                problems.extend(error.problems)
            return None

    processes, train, is_loadable = request.count_processes(settings), settings.train_group, _is_loadable(recipe)
    assert train is not None  # the plan requires it
    if not is_loadable:
        notes.append(_not_checked("the model, nor whether it fits the machine"))
    process_count = processes or train.instance_count
    on_cpus = recipe.settings.get("use_cpu")
    machine = train.instance_type if train.instance_type in INSTANCES and not on_cpus else None
    target = TargetMachine(process_count, machine, request.launcher_of(settings))
    components = load_components(recipe, target, process_count, attempt, with_model=is_loadable)
    task, config, tokenizer = components.task, components.config, components.tokenizer
    if components.rewards:
        notes.append(
            "not checked: the scores of the rewards. run_grpo.py --check tries them here, and the job before training."
        )
    findings = check_components(components)
    problems += findings.errors
    is_old = train.instance_type.removeprefix("ml.").split(".")[0] in _WITHOUT_BF16
    lines = [str(problem) for problem in emulated_bf16(recipe.settings, train.instance_type) if is_old]
    estimate: Estimate | None = None
    plan = components.plan if not findings.errors else None
    if task is not None and plan is not None:
        remarks = [problem for problem in findings.problems if problem.level != "error"]
        lines += [*task.notes, *plan.lines(), *map(str, remarks)]
    if task is not None and config is not None and tokenizer is not None and plan is not None and not problems:
        attempt(lambda: trl_config.check_config(recipe, task.stop_strings, elsewhere=process_count), "")
        if not machine and not on_cpus:
            notes.append(
                f"not checked: memory and bfloat16, since the GPUs of {train.instance_type} are not known here."
            )
        estimate = components.estimate(recipe) if machine and processes is not None else None
        if estimate is not None:
            lines += estimate.lines()
            if estimate.is_far_over and not settings.ignore_estimate:
                message = (
                    f"{train.instance_type}: the run needs clearly more memory than there is, by the estimate above. "
                    "Change what it lists, take a larger instance, or set sagemaker.ignore_estimate: true."
                )
                problems.append(Problem(message, kind="does-not-fit", key="sagemaker.instance_type"))
    return PreflightResult(tuple(problems), tuple(dict.fromkeys(notes)), tuple(lines), processes, estimate)


def _not_checked(what: str) -> str:
    return f"not checked: {what}, not on this machine. The Hugging Face hub was not asked (--hub) or not reached."


def _is_loadable(recipe: Recipe) -> bool:
    """Whether the model is on this machine or the hub may be asked. It avoids the 4-second import of transformers."""
    try:
        name = find_model(str(recipe.settings["model_name_or_path"]))
    except InputError:
        return True  # loading it raises this error again
    if os.environ.get("HF_HUB_OFFLINE", "0") in ("", "0") or os.path.isdir(name):
        return True
    revision = recipe.settings.get("model_revision")
    return isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str)
