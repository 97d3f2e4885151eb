"""How rollouts will be sampled, and what of it a reader of the recipe would not expect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.modeling.generation import LEFT_OPEN, TOLD

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase


def sampling_notes(recipe: Recipe, generation: GenerationConfig) -> list[str]:
    """What of the model's own generation settings is not used, which a reader of its card would not expect.

    Args:
        generation: the model's own.
    """
    settings = recipe.settings
    extra = settings.get("generation_kwargs") or {}
    said = {**TOLD, **LEFT_OPEN}
    said |= {name: settings[name] for name in said if settings.get(name) is not None} | extra
    unused = {
        name: value
        for name in (*TOLD, *LEFT_OPEN)
        if (value := getattr(generation, name, None)) is not None and value != said[name]
    }
    if not unused:
        return []
    instead = {name: said[name] for name in unused if said[name] is not None}
    return [
        f"the model's own {_listed(unused)} (generation_config.json) is not used: rollouts are sampled with "
        f"{_listed(instead) if instead else 'nothing of the kind'}, as the recipe says or TRL's defaults do"
    ]


def engine_notes(recipe: Recipe) -> list[str]:
    """What generating so costs, or risks."""
    settings = recipe.settings
    notes = []
    if settings.get("ds3_gather_for_generation") is False:
        tokens = settings.get("max_completion_length", 512)
        notes.append(
            "warning: ds3_gather_for_generation: false: under ZeRO-3 every layer is gathered from all GPUs again for "
            f"every token, up to {tokens} times a generation instead of once; it looks like a hang "
            "(huggingface/trl#3858). Set it to true unless one GPU can't hold the gathered weights: 0.6 bytes a "
            "parameter in 4 bits, 2 in 16"
        )
    if settings.get("use_vllm") and settings.get("use_peft") and settings.get("vllm_mode", "colocate") == "colocate":
        notes.append(
            "warning: use_vllm with vllm_mode: colocate and use_peft: merged adapters are pushed into vLLM at every "
            "generation, which has hung (huggingface/trl#3671) and drifted from the trained policy "
            "(huggingface/trl#6688). Watch sampling/importance_sampling_ratio/mean (near 1) and "
            "sampling/sampling_logp_difference/mean (near 0) from the first step; vllm_mode: server, or no use_peft, "
            "does without"
        )
    return notes


def ending_notes(task: Task, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Plain-text prompts whose completions nothing ends but a token that base models seldom write."""
    if task.is_chat or task.stop_strings or len(task.train) == 0:
        return []
    return [
        f"warning: the prompts are plain text and the task names no stop_strings, so a completion ends only where the "
        f"model writes {tokenizer.eos_token}, which base models seldom do: most would be cut off. Give the task "
        "stop_strings (where the next problem would begin), or use chat prompts and an -Instruct model"
    ]


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
