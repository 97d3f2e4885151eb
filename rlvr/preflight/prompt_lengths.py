"""Prompts that leave no room for a completion, and completions that have no room for an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.console import ProgressBar
from rlvr.data.task import Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Prompt = str | list[dict[str, str]]

TOKENISED = 200  # prompts in any case, those with the most characters
AT_A_TIME = 256
GOLDS = 256  # rows whose golds are tokenised, spread evenly over the training split
TIGHT = 0.75  # of max_completion_length; a model writes more than a gold does
SHOWN = 5


@dataclass(frozen=True)
class Lengths:
    """What prompts take.

    Attributes:
        longest: tokens of the longest prompt.
        faults: a sentence for each split with prompts that leave too little room.
    """

    longest: int
    faults: tuple[str, ...] = ()


def prompt_lengths(recipe: Recipe, task: Task, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> Lengths:
    """Measures the prompts that a run will use against the positions that its model has.

    No prompt that could be too long is passed over, and few others are tokenised: a token stands for at least one byte,
    so a prompt of so many bytes has at most as many tokens, and those that a chat template adds.
    """
    from rlvr.modeling.generation import prompt_tokens

    needs = completions_of(recipe)
    prompts = {split: list(task.split(split)["prompt"]) for split in needs if len(task.split(split))}
    # Characters rank prompts nearly as tokens do.
    ranked = sorted((prompt for split in prompts.values() for prompt in split), key=_characters, reverse=True)
    several = ranked[:TOKENISED]
    counts = [len(ids) for ids in prompt_tokens(tokenizer, several)]
    longest = max(counts, default=0)
    room = positions(recipe, config)
    if room is None:
        return Lengths(longest)
    around = max((size - _bytes(prompt) for size, prompt in zip(_rendered(tokenizer, several), several, strict=True)))

    faults = []
    for split, split_prompts in prompts.items():
        left = room - needs[split]
        if left < 1:
            faults.append(
                f"Completions may have {needs[split]} tokens, and {recipe.settings['model_name_or_path']} has {room} "
                "positions: no room for a prompt. Lower max_completion_length (or evaluation.max_new_tokens)."
            )
            break
        suspects = [row for row, prompt in enumerate(split_prompts) if _bytes(prompt) + around > left]
        sizes = _sizes(tokenizer, [split_prompts[row] for row in suspects])
        longest = max([longest, *sizes])
        over = [row for row, tokens in zip(suspects, sizes, strict=True) if tokens > left]
        if over:
            rows = ", ".join(map(str, over[:SHOWN])) + (", …" if len(over) > SHOWN else "")
            faults.append(
                f"{len(over)} of {len(split_prompts)} {split} prompts are too long (rows {rows}; the longest has "
                f"{max(sizes)} tokens): with max_completion_length = {needs[split]} that is more than the {room} "
                f"positions of {recipe.settings['model_name_or_path']}. Prompts are never cut, nor rows dropped: use "
                "fewer shots, filter the rows, or lower max_completion_length."
            )
    return Lengths(longest, tuple(faults))


def completions_of(recipe: Recipe) -> dict[str, int]:
    """The splits that a run generates from, each with the tokens that a completion may have."""
    trained = recipe.settings.get("max_completion_length", 512)
    measured = (recipe.evaluation.max_new_tokens if recipe.evaluation is not None else None) or trained
    needs = {"train": trained}
    if recipe.settings.get("eval_strategy", "no") != "no":
        needs["validation"] = measured
    if recipe.evaluation is not None:
        needs[recipe.evaluation.split] = measured
    return needs


def positions(recipe: Recipe, config: PretrainedConfig) -> int | None:
    """The tokens that prompt and completion may have together; None where nothing says."""
    limits = [getattr(config.get_text_config(), "max_position_embeddings", None)]
    if recipe.settings.get("use_vllm"):
        limits.append(recipe.settings.get("vllm_max_model_length"))
    return min((limit for limit in limits if limit), default=None)


def gold_notes(recipe: Recipe, task: Task, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Whether the task's own perfect answers fit into `max_completion_length`; those that don't earn nothing."""
    if task.gold is None or len(task.train) == 0:
        return []
    rows = task.train.select(range(0, len(task.train), math.ceil(len(task.train) / GOLDS)))
    golds = [gold for gold in map(task.gold, rows) if gold is not None]
    if not golds:
        return []
    sizes = [len(ids) + 1 for ids in tokenizer(golds, add_special_tokens=False)["input_ids"]]  # and the token that ends
    limit = recipe.settings.get("max_completion_length", 512)
    over, tight = sum(size > limit for size in sizes), sum(size > TIGHT * limit for size in sizes)
    advice = f"Set max_completion_length to {math.ceil(2 * max(sizes) / 64) * 64}, and watch completions/clipped_ratio"
    if over:
        masked = recipe.settings.get("mask_truncated_completions")
        return [
            f"warning: {over} of {len(sizes)} golds of the task are longer than max_completion_length = {limit} tokens "
            f"(the longest has {max(sizes)}): such an answer is cut off before its end and earns nothing"
            + (", and mask_truncated_completions leaves it out altogether: steps of loss 0. " if masked else ". ")
            + advice
        ]
    if tight >= len(sizes) / 10:
        return [
            f"warning: {tight} of {len(sizes)} golds of the task take more than {TIGHT:.0%} of max_completion_length = "
            f"{limit} tokens, and a model writes more than a gold: many completions would be cut off. {advice}"
        ]
    return []


def _sizes(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt]) -> list[int]:
    from rlvr.modeling.generation import prompt_tokens

    if not prompts:
        return []
    sizes: list[int] = []
    with ProgressBar("long prompts", len(prompts)) as progress:
        for start in range(0, len(prompts), AT_A_TIME):
            batch = prompts[start : start + AT_A_TIME]
            sizes += [len(ids) for ids in prompt_tokens(tokenizer, batch)]
            progress.update(len(batch))
    return sizes


def _rendered(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt]) -> list[int]:
    """Bytes of each prompt as the model sees it, with what a chat template writes around it."""
    texts: Any = prompts
    if prompts and not isinstance(prompts[0], str):
        texts = tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, tokenize=False)
    return [len(text.encode()) for text in texts]


def _characters(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"] or "") for message in prompt)


def _bytes(prompt: Prompt) -> int:
    texts = [prompt] if isinstance(prompt, str) else [message["content"] or "" for message in prompt]
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
