"""Checks of a run's numbers: batches, learning rate, schedule, timeouts."""

from __future__ import annotations

from rlvr.config.batch_plan import batch_sizes, ddp_timeout, reward_batch_timeout
from rlvr.errors import Problem
from rlvr.preflight.components import RunComponents

HIGHEST_LEARNING_RATE = 0.01  # ten times the rate of a LoRA on the tiny models
# The last third of ddp_timeout is for longer completions and workers that start again.
REWARD_SHARE_OF_TIMEOUT = 2 / 3


def check_batches(components: RunComponents) -> list[Problem]:
    """Batches must be whole groups, and no larger than the data."""
    sizes = batch_sizes(components.recipe, components.processes)
    rows = len(components.train or [])
    if sizes.group < 2:
        message = f"num_generations is {sizes.group}, but GRPO compares at least 2 completions of a prompt."
        return [Problem(message, "out-of-range", "num_generations")]
    if sizes.completions % sizes.group:
        return [
            Problem(
                f"A generation makes {sizes.completions} completions (per_device_train_batch_size x "
                f"{components.processes} processes x gradient_accumulation_steps), which does not divide into groups "
                f"of num_generations = {sizes.group}. Make it a multiple of {sizes.group}, for example with "
                f"per_device_train_batch_size: {sizes.group}.",
                "incomplete-group",
                "num_generations",
            )
        ]
    if sizes.prompts > rows:
        return [
            Problem(
                f"A generation takes {sizes.prompts} prompts, but the training split has {rows} rows: not one step "
                "would be made. Lower gradient_accumulation_steps or per_device_train_batch_size, or give the task "
                "more rows.",
                "too-few-rows",
                "task",
            )
        ]
    return []


def check_learning_rate(components: RunComponents) -> list[Problem]:
    """A rate of 0 trains nothing; a rate far too high has lost its exponent, or is for another optimizer."""
    rate = components.settings.get("learning_rate")
    if rate == 0:
        return [Problem("learning_rate is 0: nothing would be trained.", "zero-learning-rate", "learning_rate")]
    uses_adam = "adam" in str(components.settings.get("optim", "adamw"))
    if rate is None or rate <= HIGHEST_LEARNING_RATE or not uses_adam:
        return []
    return [
        Problem(
            f"learning_rate is {rate:g}: with Adam, GRPO takes about 1e-6 for all weights and 1e-5 to 1e-4 for an "
            f"adapter. Above {HIGHEST_LEARNING_RATE:g} a model loses its language within a few steps.",
            "high-learning-rate",
            "learning_rate",
            level="warning",
        )
    ]


def check_schedule(components: RunComponents) -> list[Problem]:
    """A single step with warm-up has a learning rate of 0."""
    warmup = components.settings.get("warmup_steps")
    if components.plan is None or components.plan.steps != 1 or not warmup:
        return []
    return [
        Problem(
            f"The run has one step, and with warmup_steps: {warmup} the learning rate of the first step is 0: nothing "
            "would be trained. Make more steps, or set warmup_steps: 0.",
            "zero-learning-rate",
            "warmup_steps",
        )
    ]


def check_reward_timeouts(components: RunComponents) -> list[Problem]:
    """Rewards may not outlast `ddp_timeout`: the other processes would end the run with a timeout of NCCL."""
    batch_timeout, other_processes_wait = reward_batch_timeout(components.recipe), ddp_timeout(components.recipe)
    row_timeout = components.settings.get("reward_timeout_s", 30.0)
    problems = []
    if components.processes > 1 and batch_timeout > other_processes_wait * REWARD_SHARE_OF_TIMEOUT:
        problems.append(
            Problem(
                f"reward_batch_timeout_s is {batch_timeout:g}, but the other processes wait for at most ddp_timeout = "
                f"{other_processes_wait:g} s, for rewards and completions together: a slow batch would end the run. "
                f"Set ddp_timeout to {batch_timeout / REWARD_SHARE_OF_TIMEOUT:.0f} or more, or lower "
                "reward_batch_timeout_s.",
                "timeout-too-long",
                "reward_batch_timeout_s",
            )
        )
    if row_timeout > batch_timeout:
        problems.append(
            Problem(
                f"reward_timeout_s is {row_timeout:g} for a row, but reward_batch_timeout_s is {batch_timeout:g} for a "
                "batch. Raise the second or lower the first.",
                "timeout-too-long",
                "reward_timeout_s",
            )
        )
    return problems
