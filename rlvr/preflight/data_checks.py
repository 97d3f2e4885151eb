"""Checks of the rows: columns, prompts, splits, and the rows that a reward refuses."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import SPLITS
from rlvr.config.reward_location import is_remote
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.preflight.components import RunComponents
from rlvr.scoring.registry import companion_function
from rlvr.scoring.reward import Reward

if TYPE_CHECKING:
    from rlvr.scoring.scorer import Scorer

# A data column of one of these names never reaches a reward, or breaks GRPOTrainer (trl/trainer/grpo_trainer.py).
RESERVED_COLUMNS = ("prompts", "completions", "completion", "completion_ids", "image", "images", "environment")
SHOWN_ROWS = 5


def _task(components: RunComponents) -> tuple[Task, str]:
    """The task, and its name for messages."""
    assert components.task is not None
    return components.task, f"task {components.recipe.task.name}"


def check_training_rows(components: RunComponents) -> list[Problem]:
    """There must be training rows with prompts."""
    task, name = _task(components)
    if len(task.train) == 0:
        return [Problem(f"{name}: the training split has no rows.", "no-rows", "task")]
    if "prompt" not in task.train.column_names:
        columns = ", ".join(task.train.column_names)
        message = f"{name}: there is no column prompt; the columns are {columns}."
        return [Problem(message, "missing-column", "prompt")]
    return []


def check_columns(components: RunComponents) -> list[Problem]:
    """Rewards must get their columns, and no column may have a name that GRPOTrainer uses itself."""
    task, name = _task(components)
    columns = task.train.column_names
    problems = [
        Problem(f"{name}: a column may not be called {column} (GRPOTrainer uses the name).", "reserved-column", column)
        for column in RESERVED_COLUMNS
        if column in columns
    ]
    for reward in components.all_rewards:
        missing = [column for column in reward.columns if column not in columns]
        if missing:
            message = (
                f"reward {reward.name} needs the column {' and '.join(missing)}, which the {name} doesn't have; it has "
                f"{', '.join(column for column in columns if column != 'prompt')}."
            )
            problems.append(Problem(message, "missing-column", missing[0]))
    return problems


def check_rows(components: RunComponents) -> list[Problem]:
    """Rows that a reward refuses. Reward servers check theirs in the reward trial."""
    task, _ = _task(components)
    columns = task.train.column_names
    checked = [
        reward
        for reward in components.all_rewards
        if not is_remote(reward.where) and all(column in columns for column in reward.columns)
    ]
    return [problem for reward in checked for problem in refused_rows(reward, task)]


def refused_rows(reward: Reward, task: Task, scorer: Scorer | None = None) -> list[Problem]:
    """Ask the `validate_rows` of the reward's file, if it defines one, about the rows of each split.

    Args:
        scorer: asks it on the reward's server, if the reward does not run here.
    """
    validate_rows = companion_function(reward.function, "validate_rows")
    if validate_rows is None:
        return []
    problems = []
    for split in SPLITS:
        rows = task.split(split)
        if len(rows) == 0:
            continue
        wanted = inspect.signature(validate_rows).parameters
        columns = {column: list(rows[column]) for column in rows.column_names if column in wanted}
        if scorer is None:
            faults = validate_rows(**{**columns, **reward.options})
        else:
            faults = scorer.validate_rows(reward, columns)
        refused = [(row, fault) for row, fault in enumerate(faults) if fault]
        if not refused:
            continue
        ids = rows["id"] if "id" in rows.column_names else None
        lines = [
            f"reward {reward.name}, {split}: {len(refused)} of {len(rows)} rows can't be scored. Correct or remove:"
        ]
        lines += [
            f"  row {row}{f' ({ids[row]})' if ids is not None else ''}: {fault}" for row, fault in refused[:SHOWN_ROWS]
        ]
        if len(refused) > SHOWN_ROWS:
            lines.append(f"  and {len(refused) - SHOWN_ROWS} more")
        problems.append(Problem("\n".join(lines), "refused-row", row=refused[0][0]))
    return problems


def check_prompts(components: RunComponents) -> list[Problem]:
    """All prompts of a split must be of one type, and none empty."""
    task, name = _task(components)
    problems = []
    for split in SPLITS:
        prompts = task.split(split)["prompt"] if len(task.split(split)) else []
        if len({type(prompt) for prompt in prompts}) > 1:
            message = f"{name}, {split}: some prompts are strings and some are messages. Use one of the two."
            problems.append(Problem(message, "mixed-prompts", "prompt"))
        empty = next((row for row, prompt in enumerate(prompts) if not prompt), None)
        if empty is not None:
            message = f"{name}, {split}, row {empty}: the prompt is empty."
            problems.append(Problem(message, "empty-prompt", "prompt", row=empty))
    return problems


def check_truncation_mask(components: RunComponents) -> list[Problem]:
    """TRL masks every completion without an end-of-sequence token, and a stop string is none."""
    task, name = _task(components)
    if not components.settings.get("mask_truncated_completions") or not task.stop_strings:
        return []
    message = (
        "mask_truncated_completions: TRL takes every completion without an end-of-sequence token as truncated, and "
        f"those of the {name} end at a stop string: all would be masked. Set it to false."
    )
    return [Problem(message, "all-masked", "mask_truncated_completions")]


def check_held_out_splits(components: RunComponents) -> list[Problem]:
    """The splits that a run measures on must have rows."""
    task, name = _task(components)
    problems = []
    if components.settings.get("eval_strategy", "no") != "no":
        if len(task.validation) == 0:
            message = (
                f"eval_strategy: the {name} has no validation rows. Give it some (most tasks have an option "
                "validation_rows), or set eval_strategy: no."
            )
            problems.append(Problem(message, "no-rows", "eval_strategy"))
        if not components.settings.get("ds3_gather_for_generation", True):
            message = (
                "eval_strategy with ds3_gather_for_generation: false: processes finish their rows at different times, "
                "and would wait for each other without end. Leave ds3_gather_for_generation at true."
            )
            problems.append(Problem(message, "conflicting-keys", "ds3_gather_for_generation"))
    evaluation = components.recipe.evaluation
    if evaluation is not None and len(task.split(evaluation.split)) == 0:
        message = (
            f"evaluation: the {name} has no rows in its split {evaluation.split}. Give it some, or remove the section "
            "evaluation."
        )
        problems.append(Problem(message, "no-rows", "evaluation.split"))
    return problems


def check_repeated_prompts(components: RunComponents) -> list[Problem]:
    """Note prompts that occur twice, and warn of held-out prompts that are trained on."""
    task, _ = _task(components)
    keys = {split: [_prompt_key(prompt) for prompt in _prompts(task, split)] for split in SPLITS}
    training_keys = set(keys["train"])
    problems = []
    repeated = len(keys["train"]) - len(training_keys)
    if repeated:
        message = f"{repeated} of {len(keys['train'])} training prompts are the same as another one"
        problems.append(Problem(message, "repeated-prompt", "prompt", level="note"))
    for split in SPLITS[1:]:
        leaked = [row for row, key in enumerate(keys[split]) if key in training_keys]
        if leaked:
            rows = ", ".join(map(str, leaked[:SHOWN_ROWS])) + (", …" if len(leaked) > SHOWN_ROWS else "")
            message = (
                f"{len(leaked)} of {len(keys[split])} {split} prompts are trained on (rows {rows}): an accuracy on "
                "them is no accuracy on new problems."
            )
            problems.append(Problem(message, "leaked-prompt", "prompt", row=leaked[0], level="warning"))
    return problems


def _prompts(task: Task, split: str) -> Sequence[Any]:
    return task.split(split)["prompt"] if len(task.split(split)) else []


def _prompt_key(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)
