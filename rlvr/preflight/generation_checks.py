"""Checks of how rollouts are generated: what ends a completion, what samples it, what generating costs."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rlvr.config import schema
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.modeling import loading
from rlvr.modeling.generation import LEFT_OPEN, SET_BY_TRL
from rlvr.preflight.components import RunComponents

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

GOLD_ROWS = 256  # rows whose golds are tokenised, spread evenly over the training split
# Options of transformers and vLLM that are keys of a recipe, by their names there.
KEYS_OF_GENERATION = {
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")},
    **dict.fromkeys(("max_new_tokens", "max_length", "max_tokens"), "max_completion_length"),
    **dict.fromkeys(("num_return_sequences", "n"), "num_generations"),
}
# Options with which a generation fails, or all completions of a group are equal.
REFUSED_IN_GENERATION = {
    **dict.fromkeys(("do_sample", "num_beams", "num_beam_groups", "penalty_alpha"), "completions must be sampled"),
    **dict.fromkeys(("stop_strings", "stop"), "the task says where a turn ends (docs/tasks.md)"),
    **dict.fromkeys(
        ("return_dict_in_generate", "output_scores", "output_logits", "output_attentions", "output_hidden_states"),
        "TRL reads tokens alone",
    ),
}
TIGHT = 0.75  # of max_completion_length; a model writes more than a gold does


def check_generation_config(components: RunComponents) -> Iterator[Problem]:
    """Note the model's own generation settings that are not used."""
    assert components.config is not None
    generation = loading.load_generation_config(components.recipe, components.config)
    return unused_generation_settings(components.settings, generation)


def unused_generation_settings(settings: Any, generation: GenerationConfig) -> Iterator[Problem]:
    """Note what of a model's generation_config.json the recipe, or TRL's default, replaces."""
    used = {**SET_BY_TRL, **LEFT_OPEN}
    used |= {name: settings[name] for name in used if settings.get(name) is not None}
    used |= settings.get("generation_kwargs") or {}
    unused = {
        name: value
        for name in (*SET_BY_TRL, *LEFT_OPEN)
        if (value := getattr(generation, name, None)) is not None and value != used[name]
    }
    if unused:
        replaced = {name: used[name] for name in unused if used[name] is not None}
        message = (
            f"the model's own {_list(unused)} (generation_config.json) is not used: rollouts are sampled with "
            f"{_list(replaced) if replaced else 'none of them'}, from the recipe or TRL's defaults"
        )
        yield Problem(message, "unused-generation-setting", next(iter(unused)), level="note")


def check_generation_kwargs(components: RunComponents) -> Iterator[Problem]:
    """transformers ignores an unknown option, and refuses a wrong value only at the first generation.

    An option that is a key of the recipe would replace its value, which recipe.yaml and the report go on to show.
    """
    options = components.settings.get("generation_kwargs") or {}
    for name in REFUSED_IN_GENERATION.keys() & options.keys():
        message = f"generation_kwargs: {name} can't be used: {REFUSED_IN_GENERATION[name]}. Remove it."
        yield Problem(message, "conflicting-keys", "generation_kwargs")
    for name in KEYS_OF_GENERATION.keys() & options.keys():
        key = KEYS_OF_GENERATION[name]
        message = f"generation_kwargs: {name} would replace {key}. Remove it, and set {key}: {options[name]}."
        yield Problem(message, "conflicting-keys", "generation_kwargs", suggestion=key)
    if components.settings.get("use_vllm"):
        return
    from transformers import GenerationConfig

    try:
        GenerationConfig(cache_implementation=components.settings.get("cache_implementation")).validate()
    except ValueError as error:
        yield Problem(str(error), "unknown-choice", "cache_implementation")
    known = vars(GenerationConfig())
    for key, value in options.items():
        if key in KEYS_OF_GENERATION or key in REFUSED_IN_GENERATION:
            continue
        if key not in known:
            message = f"generation_kwargs has no option {key}. {schema.hint(key, known)}"
            yield Problem(message, "unknown-key", "generation_kwargs")
        elif key in schema.fields() and (fault := schema.value_fault(key, value)):
            yield Problem(f"generation_kwargs: {key} {fault.text}", fault.kind, "generation_kwargs")


def check_layerwise_gathering(components: RunComponents) -> Iterator[Problem]:
    """Generation under ZeRO-3 without gathering looks like a hang."""
    if components.settings.get("ds3_gather_for_generation") is False:
        message = (
            "ds3_gather_for_generation: false: under ZeRO-3 every layer is gathered from all GPUs again for every "
            f"token, up to {components.settings.get('max_completion_length', 512)} times a generation instead of once; "
            "it looks like a hang (huggingface/trl#3858). Set it to true unless one GPU can't hold the gathered "
            "weights: 0.6 bytes per parameter in 4 bits, 2 in 16."
        )
        yield Problem(message, "slow-generation", "ds3_gather_for_generation", level="warning")


def check_turn_end(components: RunComponents) -> Iterator[Problem]:
    """Warn of a chat template whose turns end in a token that ends no completion."""
    assert components.task is not None and components.tokenizer is not None and components.config is not None
    ends = loading.end_tokens(components.recipe, components.tokenizer, components.config)
    return unended_turns(components.task, components.tokenizer, ends)


def unended_turns(task: Task, tokenizer: PreTrainedTokenizerBase, ends: Collection[int]) -> Iterator[Problem]:
    """Compare the end of a turn of the chat template with the tokens that end a completion."""
    if not task.is_chat or not tokenizer.chat_template:
        return
    answer = "zzz"
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": answer}]
    from jinja2 import TemplateError

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


def check_template_options(components: RunComponents) -> Iterator[Problem]:
    """Warn of options for the chat template that it does not read: `enable_thinkin` would leave thoughts on."""
    assert components.tokenizer is not None
    return unread_template_options(
        components.settings.get("chat_template_kwargs") or {}, components.tokenizer.chat_template
    )


def unread_template_options(options: Mapping[str, Any], template: object) -> Iterator[Problem]:
    """Compare options with the variables of a chat template."""
    from jinja2 import Environment, TemplateSyntaxError, meta

    try:
        parsed = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(str(template))
    except TemplateSyntaxError:  # it has tags of transformers' own
        return
    variables = meta.find_undeclared_variables(parsed)
    for name in options if isinstance(template, str) else ():
        if name not in variables:
            close = schema.nearest(name, variables)
            fix = f"Did you mean {close[0]}?" if close else "Remove it."
            message = f"chat_template_kwargs: the model's chat template does not read {name}. {fix}"
            suggestion = close[0] if close else None
            yield Problem(message, "unused-key", "chat_template_kwargs", level="warning", suggestion=suggestion)


def check_dates(components: RunComponents) -> Iterator[Problem]:
    """Warn of a chat template that writes today's date into the prompts."""
    assert components.task is not None and components.tokenizer is not None
    options = components.settings.get("chat_template_kwargs") or {}
    return dated_prompts(components.task, components.tokenizer, options)


def dated_prompts(task: Task, tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]) -> Iterator[Problem]:
    """Look for what the template's `strftime_now` returns today in a rendered prompt."""
    template = tokenizer.chat_template
    formats = re.findall(r"""strftime_now\(\s*["']([^"']+)["']""", template) if isinstance(template, str) else []
    if not task.is_chat or not formats:
        return
    turns = [{"role": "user", "content": "Hello"}]
    text = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **options))
    dates = [date for form in formats if (date := datetime.now().strftime(form)) in text]
    if dates:
        example = ": {date_string: 26 Jul 2024}" if "date_string" in template else ""
        message = (
            f"the model's chat template writes today's date ({dates[0]}) into each prompt: a run that is resumed or "
            f"repeated on another day has other prompts. Set a fixed date by chat_template_kwargs{example}."
        )
        yield Problem(message, "dated-prompt", "chat_template_kwargs", level="warning")


def check_text_end(components: RunComponents) -> Iterator[Problem]:
    """Warn of plain-text prompts whose completions end only at a token that base models seldom write."""
    assert components.task is not None and components.tokenizer is not None
    if not components.task.is_chat and not components.task.stop_strings:
        message = (
            "the prompts are plain text and the task names no stop_strings, so a completion ends only where the model "
            f"writes {components.tokenizer.eos_token}, which base models seldom do: most would be cut off. Give the "
            "task stop_strings (where the next problem would begin), or use chat prompts and an -Instruct model."
        )
        yield Problem(message, "unended-completion", "task.stop_strings", level="warning")


def check_prompt_lengths(components: RunComponents) -> Sequence[Problem]:
    """Prompts must leave room for a completion."""
    return components.prompt_lengths.problems if components.prompt_lengths is not None else ()


def check_gold_lengths(components: RunComponents) -> Iterator[Problem]:
    """Warn of golds, the task's perfect answers, that don't fit into a completion: they earn nothing."""
    task, settings, train = components.task, components.settings, components.train
    assert task is not None and train is not None and components.tokenizer is not None
    if task.gold is None:
        return
    rows = train.select(range(0, len(train), math.ceil(len(train) / GOLD_ROWS)))
    golds = [gold for gold in map(task.gold, rows) if gold is not None]
    tokens = components.tokenizer(golds, add_special_tokens=False)["input_ids"] if golds else []
    sizes = [len(ids) + 1 for ids in tokens]  # 1: the token that ends
    limit = settings.get("max_completion_length", 512)
    measured = components.recipe.evaluation.max_new_tokens if components.recipe.evaluation is not None else None
    if (cut := sum(size > (measured or limit) for size in sizes)) and measured is not None and measured < limit:
        message = (
            f"evaluation.max_new_tokens is {measured}, and {cut} of {len(sizes)} golds of the task are longer (the "
            f"longest has {max(sizes)} tokens): such an answer is cut off and counts as wrong. Remove it, or raise it."
        )
        yield Problem(message, "gold-too-long", "evaluation.max_new_tokens", level="warning")
    too_long, tight = sum(size > limit for size in sizes), sum(size > TIGHT * limit for size in sizes)
    if too_long:
        consequence = "such an answer is cut off before its end and mostly earns nothing"
        if settings.get("mask_truncated_completions"):
            consequence += ", and mask_truncated_completions leaves it out altogether: steps of loss 0"
        message = (
            f"{too_long} of {len(sizes)} golds of the task are longer than max_completion_length = {limit} tokens (the "
            f"longest has {max(sizes)}): {consequence}."
        )
    elif tight and tight >= len(sizes) / 10:
        message = (
            f"{tight} of {len(sizes)} golds of the task take more than {TIGHT:.0%} of max_completion_length = {limit} "
            "tokens, and a model writes more than a gold: many completions would be cut off."
        )
    else:
        return
    fix = f"Set max_completion_length to {math.ceil(2 * max(sizes) / 64) * 64}, and watch completions/clipped_ratio."
    yield Problem(f"{message} {fix}", "gold-too-long", "max_completion_length", level="warning")


def _list(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
