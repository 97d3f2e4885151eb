"""Whether transformers generates from the adapter or from a merged copy of the model (`rollout_weights`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psutil

from rlvr.config.recipe import Recipe, value_of
from rlvr.errors import InputError, Problem
from rlvr.estimates import parameters
from rlvr.estimates.memory import GIB, USABLE
from rlvr.modeling.adapters import unmergeable
from rlvr.preflight.components import RunComponents


def check_rollout_weights(components: RunComponents) -> Iterator[Problem]:
    """What can't be merged. `auto` takes the adapter there."""
    settings = components.settings
    if value_of(settings, "rollout_weights") != "merged" or settings.get("use_vllm"):
        return
    if not settings.get("use_peft"):
        message = "rollout_weights: merged without use_peft: there is no adapter to merge. Remove it."
        yield Problem(message, "conflicting-keys", "rollout_weights")
    elif (key := unmergeable(components.settings)) is not None:
        message = f"{key} with rollout_weights: merged, which merges plain LoRA matrices without dropout."
        yield Problem(f"{message} Remove {key}, or set rollout_weights: adapter.", "conflicting-keys", key)


def choose_weights(components: RunComponents, earlier: str | None = None) -> tuple[str, str]:
    """Decide what `rollout_weights: auto` means here.

    Args:
        earlier: what the run that this one continues had; None if it continues none.

    Returns:
        "adapter", or "auto" if a copy fits: then the first generation decides. And why.
    """
    if earlier is not None:
        return earlier, "as the run that is continued"
    key = unmergeable(components.settings)
    if key is not None:
        return "adapter", f"{key} can't be merged"
    on_cpu = components.settings.get("use_cpu") and not components.target.machine
    fits = _fits_on_cpu(components) if on_cpu else _fits_on_gpu(components)
    return ("auto", "") if fits else ("adapter", "there is no room for a merged copy")


def as_merged(recipe: Recipe) -> Recipe:
    """The recipe for an estimate, with a copy if one may generate."""
    merges = recipe.settings.get("use_peft") and value_of(recipe.settings, "rollout_weights") == "auto"
    return with_weights(recipe, "merged") if merges else recipe


def with_weights(recipe: Recipe, weights: str) -> Recipe:
    return replace(recipe, settings={**recipe.settings, "rollout_weights": weights})


def _fits_on_gpu(components: RunComponents) -> bool:
    """Whether the estimate with a copy fits, in as few rounds as without."""
    try:
        merged, plain = (
            components.estimate(with_weights(components.recipe, weights)) for weights in ("merged", "adapter")
        )
    except InputError:
        return False  # an architecture that the estimate does not know
    if merged is None or plain is None:
        return False
    room = USABLE * merged.machine.gpu.memory * GIB
    return merged.memory.peak <= room and merged.setup.rounds <= plain.setup.rounds


def _fits_on_cpu(components: RunComponents) -> bool:
    """Whether the copies of all processes, in float32, take at most a quarter of the free memory."""
    if components.config is None:
        return False
    try:
        numbers = parameters.count(components.config).total
    except InputError:
        return False
    return 4 * numbers * components.processes <= psutil.virtual_memory().available / 4
