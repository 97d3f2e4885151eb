"""Prompts that the chat template refuses, or that leave no room for a completion."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from rlvr.config.recipe import Recipe
from rlvr.console import ProgressBar
from rlvr.data.splits import prompt_characters
from rlvr.data.task import Task
from rlvr.dataset_columns import column_values
from rlvr.environments.loading import COLUMN
from rlvr.errors import Problem
from rlvr.modeling.generation import prompt_tokens

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Prompt = str | list[dict[str, str]]
Row = tuple[Prompt, str | None]  # with the label of its environment

ALWAYS_TOKENISED = 200  # prompts, those with the most characters
TOKENISED_AT_A_TIME = 256
SHOWN_ROWS = 5


@dataclass(frozen=True)
class PromptLengths:
    """The lengths of a run's prompts.

    Attributes:
        longest: tokens of the longest prompt.
        problems: prompts that can't be rendered, and each split with prompts that leave too little room.
    """

    longest: int
    problems: tuple[Problem, ...] = ()


def measure_prompts(
    recipe: Recipe,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
    tools: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> PromptLengths:
    """Compare the prompts that a run will use with the positions of its model.

    Prompts have the descriptions of their tools, but not what an environment's `reset` returns.

    No prompt that could be too long is missed, and few others are tokenised: a token stands for at least one byte, so
    a prompt has at most as many tokens as bytes, plus those that a chat template adds.

    Args:
        tools: their descriptions, by the labels of the environments.
    """
    completion_tokens = completion_limits(recipe)
    tools = tools or {}
    template = recipe.settings.get("chat_template_kwargs") or {}
    options: dict[str | None, Mapping[str, Any]] = {None: template}
    options |= {label: {**template, "tools": list(own)} for label, own in tools.items()}
    rows = {split: _rows(task, split, tools) for split in completion_tokens if len(task.split(split))}
    refused = [
        problem for split, own in rows.items() for problem in _refused_prompts(task, split, own, tokenizer, options)
    ]
    refused = refused or [*_unknown_tokens(task, rows, tokenizer, config, options)]
    if refused:
        return PromptLengths(0, tuple(refused))
    # Characters rank prompts nearly as tokens do.
    sizes_of_tools = {label: len(str(own.get("tools", ""))) for label, own in options.items()}
    ranked = sorted(
        (row for split in rows.values() for row in split),
        key=lambda row: -prompt_characters(row[0]) - sizes_of_tools[row[1]],
    )
    most_characters = ranked[:ALWAYS_TOKENISED]
    others = set(options) - {label for _, label in most_characters}
    most_characters += {label: (prompt, label) for prompt, label in ranked if label in others}.values()
    longest = max(map(len, _token_ids(tokenizer, most_characters, options)), default=0)
    positions = position_limit(recipe, config)
    if positions is None or not ranked:
        return PromptLengths(longest)
    template_bytes = 0
    if task.is_chat:
        template_bytes = max(
            len(_render(tokenizer, prompt, options[label]).encode()) - _bytes(prompt)
            for prompt, label in most_characters
        )

    model, problems = recipe.settings["model_name_or_path"], []
    for split, split_rows in rows.items():
        room = positions - completion_tokens[split]
        if room < 1:
            key = "max_completion_length" if split == "train" else "evaluation.max_new_tokens"
            message = (
                f"Completions may have {completion_tokens[split]} tokens, and {model} has {positions} positions: no "
                f"room for a prompt. Lower {key}."
            )
            problems.append(Problem(message, "completion-too-long", key))
            break
        suspects = [row for row, (prompt, _) in enumerate(split_rows) if _bytes(prompt) + template_bytes > room]
        with ProgressBar("long prompts", len(suspects)) as progress:
            sizes = []
            for ids in _token_ids(tokenizer, [split_rows[row] for row in suspects], options):
                sizes.append(len(ids))
                progress.update(1)
        longest = max([longest, *sizes])
        too_long = [row for row, tokens in zip(suspects, sizes, strict=True) if tokens > room]
        if too_long:
            message = (
                f"{len(too_long)} of {len(split_rows)} {split} prompts are too long (rows "
                f"{first_rows(too_long, task.split(split))}, at most {max(sizes)} tokens). With "
                f"max_completion_length = {completion_tokens[split]} they exceed the {positions} positions of "
                f"{model}. Prompts are never cut, and no row is dropped. Use "
                "fewer shots, lower max_completion_length, or drop the rows (under task: "
                f"max_prompt_characters: {min(prompt_characters(split_rows[row][0]) for row in too_long) - 1})."
            )
            problems.append(Problem(message, "prompt-too-long", "prompt", row=too_long[0]))
    return PromptLengths(longest, tuple(problems))


def _refused_prompts(
    task: Task,
    split: str,
    rows: Sequence[Row],
    tokenizer: PreTrainedTokenizerBase,
    template_options: Mapping[str | None, Mapping[str, Any]],
) -> Iterator[Problem]:
    """Render a prompt of each sequence of roles: one that the chat template refuses would end training at its step."""
    counts: dict[tuple[Any, ...], list[int]] = {}
    for row, (prompt, label) in enumerate(rows):
        if not isinstance(prompt, str):
            form = (label, *((message.get("role"), type(message.get("content"))) for message in prompt))
            counts.setdefault(form, []).append(row)
    for (label, *messages), places in counts.items():
        if any(kind not in (str, type(None)) for _, kind in messages):
            cause = "the content of a message is not text. Join its parts into one string"
        else:
            try:
                _render(tokenizer, rows[places[0]][0], template_options[label])
                continue
            except (TemplateError, TypeError) as error:
                roles = ", ".join(str(role) for role, _ in messages)
                cause = f"the model's chat template refuses the roles {roles}: {error}. Rename them, or drop the rows"
        message = (
            f"{split}: {len(places)} of {len(rows)} prompts (rows {first_rows(places, task.split(split))}) can't be "
            f"rendered: {cause}."
        )
        yield Problem(message, "unrenderable-prompt", "prompt", row=places[0])


def _unknown_tokens(
    task: Task,
    rows: Mapping[str, Sequence[Row]],
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
    template_options: Mapping[str | None, Mapping[str, Any]],
) -> Iterator[Problem]:
    """Find prompts and padding with tokens that the model has no embedding for: on a GPU they end the process."""
    size = getattr(config.get_text_config(), "vocab_size", None)
    if size is None or max(tokenizer.get_vocab().values(), default=0) < size:
        return
    fix = f"the model has {size} embeddings. Use the model's own tokenizer, or enlarge its embedding"
    if (tokenizer.pad_token_id or 0) >= size:
        message = f"The padding token {tokenizer.pad_token} has the id {tokenizer.pad_token_id}, and {fix}."
        yield Problem(message, "token-without-embedding", "model_name_or_path")
    for split, own in rows.items():
        highest = [max(ids, default=0) for ids in _token_ids(tokenizer, own, template_options)]
        if found := [row for row, token in enumerate(highest) if token >= size]:
            message = (
                f"{split}: {len(found)} of {len(own)} prompts (rows {first_rows(found, task.split(split))}) hold "
                f"tokens without an embedding, such as {tokenizer.convert_ids_to_tokens(max(highest))!r}: {fix}."
            )
            yield Problem(message, "token-without-embedding", "prompt", row=found[0])


def completion_limits(recipe: Recipe) -> dict[str, int]:
    """The splits that a run generates from, each with the tokens that a completion may have."""
    in_training = recipe.value("max_completion_length")
    in_evaluation = (recipe.evaluation.max_new_tokens if recipe.evaluation is not None else None) or in_training
    limits = {"train": in_training}
    if recipe.value("eval_strategy") != "no":
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


def first_rows(rows: Sequence[int], split: Dataset) -> str:
    """Format the first row numbers of a split, with ids if it has them: "0 (gsm8k-12), 7 (gsm8k-3), …"."""
    ids = split["id"] if "id" in split.column_names else None
    names = (str(row) if ids is None else f"{row} ({ids[row]})" for row in rows[:SHOWN_ROWS])
    return ", ".join(names) + (", …" if len(rows) > SHOWN_ROWS else "")


def _rows(task: Task, split: str, tools: Mapping[str, Any]) -> list[Row]:
    """The prompts of a split, each with the label of its environment; None without one, or for an unknown one."""
    prompts, data = task.prompts(split), task.split(split)
    labels = column_values(data, COLUMN) if COLUMN in data.column_names else [next(iter(tools), None)] * len(prompts)
    return [(prompt, label if label in tools else None) for prompt, label in zip(prompts, labels, strict=True)]


def _token_ids(
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    template_options: Mapping[str | None, Mapping[str, Any]],
) -> Iterator[list[int]]:
    for start in range(0, len(rows), TOKENISED_AT_A_TIME):
        for label, batch in itertools.groupby(rows[start : start + TOKENISED_AT_A_TIME], key=lambda row: row[1]):
            yield from prompt_tokens(tokenizer, [prompt for prompt, _ in batch], template_options[label])


def _render(tokenizer: PreTrainedTokenizerBase, prompt: Any, template_options: Mapping[str, Any]) -> str:
    return str(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **template_options))


def _bytes(prompt: Prompt) -> int:
    texts = [prompt] if isinstance(prompt, str) else [message["content"] or "" for message in prompt]
    return sum(len(text.encode()) for text in texts)
