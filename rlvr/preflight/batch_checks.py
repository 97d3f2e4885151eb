"""Checks of a run's numbers: batches, learning rate, schedule, timeouts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlvr.config.batch_plan import batch_sizes, ddp_timeout, reward_batch_timeout
from rlvr.errors import Problem
from rlvr.preflight.components import RunComponents

HIGHEST_LEARNING_RATE = 0.01  # ten times the rate of a LoRA on the tiny models
# The last third of ddp_timeout is for longer completions and workers that start again.
REWARD_SHARE_OF_TIMEOUT = 2 / 3


def check_batches(components: RunComponents) -> Iterator[Problem]:
    """Batches must be whole groups, and no larger than the data."""
    sizes = batch_sizes(components.recipe, components.processes)
    rows = len(components.train or [])
    if sizes.completions % sizes.group:
        message = (
            f"A generation makes {sizes.completions} completions ({_factors(components)}), which does not divide into "
            f"groups of num_generations = {sizes.group}. {_nearest_batch(components)}"
        )
        yield Problem(message, "incomplete-group", "num_generations")
    elif sizes.prompts > rows:
        message = (
            f"A generation takes {sizes.prompts} prompts, but the training split has {rows} rows: not one step "
            f"would be made. Lower {_factors(components)} to at most {rows * sizes.group} completions, or give the "
            "task more rows."
        )
        yield Problem(message, "too-few-rows", "task")


def _factors(components: RunComponents) -> str:
    """How the completions of a generation are computed."""
    settings = components.settings
    if settings.get("generation_batch_size"):
        return "generation_batch_size"
    steps = "steps_per_generation" if settings.get("steps_per_generation") else "gradient_accumulation_steps"
    sizes = batch_sizes(components.recipe, components.processes)
    device = settings.get("per_device_train_batch_size", 8)
    processes = f"{components.processes} process{'es' if components.processes != 1 else ''}"
    return f"per_device_train_batch_size {device} x {processes} x {steps} {sizes.steps}"


def _nearest_batch(components: RunComponents) -> str:
    """The change of one key that makes whole groups of the next larger number of completions."""
    settings, sizes = components.settings, batch_sizes(components.recipe, components.processes)
    if settings.get("generation_batch_size"):
        return f"Set generation_batch_size: {math.ceil(sizes.completions / sizes.group) * sizes.group}."
    device = settings.get("per_device_train_batch_size", 8)
    steps = "steps_per_generation" if settings.get("steps_per_generation") else "gradient_accumulation_steps"
    choices = []
    for key, value in (("per_device_train_batch_size", device), (steps, sizes.steps)):
        others = sizes.completions // value
        multiple = sizes.group // math.gcd(others, sizes.group)  # `value` must be one of it
        larger = math.ceil(value / multiple) * multiple
        choices.append((larger * others, f"{key}: {larger}"))
    completions, setting = min(choices)
    return f"Set {setting}, which makes {completions}."


def check_learning_rate(components: RunComponents) -> Iterator[Problem]:
    """A rate far too high has lost its exponent, or is for another optimizer."""
    rate = components.settings.get("learning_rate", 0)
    if rate > HIGHEST_LEARNING_RATE and "adam" in str(components.settings.get("optim", "adamw")):
        message = (
            f"learning_rate is {rate:g}: with Adam, GRPO takes about 1e-6 for all weights and 1e-5 to 1e-4 for an "
            f"adapter. Above {HIGHEST_LEARNING_RATE:g} a model loses its language within a few steps."
        )
        yield Problem(message, "high-learning-rate", "learning_rate", level="warning")


def check_schedule(components: RunComponents) -> Iterator[Problem]:
    """A single step with warm-up has a learning rate of 0."""
    warmup = components.settings.get("warmup_steps")
    if components.plan is not None and components.plan.steps == 1 and warmup:
        message = (
            f"The run has one step, and with warmup_steps: {warmup} the learning rate of the first step is 0: nothing "
            "would be trained. Make more steps, or set warmup_steps: 0."
        )
        yield Problem(message, "zero-learning-rate", "warmup_steps")


def check_reward_timeouts(components: RunComponents) -> Iterator[Problem]:
    """Rewards may not outlast `ddp_timeout`: the other processes would end the run with a timeout of NCCL."""
    batch_timeout, other_processes_wait = reward_batch_timeout(components.recipe), ddp_timeout(components.recipe)
    row_timeout = components.settings.get("reward_timeout_s", 30.0)
    if components.processes > 1 and batch_timeout > other_processes_wait * REWARD_SHARE_OF_TIMEOUT:
        message = (
            f"reward_batch_timeout_s is {batch_timeout:g}, but the other processes wait for at most ddp_timeout = "
            f"{other_processes_wait:g} s, for rewards and completions together: a slow batch would end the run. Set "
            f"ddp_timeout to {batch_timeout / REWARD_SHARE_OF_TIMEOUT:.0f} or more, or lower reward_batch_timeout_s."
        )
        yield Problem(message, "timeout-too-long", "reward_batch_timeout_s")
    if row_timeout > batch_timeout:
        message = (
            f"reward_timeout_s is {row_timeout:g} for a row, but reward_batch_timeout_s is {batch_timeout:g} for a "
            "batch. Raise the second or lower the first."
        )
        yield Problem(message, "timeout-too-long", "reward_timeout_s")
