"""Checks of how rollouts are generated: what ends a completion, what samples it, what generating costs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.modeling import loading
from rlvr.modeling.generation import LEFT_OPEN, SET_BY_TRL
from rlvr.preflight.components import RunComponents
from rlvr.preflight.prompt_lengths import gold_length_problems

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase


def check_generation_config(components: RunComponents) -> list[Problem]:
    """Note the model's own generation settings that are not used."""
    assert components.config is not None
    generation = loading.load_generation_config(components.recipe, components.config)
    return unused_generation_settings(components.settings, generation)


def unused_generation_settings(settings: Any, generation: GenerationConfig) -> list[Problem]:
    """Note what of a model's generation_config.json the recipe, or TRL's default, replaces."""
    used = {**SET_BY_TRL, **LEFT_OPEN}
    used |= {name: settings[name] for name in used if settings.get(name) is not None}
    used |= settings.get("generation_kwargs") or {}
    unused = {
        name: value
        for name in (*SET_BY_TRL, *LEFT_OPEN)
        if (value := getattr(generation, name, None)) is not None and value != used[name]
    }
    if not unused:
        return []
    replaced = {name: used[name] for name in unused if used[name] is not None}
    message = (
        f"the model's own {_list(unused)} (generation_config.json) is not used: rollouts are sampled with "
        f"{_list(replaced) if replaced else 'none of them'}, from the recipe or TRL's defaults"
    )
    return [Problem(message, "unused-generation-setting", next(iter(unused)), level="note")]


def check_layerwise_gathering(components: RunComponents) -> list[Problem]:
    """Generation under ZeRO-3 without gathering looks like a hang."""
    if components.settings.get("ds3_gather_for_generation") is not False:
        return []
    tokens = components.settings.get("max_completion_length", 512)
    message = (
        "ds3_gather_for_generation: false: under ZeRO-3 every layer is gathered from all GPUs again for every token, "
        f"up to {tokens} times a generation instead of once; it looks like a hang (huggingface/trl#3858). Set it to "
        "true unless one GPU can't hold the gathered weights: 0.6 bytes per parameter in 4 bits, 2 in 16."
    )
    return [Problem(message, "slow-generation", "ds3_gather_for_generation", level="warning")]


def check_vllm_with_adapter(components: RunComponents) -> list[Problem]:
    """vLLM in the training process with an adapter has hung and drifted."""
    settings = components.settings
    colocated = settings.get("use_vllm") and settings.get("vllm_mode", "colocate") == "colocate"
    if not colocated or not settings.get("use_peft"):
        return []
    message = (
        "use_vllm with vllm_mode: colocate and use_peft: merged adapters are pushed into vLLM at every generation, "
        "which has hung (huggingface/trl#3671) and drifted from the trained policy (huggingface/trl#6688). Watch "
        "sampling/importance_sampling_ratio/mean (near 1) and sampling/sampling_logp_difference/mean (near 0) from the "
        "first step. vllm_mode: server, or no use_peft, avoids it."
    )
    return [Problem(message, "vllm-drift", "use_vllm", level="warning")]


def check_turn_end(components: RunComponents) -> list[Problem]:
    """Warn of a chat template whose turns end in a token that ends no completion."""
    assert components.task is not None and components.tokenizer is not None and components.config is not None
    ends = loading.end_tokens(components.recipe, components.tokenizer, components.config)
    return unended_turns(components.task, components.tokenizer, ends)


def unended_turns(task: Task, tokenizer: PreTrainedTokenizerBase, ends: Collection[int]) -> list[Problem]:
    """Compare the end of a turn of the chat template with the tokens that end a completion."""
    if not task.is_chat or not tokenizer.chat_template:
        return []
    answer = "zzz"
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    after = str(text).rpartition(answer)[2]
    if any(token in ends for token in tokenizer(after, add_special_tokens=False)["input_ids"]):
        return []
    tokens = ", ".join(map(str, tokenizer.convert_ids_to_tokens(sorted(ends))))
    closed = f"closes a turn with {after.strip()!r}" if after.strip() else "closes no turn"
    message = (
        f"the model's chat template {closed}, but a completion ends only at {tokens}: it would go on until "
        "max_completion_length. Set eos_token_id in the model's generation_config.json, or eos_token in its "
        "tokenizer_config.json."
    )
    return [Problem(message, "unended-completion", "model_name_or_path", level="warning")]


def check_text_end(components: RunComponents) -> list[Problem]:
    """Warn of plain-text prompts whose completions end only at a token that base models seldom write."""
    assert components.task is not None and components.tokenizer is not None
    task = components.task
    if task.is_chat or task.stop_strings:
        return []
    message = (
        "the prompts are plain text and the task names no stop_strings, so a completion ends only where the model "
        f"writes {components.tokenizer.eos_token}, which base models seldom do: most would be cut off. Give the task "
        "stop_strings (where the next problem would begin), or use chat prompts and an -Instruct model."
    )
    return [Problem(message, "unended-completion", "task.stop_strings", level="warning")]


def check_prompt_lengths(components: RunComponents) -> list[Problem]:
    """Prompts must leave room for a completion."""
    return list(components.prompt_lengths.problems) if components.prompt_lengths is not None else []


def check_gold_lengths(components: RunComponents) -> list[Problem]:
    """Warn of golds that don't fit into a completion."""
    assert components.task is not None and components.tokenizer is not None
    return gold_length_problems(components.recipe, components.task, components.tokenizer)


def _list(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
