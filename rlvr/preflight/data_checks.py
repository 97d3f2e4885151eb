"""Rows that can't be trained on or measured with: columns, splits, and what the rewards have against them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import Recipe
from rlvr.config.reward_location import is_elsewhere
from rlvr.data.task import Task
from rlvr.scoring.registry import companion_function
from rlvr.scoring.reward import Reward

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr.scoring.scorer import Scorer

# A data column of one of these names never reaches a reward, or breaks GRPOTrainer (trl/trainer/grpo_trainer.py).
RESERVED_COLUMNS = ("prompts", "completions", "completion", "completion_ids", "image", "images", "environment")
SHOWN_ROWS = 5


def data_faults(recipe: Recipe, task: Task, rewards: Sequence[Reward]) -> list[str]:
    """What of the rows can't be trained on, measured, or scored by `rewards`, the recipe's metric among them."""
    faults = []
    columns = task.train.column_names
    if len(task.train) == 0:
        return [f"task {recipe.task.name}: the training split has no rows."]
    if "prompt" not in columns:
        return [f"task {recipe.task.name}: there is no column prompt; the columns are {', '.join(columns)}."]
    for name in RESERVED_COLUMNS:
        if name in columns:
            faults.append(f"task {recipe.task.name}: a column may not be called {name} (GRPOTrainer uses the name).")
    for reward in rewards:
        missing = [column for column in reward.columns if column not in columns]
        if missing:
            faults.append(
                f"reward {reward.name} needs the column {' and '.join(missing)}, which the task {recipe.task.name} "
                f"doesn't give; it gives {', '.join(column for column in columns if column != 'prompt')}."
            )
        if not missing and not is_elsewhere(reward.where):  # the servers are asked by try_rewards
            faults += row_faults(reward, task)
    for split in ("train", "validation", "test"):
        prompts = task.split(split)["prompt"] if len(task.split(split)) else []
        kinds = {type(prompt) for prompt in prompts}
        if len(kinds) > 1:
            faults.append(f"task {recipe.task.name}, {split}: some prompts are strings and some are messages; use one.")
        empty = next((row for row, prompt in enumerate(prompts) if not prompt), None)
        if empty is not None:
            faults.append(f"task {recipe.task.name}, {split}, row {empty}: the prompt is empty.")
    if recipe.settings.get("mask_truncated_completions") and task.stop_strings:
        faults.append(
            "mask_truncated_completions: TRL takes every completion without an end-of-sequence token for cut off, and "
            f"those of the task {recipe.task.name} end at a stop string, so none would be learnt from. Set it to false."
        )
    if recipe.settings.get("eval_strategy", "no") != "no":
        if len(task.validation) == 0:
            faults.append(
                f"eval_strategy: the task {recipe.task.name} has no validation rows; give it some (most tasks have an "
                "option validation_rows), or set eval_strategy: no."
            )
        if not recipe.settings.get("ds3_gather_for_generation", True):
            faults.append(
                "eval_strategy with ds3_gather_for_generation: false: processes finish their rows at different times, "
                "and would wait for one another for ever. Leave ds3_gather_for_generation at true."
            )
    if recipe.evaluation is not None and len(task.split(recipe.evaluation.split)) == 0:
        faults.append(
            f"evaluation: the task {recipe.task.name} has no rows in its split {recipe.evaluation.split}; give it some "
            "or remove the section evaluation."
        )
    return faults


def row_faults(reward: Reward, task: Task, scorer: Scorer | None = None) -> list[str]:
    """What the reward's own file has against rows of the data: its `validate_rows`, if it defines one, is asked once.

    Args:
        scorer: has it asked where the reward runs, if that is not here.
    """
    validate_rows = companion_function(reward.function, "validate_rows")
    if validate_rows is None:
        return []
    faults = []
    for split in ("train", "validation", "test"):
        rows = task.split(split)
        if len(rows) == 0:
            continue
        asked = inspect.signature(validate_rows).parameters
        columns = {column: list(rows[column]) for column in rows.column_names if column in asked}
        said = (
            validate_rows(**{**columns, **reward.options}) if scorer is None else scorer.validate_rows(reward, columns)
        )
        found = [(row, fault) for row, fault in enumerate(said) if fault]
        if found:
            ids = rows["id"] if "id" in rows.column_names else None
            named = [
                f"  row {row}{f' ({ids[row]})' if ids is not None else ''}: {fault}"
                for row, fault in found[:SHOWN_ROWS]
            ]
            more = [f"  and {len(found) - SHOWN_ROWS} more"] if len(found) > SHOWN_ROWS else []
            head = (
                f"reward {reward.name}, {split}: {len(found)} of {len(rows)} rows can't be scored; mend or remove them:"
            )
            faults.append("\n".join([head, *named, *more]))
    return faults


def data_notes(task: Task) -> list[str]:
    """Prompts that come twice, where that may not be meant."""
    keys = {name: [_key(prompt) for prompt in task.split(name)["prompt"]] for name in ("train", "validation", "test")}
    notes = []
    doubled = len(keys["train"]) - len(set(keys["train"]))
    if doubled:
        notes.append(f"{doubled} of {len(keys['train'])} training prompts are the same as another one")
    trained = set(keys["train"])
    for name in ("validation", "test"):
        shared = [row for row, key in enumerate(keys[name]) if key in trained]
        if shared:
            rows = ", ".join(map(str, shared[:SHOWN_ROWS])) + (", …" if len(shared) > SHOWN_ROWS else "")
            notes.append(
                f"warning: {len(shared)} of {len(keys[name])} {name} prompts are trained on (rows {rows}): an accuracy "
                "on them is no accuracy on new problems"
            )
    return notes


def turn_notes(task: Task, tokenizer: PreTrainedTokenizerBase, ends: Collection[int]) -> list[str]:
    """A chat template whose turns end in a token that ends no completion.

    Args:
        ends: the tokens that do.
    """
    if not task.is_chat or not tokenizer.chat_template:
        return []
    said = "zzz"
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": said}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    after = str(text).rpartition(said)[2]
    closing = tokenizer(after, add_special_tokens=False)["input_ids"]
    if any(token in ends for token in closing):
        return []
    shown = tokenizer.convert_ids_to_tokens(sorted(ends))
    closed = f"closes a turn with {after.strip()!r}" if after.strip() else "closes no turn"
    return [
        f"warning: the model's chat template {closed}, but a completion ends only at {', '.join(map(str, shown))}: it "
        "would go on until max_completion_length. Set eos_token_id in the model's generation_config.json, or eos_token "
        "in its tokenizer_config.json"
    ]


def _key(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)
