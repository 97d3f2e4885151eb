"""The batches and steps of a run, computed from a recipe as TRL computes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlvr.config.recipe import Recipe, value_of
from rlvr.formatting import count


@dataclass(frozen=True)
class BatchSizes:
    """The sizes of a generation and of its optimizer steps.

    Attributes:
        completions: completions per generation, over all processes.
        group: completions per prompt, `num_generations`.
        steps: forward and backward passes per generation, `steps_per_generation`.
        iterations: how many times a generation is trained on, `num_iterations`.
        accumulation: passes per optimizer step, `gradient_accumulation_steps`.
    """

    completions: int
    group: int
    steps: int
    iterations: int
    accumulation: int

    @property
    def prompts(self) -> int:
        """Different prompts per generation."""
        return self.completions // self.group


@dataclass(frozen=True)
class BatchPlan:
    """What a run will do, in numbers.

    Attributes:
        processes: processes that train together.
        prompts: different prompts per generation.
        generations: completions per prompt (the size of a group).
        updates: optimizer steps per generation; below 1 where a step uses several generations.
        steps: optimizer steps of the run.
        rows: rows of the training split.
        dropped: rows at the end of every epoch that fill no batch.
        longest_prompt: tokens of the longest prompt; None without a tokenizer to count them.
    """

    processes: int
    prompts: int
    generations: int
    updates: float
    steps: int
    rows: int
    dropped: int
    longest_prompt: int | None

    def lines(self) -> list[str]:
        """Describe the plan, a line each."""
        return [
            f"{count(self.prompts, 'prompt')} x {self.generations} completions per generation"
            + (f" over {self.processes} processes" if self.processes > 1 else "")
            + (f", used for {self.updates:g} optimizer steps" if self.updates > 1 else ""),
            f"{count(self.steps, 'optimizer step')} over {self.rows:,} rows"
            + (f" ({self.dropped} per epoch fill no batch)" if self.dropped else ""),
            *([] if self.longest_prompt is None else [f"longest prompt {self.longest_prompt} tokens, nothing is cut"]),
        ]


def batch_sizes(recipe: Recipe, processes: int) -> BatchSizes:
    """Compute the sizes as GRPOConfig does."""
    settings = recipe.settings
    per_device = value_of(settings, "per_device_train_batch_size")
    accumulation = value_of(settings, "gradient_accumulation_steps")
    if settings.get("generation_batch_size"):
        completions = settings["generation_batch_size"]
        steps = max(completions // (per_device * processes), 1)
    else:
        steps = settings.get("steps_per_generation") or accumulation
        completions = per_device * processes * steps
    group = settings.get("num_generations") or 8
    return BatchSizes(completions, group, steps, value_of(settings, "num_iterations"), accumulation)


def sorts_by_length(settings: Mapping[str, Any]) -> bool:
    """Whether the rows of an optimizer step may be sorted by length over its micro-batches.

    Not where TRL's loss depends on which rows share a micro-batch, or an optimizer step has rows of other generations.

    Args:
        settings: the flat keys of a recipe, or the arguments of a trainer; `steps_per_generation` is set.
    """
    accumulation = value_of(settings, "gradient_accumulation_steps")
    by_row = (
        value_of(settings, "loss_type") != "bnpo"  # divides by the tokens of a micro-batch
        and value_of(settings, "top_entropy_quantile") == 1  # a quantile over a micro-batch
        and not value_of(settings, "entropy_coef")  # a mean over the tokens of a micro-batch
        and not value_of(settings, "use_adaptive_entropy")
    )
    return bool(by_row and accumulation > 1 and value_of(settings, "steps_per_generation") % accumulation == 0)


def plan_batches(recipe: Recipe, rows: int, processes: int, longest_prompt: int | None) -> BatchPlan | None:
    """Plan the run; None if not one whole generation can be made of so many rows."""
    sizes = batch_sizes(recipe, processes)
    if sizes.completions % sizes.group or not 0 < sizes.prompts <= rows:
        return None
    generations = rows // sizes.prompts
    max_steps = recipe.value("max_steps")
    steps_per_epoch = max(generations * sizes.steps * sizes.iterations // sizes.accumulation, 1)
    epochs = recipe.value("num_train_epochs")
    steps = max_steps if max_steps > 0 else math.ceil(epochs * steps_per_epoch)
    dropped = rows - generations * sizes.prompts
    updates = sizes.steps * sizes.iterations / sizes.accumulation
    return BatchPlan(processes, sizes.prompts, sizes.group, updates, steps, rows, dropped, longest_prompt)


def reward_batch_timeout(recipe: Recipe) -> float:
    """Seconds that the rewards of a batch may take: the recipe's, or a third of `ddp_timeout`."""
    return float(recipe.settings.get("reward_batch_timeout_s") or recipe.value("ddp_timeout") / 3)
