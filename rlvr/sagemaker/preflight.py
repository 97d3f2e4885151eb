"""The preflight of a recipe for the hosts that it is meant for, on a machine that may be quite another.

What run_grpo.py checks before it loads a weight, and the estimate of memory, hours and dollars. Without the network the
model's configuration or the data may not be here: what then can't be checked is said, and all else is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rlvr.config.recipe import Recipe
from rlvr.config.sagemaker import InstanceGroup, SageMakerSettings
from rlvr.errors import InputError
from rlvr.estimates.machines import INSTANCES, PRICES_READ
from rlvr.sagemaker import request

if TYPE_CHECKING:
    from rlvr.estimates import Estimate

Part = TypeVar("Part")

# What the hub's client and requests raise, somewhere in the chain, when it is the network that is missing.
_UNREACHABLE = {
    "OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "ConnectError", "ConnectTimeout",
    "ReadTimeout", "ProxyError", "MaxRetryError", "NameResolutionError", "OfflineModeError",
}  # fmt: skip

# Dollars an hour of hosts without GPUs, on demand in us-east-1 as those of rlvr/estimates/machines.py: read in
# 2026-11 from the tables of several public projects, which agree to the cent. For ml.c7i.* no two were found that do.
_CPU_PRICES = {
    "ml.m5.large": 0.115,
    "ml.m5.xlarge": 0.230,
    "ml.m5.2xlarge": 0.461,
    "ml.m5.4xlarge": 0.922,
    "ml.m5.12xlarge": 2.765,
    "ml.m5.24xlarge": 5.530,
}

_NOT_CHECKED = (
    "not checked: {what} not on this machine, and the Hugging Face hub was not asked or not reached (--hub asks it)"
)


@dataclass(frozen=True)
class Rehearsal:
    """What the preflight found.

    Attributes:
        faults, notes, lines: sentences; `lines` are the plan of the run and its estimate.
        processes: how many train together; None where the GPUs of the instance type aren't known.
        estimate: None where the model or the machine isn't known.
    """

    faults: tuple[str, ...]
    notes: tuple[str, ...]
    lines: tuple[str, ...]
    processes: int | None
    estimate: Estimate | None


def rehearse(recipe: Recipe, settings: SageMakerSettings) -> Rehearsal:
    """Checks a recipe for the hosts of its section; asks the hub only where the environment allows it."""
    from rlvr.evaluation import choose_metric
    from rlvr.modeling import loading
    from rlvr.preflight.check import check_components
    from rlvr.preflight.components import RunComponents, TargetMachine
    from rlvr.scoring.registry import load_rewards, load_task
    from rlvr.training import trl_config

    faults: list[str] = []
    notes: list[str] = []
    processes = processes_of(settings)

    def attempt(what: str, load: Callable[[], Part]) -> Part | None:
        try:
            return load()
        except InputError as error:
            if not _is_unreachable(error):
                faults.extend(line for line in str(error).splitlines() if line not in faults)
            else:
                notes.append(_NOT_CHECKED.format(what=f"{what} {'are' if what == 'the data' else 'is'}"))
            return None

    train = settings.train_group
    assert train is not None  # plan asks for it first
    rewards = attempt("the reward", lambda: load_rewards(recipe.rewards))
    task = attempt("the data", lambda: load_task(recipe.task))
    metric = attempt("the metric", lambda: choose_metric(recipe.evaluation, rewards)) if rewards is not None else None
    chat = task is not None and task.is_chat
    tokenizer = None
    if _may_be_loaded(recipe):
        tokenizer = attempt("the model", lambda: loading.load_tokenizer(recipe, chat=chat))
    else:
        notes.append(_NOT_CHECKED.format(what="the model is"))
    config = attempt("the model", lambda: loading.load_config(recipe)) if tokenizer is not None else None
    count = processes or train.instance_count
    target = TargetMachine(count, launcher=request.launcher_of(settings))
    components = RunComponents(recipe, target, count, task, rewards, metric, tokenizer, config)
    findings = check_components(components)
    faults += [problem.message for problem in findings.errors if problem.message not in faults]
    lines: list[str] = []
    estimate = None
    plan = components.plan if not findings.errors else None
    if task is not None and plan is not None:
        remarks = [problem for problem in findings.problems if problem.level != "error"]
        lines += [*task.notes, *plan.lines(), *map(str, remarks)]
    if config is not None and tokenizer is not None and plan is not None and not faults:
        stop_strings = task.stop_strings if task is not None else ()
        attempt("the recipe", lambda: trl_config.check_config(recipe, stop_strings, elsewhere=count))
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
    return Rehearsal(tuple(faults), tuple(dict.fromkeys(notes)), tuple(lines), processes, estimate)


def processes_of(settings: SageMakerSettings) -> int | None:
    """How many processes train together: one a GPU, or one a host without; None where the GPUs aren't known."""
    train = settings.train_group
    if train is None:
        return None
    if request.launcher_of(settings) == "cpu":
        return train.instance_count
    machine = INSTANCES.get(train.instance_type)
    return machine.gpus * train.instance_count if machine is not None else None


def cost_lines(settings: SageMakerSettings, estimate: Estimate | None) -> list[str]:
    """What an hour costs, and the most that the job can cost; and whether its time may be too short."""
    hours = settings.max_runtime_s / 3600
    prices = {group: _price(group) for group in settings.groups}
    rate = sum(price for price in prices.values() if price is not None)
    unknown = sorted({group.instance_type for group, price in prices.items() if price is None})
    lines = [f"no price known for {', '.join(unknown)}: look it up (rlvr/estimates/machines.py)"] if unknown else []
    if len(unknown) < len({group.instance_type for group in settings.groups}):
        rest = "the other hosts: " if unknown else ""
        lines.append(
            f"{rest}{rate:,.2f} dollars an hour, at most {rate * hours:,.0f} in {hours:.3g} h "
            f"(on demand in us-east-1, prices of {PRICES_READ})"
        )
        if settings.spot:
            lines.append("spot costs less than that; how much less is known only while it runs")
        if settings.keep_alive_s:
            kept = settings.keep_alive_s / 3600
            lines.append(f"{rate * kept:,.2f} dollars more for keeping the hosts warm {settings.keep_alive_s} s")
    if estimate is not None and estimate.hours is not None and estimate.hours.total[1] > hours:
        lines.append(
            f"it may take up to {estimate.hours.total[1]:.1f} hours, but max_runtime_s ends it after {hours:.3g}: it "
            "would save a checkpoint, and `resume` would go on from it"
        )
    return lines


def _price(group: InstanceGroup) -> float | None:
    """Dollars an hour for all hosts of a group; None where that isn't known."""
    machine = INSTANCES.get(group.instance_type)
    price = machine.price if machine is not None else _CPU_PRICES.get(group.instance_type)
    return price * group.instance_count if price is not None else None


def _may_be_loaded(recipe: Recipe) -> bool:
    """Whether the model is here or the hub may be asked; without importing transformers, which takes four seconds."""
    from rlvr.modeling.loading import find_model

    try:
        name = find_model(str(recipe.settings["model_name_or_path"]))
    except InputError:
        return True  # loading it says why it can't be
    if os.environ.get("HF_HUB_OFFLINE", "0") in ("", "0") or os.path.isdir(name):
        return True
    from huggingface_hub import try_to_load_from_cache

    revision = recipe.settings.get("model_revision")
    return isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str)


def _is_unreachable(error: BaseException | None) -> bool:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if {kind.__name__ for kind in type(error).__mro__} & _UNREACHABLE:
            return True
        error = error.__cause__ or error.__context__
    return False
