"""What a run will do in numbers: its batches, steps and lengths; and the numbers that come to nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlvr.config.recipe import Recipe
from rlvr.formatting import count

HIGHEST_RATE = 0.01  # ten times what a LoRA on the tiny models takes


@dataclass(frozen=True)
class BatchPlan:
    """What a run will do, in numbers.

    Attributes:
        processes: how many processes train together.
        prompts: different prompts per generation.
        generations: completions per prompt (the size of a group).
        steps: optimizer steps in all.
        rows: rows of the training split.
        dropped: rows left over at the end of every epoch because they fill no batch.
        longest_prompt: tokens of the longest prompt; None where there is no tokenizer to count them.
        notes: what else a person should know, a sentence each.
    """

    processes: int
    prompts: int
    generations: int
    steps: int
    rows: int
    dropped: int
    longest_prompt: int | None
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The plan in words, a line each."""
        return [
            f"{count(self.prompts, 'prompt')} x {self.generations} completions per generation"
            + (f" over {self.processes} processes" if self.processes > 1 else ""),
            f"{count(self.steps, 'optimizer step')} over {self.rows} training rows"
            + (f" ({self.dropped} of them fill no batch and are left out of each epoch)" if self.dropped else ""),
            *([] if self.longest_prompt is None else [f"longest prompt {self.longest_prompt} tokens; nothing is cut"]),
            *self.notes,
        ]


def batch_of(recipe: Recipe, processes: int) -> tuple[int, int, int, int, int]:
    """Completions per generation, group size, steps per generation, iterations, accumulation; as in GRPOConfig."""
    settings = recipe.settings
    per_device = settings.get("per_device_train_batch_size", 8)
    accumulation = settings.get("gradient_accumulation_steps", 1)
    group = settings.get("num_generations") or 8
    if settings.get("generation_batch_size"):
        batch = settings["generation_batch_size"]
        per_generation = max(batch // (per_device * processes), 1)
    else:
        per_generation = settings.get("steps_per_generation") or accumulation
        batch = per_device * processes * per_generation
    return batch, group, per_generation, settings.get("num_iterations", 1), accumulation


def arithmetic_faults(recipe: Recipe, rows: int, processes: int) -> list[str]:
    batch, group, *_ = batch_of(recipe, processes)
    if group < 2:
        return [f"num_generations is {group}, but GRPO compares at least 2 completions of a prompt."]
    if batch % group:
        return [
            f"A generation makes {batch} completions (per_device_train_batch_size x {processes} processes x "
            f"gradient_accumulation_steps), which does not divide into groups of num_generations = {group}. "
            f"Make it a multiple of {group}: for one, per_device_train_batch_size: {group}."
        ]
    if batch // group > rows:
        return [
            f"A generation takes {batch // group} prompts, but the training split has {rows} rows: not one step would "
            "be made. Lower gradient_accumulation_steps or per_device_train_batch_size, or give the task more rows."
        ]
    return []


def plan_of(recipe: Recipe, rows: int, processes: int, longest: int | None, notes: tuple[str, ...] = ()) -> BatchPlan:
    batch, group, per_generation, iterations, accumulation = batch_of(recipe, processes)
    prompts = batch // group
    generations = rows // prompts
    max_steps = recipe.settings.get("max_steps", -1)
    steps_an_epoch = max(generations * per_generation * iterations // accumulation, 1)
    epochs = recipe.settings.get("num_train_epochs", 3.0)
    steps = max_steps if max_steps > 0 else math.ceil(epochs * steps_an_epoch)
    return BatchPlan(processes, prompts, group, steps, rows, rows - generations * prompts, longest, notes)


def rate_notes(recipe: Recipe) -> list[str]:
    """A learning rate that is a slip of the pen: an exponent left out, or a rate for another optimizer."""
    rate = recipe.settings.get("learning_rate", 0.0)
    if rate <= HIGHEST_RATE or "adam" not in str(recipe.settings.get("optim", "adamw")):
        return []
    return [
        f"warning: learning_rate is {rate:g}: with Adam, GRPO takes about 1e-6 for all weights and 1e-5 to 1e-4 for an "
        f"adapter. Above {HIGHEST_RATE:g} a model loses its language within a few steps."
    ]


def schedule_faults(recipe: Recipe, steps: int) -> list[str]:
    """A learning rate that is 0 at every step: all would be computed, and nothing learnt."""
    settings = recipe.settings
    if settings.get("learning_rate") == 0:
        return ["learning_rate is 0, so nothing would be learnt."]
    if steps == 1 and settings.get("warmup_steps"):
        return [
            f"The run has one step, and with warmup_steps: {settings['warmup_steps']} the first step's learning rate "
            "is 0: nothing would be learnt. Make more steps, or set warmup_steps: 0."
        ]
    return []


def reward_budget(recipe: Recipe) -> float:
    """Seconds that the rewards of a batch may take in all: the recipe's, or a third of what ranks wait for another."""
    return float(recipe.settings.get("reward_batch_timeout_s") or _patience(recipe) / 3)


def _patience(recipe: Recipe) -> float:
    return float(recipe.settings.get("ddp_timeout", 1800))
