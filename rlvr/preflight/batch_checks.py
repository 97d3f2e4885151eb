"""Checks of a run's numbers: batches, schedule, timeouts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlvr.config.batch_plan import BatchSizes, batch_sizes, reward_batch_timeout
from rlvr.config.recipe import value_of
from rlvr.errors import Problem
from rlvr.preflight.components import RunComponents

# The last third of ddp_timeout is for longer completions and workers that start again.
REWARD_SHARE_OF_TIMEOUT = 2 / 3


def check_batches(components: RunComponents) -> Iterator[Problem]:
    """Batches must be whole groups and whole updates, and no larger than the data, if it could be read."""
    sizes = batch_sizes(components.recipe, components.processes)
    factors = _factors(components)
    product = " x ".join(f"{key} {value}" for key, value in factors.items())
    if components.processes > 1 and "generation_batch_size" not in factors:
        product += f" x {components.processes} processes"
    if sizes.completions % sizes.group:
        choices = []  # the next larger number of completions that is right, by a change of one key
        for key, value in factors.items():
            others = sizes.completions // value
            multiple = sizes.group // math.gcd(others, sizes.group)  # the value must be one of it
            larger = math.ceil(value / multiple) * multiple
            choices.append((larger * others, f"{key}: {larger}"))
        completions, setting = min(choices)
        message = (
            f"A generation makes {sizes.completions} completions ({product}), which does not divide into groups of "
            f"num_generations = {sizes.group}. Set {setting}, which makes {completions}."
        )
        yield Problem(message, "incomplete-group", "num_generations")
        return
    yield from _check_updates(components, sizes)
    if components.train is not None and sizes.prompts > (rows := len(components.train)):
        message = (
            f"A generation takes {sizes.prompts} prompts, but the training split has {rows} rows: not one step "
            f"would be made. Lower {product} to at most {rows * sizes.group} completions, or give the task more rows."
        )
        yield Problem(message, "too-few-rows", "task")


def _check_updates(components: RunComponents, sizes: BatchSizes) -> Iterator[Problem]:
    """A `generation_batch_size` must be whole micro-batches of all processes, and whole updates."""
    settings, processes = components.settings, components.processes
    if not settings.get("generation_batch_size"):
        return
    rows = value_of(settings, "per_device_train_batch_size")
    if sizes.completions % (rows * processes):
        message = (
            f"generation_batch_size {sizes.completions} is not a multiple of per_device_train_batch_size {rows} x "
            f"{processes} processes."
        )
        fits = [number for number in range(1, rows) if sizes.completions % (number * processes) == 0]
        fix = f"per_device_train_batch_size: {fits[-1]}" if fits else f"generation_batch_size: {rows * processes}"
        yield Problem(f"{message} Set {fix}.", "incomplete-batch", "generation_batch_size")
    elif (passes := sizes.steps * sizes.iterations) % sizes.accumulation:
        most = max(sizes.accumulation // processes, 1)  # the update keeps its completions if processes are added
        fits = [number for number in range(1, most + 1) if passes % number == 0]
        message = (
            f"An update takes {rows * sizes.accumulation * processes} completions (per_device_train_batch_size {rows} "
            f"x gradient_accumulation_steps {sizes.accumulation} x {processes} processes), which does not divide a "
            f"generation of {sizes.completions}. Set gradient_accumulation_steps: {fits[-1]}, which makes updates of "
            f"{rows * fits[-1] * processes}."
        )
        yield Problem(message, "incomplete-update", "gradient_accumulation_steps")


def _factors(components: RunComponents) -> dict[str, int]:
    """The keys whose product, times the processes, is the number of completions of a generation."""
    settings = components.settings
    if settings.get("generation_batch_size"):
        return {"generation_batch_size": settings["generation_batch_size"]}
    steps = "steps_per_generation" if settings.get("steps_per_generation") else "gradient_accumulation_steps"
    return {
        "per_device_train_batch_size": value_of(settings, "per_device_train_batch_size"),
        steps: settings.get(steps, 1),
    }


def check_schedule(components: RunComponents) -> Iterator[Problem]:
    """The learning rate must leave its warm-up, whose first step has a rate of 0."""
    warmup, scheduler = components.settings.get("warmup_steps"), components.settings.get("lr_scheduler_type")
    if components.plan is None or not warmup or scheduler == "constant":  # which has no warm-up
        return
    steps = components.plan.steps
    if 1 < steps <= warmup:
        message = (
            f"warmup_steps is {warmup:g}, but the run has {steps} steps: it ends before the learning "
            "rate is reached. Lower warmup_steps. A number below 1 is a share of the steps."
        )
        yield Problem(message, "long-warmup", "warmup_steps", level="warning")
    elif steps == 1:
        message = (
            f"The run has one step, and with warmup_steps: {warmup} the learning rate of the first step is 0: nothing "
            "would be trained. Make more steps, or set warmup_steps: 0."
        )
        yield Problem(message, "zero-learning-rate", "warmup_steps")


def check_reward_timeouts(components: RunComponents) -> Iterator[Problem]:
    """Rewards may not outlast `ddp_timeout`: the other processes would end the run with a timeout of NCCL."""
    recipe = components.recipe
    batch_timeout, other_processes_wait = reward_batch_timeout(recipe), recipe.value("ddp_timeout")
    row_timeout = components.recipe.value("reward_timeout_s")
    if components.processes > 1 and batch_timeout > other_processes_wait * REWARD_SHARE_OF_TIMEOUT:
        message = (
            f"reward_batch_timeout_s is {batch_timeout:g}, but the other processes wait at most ddp_timeout = "
            f"{other_processes_wait:g} s for rewards and completions. A slow batch would end the run. Set "
            f"ddp_timeout to {batch_timeout / REWARD_SHARE_OF_TIMEOUT:.0f} or more, or lower reward_batch_timeout_s."
        )
        yield Problem(message, "timeout-too-long", "reward_batch_timeout_s")
    if row_timeout > batch_timeout:
        message = (
            f"reward_timeout_s is {row_timeout:g} for a row, but reward_batch_timeout_s is {batch_timeout:g} for a "
            "batch. Raise the second or lower the first."
        )
        yield Problem(message, "timeout-too-long", "reward_timeout_s")
