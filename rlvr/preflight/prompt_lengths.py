"""Prompts that leave no room for a completion, and completions that have no room for an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.console import ProgressBar
from rlvr.data.task import Task
from rlvr.errors import Problem

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Prompt = str | list[dict[str, str]]

ALWAYS_TOKENISED = 200  # prompts, those with the most characters
TOKENISED_AT_A_TIME = 256
GOLD_ROWS = 256  # rows whose golds are tokenised, spread evenly over the training split
TIGHT = 0.75  # of max_completion_length; a model writes more than a gold does
SHOWN_ROWS = 5


@dataclass(frozen=True)
class PromptLengths:
    """The lengths of a run's prompts.

    Attributes:
        longest: tokens of the longest prompt.
        problems: one for each split with prompts that leave too little room.
    """

    longest: int
    problems: tuple[Problem, ...] = ()


def measure_prompts(
    recipe: Recipe, task: Task, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig
) -> PromptLengths:
    """Compare the prompts that a run will use with the positions of its model.

    No prompt that could be too long is missed, and few others are tokenised: a token stands for at least one byte, so
    a prompt has at most as many tokens as bytes, plus those that a chat template adds.
    """
    from rlvr.modeling.generation import prompt_tokens

    completion_tokens = completion_limits(recipe)
    prompts = {split: list(task.split(split)["prompt"]) for split in completion_tokens if len(task.split(split))}
    # Characters rank prompts nearly as tokens do.
    ranked = sorted((prompt for split in prompts.values() for prompt in split), key=_characters, reverse=True)
    most_characters = ranked[:ALWAYS_TOKENISED]
    longest = max((len(ids) for ids in prompt_tokens(tokenizer, most_characters)), default=0)
    positions = position_limit(recipe, config)
    if positions is None:
        return PromptLengths(longest)
    rendered = _rendered_bytes(tokenizer, most_characters)
    template_bytes = max(size - _bytes(prompt) for size, prompt in zip(rendered, most_characters, strict=True))

    model, problems = recipe.settings["model_name_or_path"], []
    for split, split_prompts in prompts.items():
        room = positions - completion_tokens[split]
        if room < 1:
            message = (
                f"Completions may have {completion_tokens[split]} tokens, and {model} has {positions} positions: no "
                "room for a prompt. Lower max_completion_length (or evaluation.max_new_tokens)."
            )
            problems.append(Problem(message, "completion-too-long", "max_completion_length"))
            break
        suspects = [row for row, prompt in enumerate(split_prompts) if _bytes(prompt) + template_bytes > room]
        sizes = _token_counts(tokenizer, [split_prompts[row] for row in suspects])
        longest = max([longest, *sizes])
        too_long = [row for row, tokens in zip(suspects, sizes, strict=True) if tokens > room]
        if too_long:
            rows = ", ".join(map(str, too_long[:SHOWN_ROWS])) + (", …" if len(too_long) > SHOWN_ROWS else "")
            message = (
                f"{len(too_long)} of {len(split_prompts)} {split} prompts are too long (rows {rows}; the longest has "
                f"{max(sizes)} tokens): with max_completion_length = {completion_tokens[split]} that is more than the "
                f"{positions} positions of {model}. Prompts are never cut, and no row is dropped. Use fewer shots, "
                "filter the rows, or lower max_completion_length."
            )
            problems.append(Problem(message, "prompt-too-long", "prompt", row=too_long[0]))
    return PromptLengths(longest, tuple(problems))


def completion_limits(recipe: Recipe) -> dict[str, int]:
    """The splits that a run generates from, each with the tokens that a completion may have."""
    in_training = recipe.settings.get("max_completion_length", 512)
    in_evaluation = (recipe.evaluation.max_new_tokens if recipe.evaluation is not None else None) or in_training
    limits = {"train": in_training}
    if recipe.settings.get("eval_strategy", "no") != "no":
        limits["validation"] = in_evaluation
    if recipe.evaluation is not None:
        limits[recipe.evaluation.split] = in_evaluation
    return limits


def position_limit(recipe: Recipe, config: PretrainedConfig) -> int | None:
    """The tokens that prompt and completion may have together; None if neither model nor recipe limits them."""
    limits = [getattr(config.get_text_config(), "max_position_embeddings", None)]
    if recipe.settings.get("use_vllm"):
        limits.append(recipe.settings.get("vllm_max_model_length"))
    return min((limit for limit in limits if limit), default=None)


def gold_length_problems(recipe: Recipe, task: Task, tokenizer: PreTrainedTokenizerBase) -> list[Problem]:
    """Whether the task's own perfect answers fit into `max_completion_length`; those that don't earn nothing."""
    if task.gold is None or len(task.train) == 0:
        return []
    rows = task.train.select(range(0, len(task.train), math.ceil(len(task.train) / GOLD_ROWS)))
    golds = [gold for gold in map(task.gold, rows) if gold is not None]
    if not golds:
        return []
    sizes = [len(ids) + 1 for ids in tokenizer(golds, add_special_tokens=False)["input_ids"]]  # 1: the token that ends
    limit = recipe.settings.get("max_completion_length", 512)
    too_long, tight = sum(size > limit for size in sizes), sum(size > TIGHT * limit for size in sizes)
    advice = f"Set max_completion_length to {math.ceil(2 * max(sizes) / 64) * 64}, and watch completions/clipped_ratio."
    if too_long:
        masked = recipe.settings.get("mask_truncated_completions")
        message = (
            f"{too_long} of {len(sizes)} golds of the task are longer than max_completion_length = {limit} tokens (the "
            f"longest has {max(sizes)}): such an answer is cut off before its end and earns nothing"
            + (", and mask_truncated_completions leaves it out altogether: steps of loss 0. " if masked else ". ")
            + advice
        )
    elif tight >= len(sizes) / 10:
        message = (
            f"{tight} of {len(sizes)} golds of the task take more than {TIGHT:.0%} of max_completion_length = {limit} "
            f"tokens, and a model writes more than a gold: many completions would be cut off. {advice}"
        )
    else:
        return []
    return [Problem(message, "gold-too-long", "max_completion_length", level="warning")]


def _token_counts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt]) -> list[int]:
    from rlvr.modeling.generation import prompt_tokens

    if not prompts:
        return []
    sizes: list[int] = []
    with ProgressBar("long prompts", len(prompts)) as progress:
        for start in range(0, len(prompts), TOKENISED_AT_A_TIME):
            batch = prompts[start : start + TOKENISED_AT_A_TIME]
            sizes += [len(ids) for ids in prompt_tokens(tokenizer, batch)]
            progress.update(len(batch))
    return sizes


def _rendered_bytes(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt]) -> list[int]:
    """Bytes of each prompt as the model sees it, with the text of a chat template around it."""
    texts: Any = prompts
    if prompts and not isinstance(prompts[0], str):
        texts = tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, tokenize=False)
    return [len(text.encode()) for text in texts]


def _characters(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"] or "") for message in prompt)


def _bytes(prompt: Prompt) -> int:
    texts = [prompt] if isinstance(prompt, str) else [message["content"] or "" for message in prompt]
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
