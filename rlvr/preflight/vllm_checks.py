"""What generates the rollouts, vLLM or transformers; and what vLLM can't do for a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rlvr import estimates
from rlvr.config.recipe import value_of, with_engine
from rlvr.errors import InputError, Problem
from rlvr.modeling.vllm_engines import MAX_RANK, installation_problem, sends_adapter
from rlvr.preflight.components import RunComponents


def choose_engine(components: RunComponents, earlier: bool | None = None) -> tuple[bool, str]:
    """Decide what `rollouts: auto` means here.

    Args:
        earlier: whether the run that this one continues used vLLM; None if it continues none. A continuation keeps its
            engine, whose samples it has to repeat. If that is vLLM and vLLM is gone, the checks refuse the run.

    Returns:
        Whether vLLM generates, and why.
    """
    if earlier is not None:
        return earlier, "as the run that is continued"
    obstacle = _obstacle(components)
    return obstacle is None, obstacle or "vLLM is installed, and there is a GPU"


def _obstacle(components: RunComponents) -> str | None:
    """Why vLLM can't generate the rollouts; None if it can."""
    if components.settings.get("use_cpu"):
        return "the recipe runs on CPUs"
    if components.target.is_here and estimates.this_machine() is None:
        return "there is no GPU"
    trial = replace(components, recipe=with_engine(components.recipe, vllm=True))
    installed = installation_problem("rollouts")
    problems = [installed] if installed is not None else check_vllm(trial)
    message = next((problem.message for problem in problems if problem.level == "error"), None)
    if message is not None:
        return message.removeprefix("rollouts: ").partition(". ")[0]
    try:
        estimate = components.estimate(trial.recipe)
    except InputError:
        return None  # the checks report it
    roomy = estimate is None or (estimate.fits and not estimate.vllm_share_problem)
    return None if roomy else "the GPU has no room for vLLM and the training: see --check --rollouts vllm"


def check_vllm(components: RunComponents) -> Iterator[Problem]:
    """What vLLM can't do for the recipe: this installation, these keys."""
    settings = components.settings
    if not settings.get("use_vllm"):
        return
    asked = "rollouts" if "rollouts" in components.recipe.lines else "use_vllm"
    if components.target.is_here and (problem := installation_problem(asked)):
        yield problem
    if value_of(settings, "vllm_mode") == "colocate":
        yield from _colocate_problems(components)
    elif value_of(settings, "vllm_base_quantization") != "none":
        message = "vllm_base_quantization with vllm_mode: server: a server keeps the base that it was started with."
        yield Problem(f"{message} Remove it.", "conflicting-keys", "vllm_base_quantization")
    yield from _weight_problems(settings)


def _colocate_problems(components: RunComponents) -> Iterator[Problem]:
    """Keys that contradict each other where vLLM runs in the training processes."""
    settings, merged = components.settings, not sends_adapter(components.settings)
    if components.processes % (size := value_of(settings, "vllm_tensor_parallel_size")):
        message = f"vllm_tensor_parallel_size is {size}, which doesn't divide the {components.processes} processes."
        yield Problem(f"{message} Set a divisor, such as 1.", "conflicting-keys", "vllm_tensor_parallel_size")
    if merged and value_of(settings, "vllm_base_quantization") != "none":
        message = "vllm_base_quantization: 16-bit weights are sent at each update, which 4-bit ones can't take."
        yield Problem(f"{message} Remove it, or train an adapter.", "conflicting-keys", "vllm_base_quantization")
    if merged and settings.get("use_peft"):
        message = (
            "vllm_weight_sync: merged: merged adapters are pushed into vLLM at every generation, which has hung "
            "(huggingface/trl#3671) and drifted from the trained policy (huggingface/trl#6688). Watch "
            "sampling/importance_sampling_ratio/mean (near 1) and sampling/sampling_logp_difference/mean (near 0) from "
            "the first step. vllm_weight_sync: adapter avoids it."
        )
        yield Problem(message, "vllm-drift", "use_vllm", level="warning")
    if not merged and settings.get("vllm_enable_sleep_mode"):
        message = (
            "vllm_enable_sleep_mode with an adapter: vLLM's base is sent once, and sleeping would drop it. Remove it, "
            "lower vllm_gpu_memory_utilization, or set vllm_weight_sync: merged."
        )
        yield Problem(message, "conflicting-keys", "vllm_enable_sleep_mode")


def _weight_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """What can't be sent to vLLM after an update."""
    if not sends_adapter(settings):
        if settings.get("load_in_4bit"):
            message = "load_in_4bit with vllm_weight_sync: merged: an adapter can't be merged into 4-bit weights."
            yield Problem(f"{message} Set adapter.", "conflicting-keys", "vllm_weight_sync")
        return
    for key in ("lora_modules_to_save", "use_dora", "lora_target_parameters"):
        if settings.get(key):
            message = f"{key} with vLLM: it gets the adapter alone, which can't carry it. Remove {key}"
            yield Problem(f"{message}, or set vllm_weight_sync: merged.", "conflicting-keys", key)
    if value_of(settings, "lora_r") > MAX_RANK:
        message = f"lora_r is {settings['lora_r']}, but vLLM takes adapters up to rank {MAX_RANK}. Lower it."
        yield Problem(message, "out-of-range", "lora_r")
    if settings.get("load_in_4bit") and settings.get("vllm_mode") == "server":
        message = (
            "load_in_4bit with vllm_mode: server: the server samples from a base model in 16 bits, not in 4. "
            "Use vllm_mode: colocate, or vllm_importance_sampling_mode: token_truncate."
        )
        yield Problem(message, "another-base", "vllm_mode", level="warning")
