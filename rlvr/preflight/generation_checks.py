"""Checks of how rollouts are generated: what ends a completion, what samples it, what generating costs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from rlvr.config import schema
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.modeling import loading
from rlvr.modeling.generation import end_tokens
from rlvr.preflight.components import RunComponents

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Options of transformers and vLLM that are keys of a recipe, by their names there.
KEYS_OF_GENERATION = {
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")},
    **dict.fromkeys(("max_new_tokens", "max_length", "max_tokens"), "max_completion_length"),
    **dict.fromkeys(("num_return_sequences", "n"), "num_generations"),
}


def check_generation_kwargs(components: RunComponents) -> Iterator[Problem]:
    """transformers ignores an unknown option.

    An option that is a key of the recipe would replace its value, which recipe.yaml and the report go on to show.
    """
    options = components.settings.get("generation_kwargs") or {}
    for name in KEYS_OF_GENERATION.keys() & options.keys():
        key = KEYS_OF_GENERATION[name]
        message = f"generation_kwargs: {name} would replace {key}. Remove it, and set {key}: {options[name]}."
        yield Problem(message, "conflicting-keys", "generation_kwargs", suggestion=key)
    if components.settings.get("use_vllm"):
        return
    from transformers import GenerationConfig

    known = vars(GenerationConfig())
    for key in options.keys() - known.keys() - KEYS_OF_GENERATION.keys():
        message = f"generation_kwargs has no option {key}. {schema.hint(key, known)}"
        yield Problem(message, "unknown-key", "generation_kwargs")


def check_layerwise_gathering(components: RunComponents) -> Iterator[Problem]:
    """Generation under ZeRO-3 without gathering looks like a hang."""
    if components.settings.get("ds3_gather_for_generation") is False:
        message = (
            "ds3_gather_for_generation: false: ZeRO-3 gathers every layer from all GPUs for every token, "
            f"{components.settings.get('max_completion_length', 512)} times per generation, which looks like a hang "
            "(huggingface/trl#3858). Set it to true unless one GPU can't hold the gathered "
            "weights: 0.6 bytes per parameter in 4 bits, 2 in 16."
        )
        yield Problem(message, "slow-generation", "ds3_gather_for_generation", level="warning")


def check_turn_end(components: RunComponents) -> Iterator[Problem]:
    """Warn of a chat template whose turns end in a token that ends no completion."""
    assert components.task is not None and components.tokenizer is not None and components.config is not None
    config = loading.load_generation_config(components.recipe, components.config)
    return unended_turns(components.task, components.tokenizer, end_tokens(config, components.tokenizer))


def unended_turns(task: Task, tokenizer: PreTrainedTokenizerBase, ends: Collection[int]) -> Iterator[Problem]:
    """Compare the end of a turn of the chat template with the tokens that end a completion."""
    if not task.is_chat or not tokenizer.chat_template:
        return
    answer = "zzz"
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": answer}]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False)
    except TemplateError:
        return  # check_prompt_lengths reports prompts that can't be rendered
    after = str(text).rpartition(answer)[2]
    if not any(token in ends for token in tokenizer(after, add_special_tokens=False)["input_ids"]):
        tokens = ", ".join(map(str, tokenizer.convert_ids_to_tokens(sorted(ends))))
        closed = f"closes a turn with {after.strip()!r}" if after.strip() else "closes no turn"
        message = (
            f"the model's chat template {closed}, but a completion ends only at {tokens}: it would go on until "
            "max_completion_length. Set eos_token_id in the model's generation_config.json, or eos_token in its "
            "tokenizer_config.json."
        )
        yield Problem(message, "unended-completion", "model_name_or_path", level="warning")


def check_text_end(components: RunComponents) -> Iterator[Problem]:
    """Warn of plain-text prompts whose completions end only at a token that base models seldom write."""
    assert components.task is not None and components.tokenizer is not None
    if not components.task.is_chat and not components.task.stop_strings:
        message = (
            "the prompts are plain text without stop_strings, so a completion ends only where the model writes "
            f"{components.tokenizer.eos_token}. Base models seldom do, and most completions would be cut off. Give the "
            "task stop_strings (where the next problem would begin), or use chat prompts and an -Instruct model."
        )
        yield Problem(message, "unended-completion", "task.stop_strings", level="warning")


def check_prompt_lengths(components: RunComponents) -> Sequence[Problem]:
    """Prompts must leave room for a completion."""
    return components.prompt_lengths.problems if components.prompt_lengths is not None else ()
