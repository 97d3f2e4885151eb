"""Checks of the rows: columns, prompts, splits, repetitions, and the rows that a reward refuses."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rlvr.config.reward_location import is_remote
from rlvr.config.specs import SPLITS
from rlvr.data.splits import question_key
from rlvr.data.task import RESERVED_COLUMNS, Task
from rlvr.dataset_columns import column_values
from rlvr.errors import InputError, Problem
from rlvr.evaluation.statistics import wilson
from rlvr.preflight.components import RunComponents
from rlvr.preflight.prompt_lengths import SHOWN_ROWS, first_rows
from rlvr.scoring.registry import companion_function
from rlvr.scoring.reward import Reward

WARNING = "warning: "  # begins what `validate_rows` says of a row that training can use
# Rows with which the 95 % interval of an accuracy is at most ±10 and ±5 points wide. A wider one than the first can't
# show what a short training gains.
MIN_ROWS, GOOD_ROWS = 93, 381
# What a machine lacks that runs programs. A reward that runs on other machines does not need it here.
_OF_THIS_MACHINE = ("sandbox-unavailable", "compiler-missing", "compiler-incomplete", "compiler-not-confined")


def _task(components: RunComponents) -> tuple[Task, str]:
    """The task, and its name for messages."""
    assert components.task is not None
    return components.task, f"task {components.recipe.task_name}"


def tasks_with_rewards(components: RunComponents) -> Iterator[tuple[Task, str, list[Reward]]]:
    """Each task of the recipe with its name for messages, and the rewards that apply to it."""
    for name, task in components.tasks:
        yield task, f"task {name}", [reward for reward in components.all_rewards if reward.applies(name)]


def check_training_rows(components: RunComponents) -> Iterator[Problem]:
    """There must be training rows with prompts."""
    task, name = _task(components)
    if len(task.train) == 0:
        yield Problem(f"{name}: the training split has no rows.", "no-rows", "task")
    elif "prompt" not in task.train.column_names:
        columns = ", ".join(task.train.column_names)
        message = f"{name}: the column prompt is missing. The columns are {columns}."
        yield Problem(message, "missing-column", "prompt")


def check_columns(components: RunComponents) -> Iterator[Problem]:
    """Rewards must get their columns, and no column may have a name that GRPOTrainer uses itself."""
    for task, name, rewards in tasks_with_rewards(components):
        columns = task.train.column_names
        for column in sorted(RESERVED_COLUMNS.intersection(columns)):
            message = f"{name}: a column may not be called {column} (GRPOTrainer uses the name)."
            yield Problem(message, "reserved-column", column)
        other = ", let it apply to other tasks (applies_to)" if components.recipe.is_mixture else ""
        for reward in rewards:
            missing = [column for column in reward.columns if column not in columns]
            if missing:
                message = (
                    f"The reward {reward.name} needs the column {' and '.join(missing)}, but the {name} has "
                    f"only {', '.join(column for column in columns if column != 'prompt')}. Add the column (in the "
                    f"task jsonl with columns: {{{missing[0]}: THEIR NAME}}){other}, or remove the reward."
                )
                problem = Problem(message, "missing-column", missing[0])
                yield components.recipe.locate(problem, f"rewards.{reward.name}")


def check_rows(components: RunComponents) -> Iterator[Problem]:
    """Rows that a reward refuses. The file of a reward is here, too, if other machines call the reward."""
    for task, _, rewards in tasks_with_rewards(components):
        for reward in rewards:
            if set(reward.columns) <= set(task.train.column_names):
                try:
                    yield from refused_rows(reward, task)
                except InputError as error:
                    if not is_remote(reward.where) or error.kind not in _OF_THIS_MACHINE:
                        raise


def refused_rows(reward: Reward, task: Task) -> Iterator[Problem]:
    """Ask the `validate_rows` of the reward's file, if it defines one, about the rows of each split."""
    validate_rows = companion_function(reward.function, "validate_rows")
    if validate_rows is None:
        return
    wanted = inspect.signature(validate_rows).parameters.keys() - reward.defaults.keys()
    for split in SPLITS:
        rows = task.split(split)
        if len(rows) == 0:
            continue
        columns = {column: list(column_values(rows, column)) for column in rows.column_names if column in wanted}
        faults = validate_rows(**{**columns, **reward.options})
        names = [f" ({name})" for name in column_values(rows, "id")] if "id" in rows.column_names else [""] * len(rows)
        found = [(f"  row {row}{names[row]}", str(fault), row) for row, fault in enumerate(faults) if fault]
        for is_doubtful, what in ((False, "can't be scored. Correct or remove"), (True, "may be wrong. Check")):
            listed = [one for one in found if one[1].startswith(WARNING) == is_doubtful]
            if not listed:
                continue
            lines = [
                f"reward {reward.name}, {split}: {len(listed)} of {len(rows)} rows {what} (counted in the split, from "
                f"0{'; in brackets: id' if names[0] else ''}):",
                *(f"{place}: {fault.removeprefix(WARNING)}" for place, fault, _ in listed[:SHOWN_ROWS]),
            ]
            if len(listed) > SHOWN_ROWS:
                lines.append(f"  and {len(listed) - SHOWN_ROWS} more")
            message, row = "\n".join(lines), listed[0][2]
            if is_doubtful:
                yield Problem(message, "doubtful-row", row=row, level="warning")
            else:
                yield Problem(message, "refused-row", row=row)


def check_prompts(components: RunComponents) -> Iterator[Problem]:
    """No prompt may be empty."""
    task, name = _task(components)
    for split in SPLITS:
        prompts = task.prompts(split)
        empty = next((row for row, prompt in enumerate(prompts) if not prompt), None)
        if empty is not None:
            message = f"{name}, {split}, row {empty}: the prompt is empty."
            yield Problem(message, "empty-prompt", "prompt", row=empty)


def check_truncation_mask(components: RunComponents) -> Iterator[Problem]:
    """TRL masks every completion without an end-of-sequence token, and a stop string is none."""
    task, name = _task(components)
    if components.settings.get("mask_truncated_completions") and task.stop_strings:
        message = (
            "mask_truncated_completions: TRL masks every completion without an end-of-sequence token, and those of the "
            f"{name} end at a stop string. Set it to false."
        )
        yield Problem(message, "all-masked", "mask_truncated_completions")


def check_held_out_splits(components: RunComponents) -> Iterator[Problem]:
    """The splits that a run measures on must have rows."""
    task, name = _task(components)
    validates = components.recipe.value("eval_strategy") != "no"
    if validates and len(task.validation) == 0:
        message = (
            f"eval_strategy: the {name} has no validation rows. Give it some (most tasks have an option "
            "validation_rows), or set eval_strategy: no."
        )
        yield Problem(message, "no-rows", "eval_strategy")
    if validates and not components.recipe.value("ds3_gather_for_generation"):
        message = (
            "eval_strategy with ds3_gather_for_generation: false: processes finish their rows at different times, "
            "and would wait for each other without end. Leave ds3_gather_for_generation at true."
        )
        yield Problem(message, "conflicting-keys", "ds3_gather_for_generation")
    evaluation = components.recipe.evaluation
    for each, name, _ in tasks_with_rewards(components):
        if evaluation is not None and len(each.split(evaluation.split)) == 0:
            message = (
                f"evaluation: the {name} has no rows in its split {evaluation.split}. Give it some, or remove the "
                "section evaluation."
            )
            yield Problem(message, "no-rows", "evaluation.split")


def prompt_key(prompt: str | list[dict[str, Any]]) -> str:
    """Return a prompt, or its messages, as compared between rows; see `question_key`."""
    if isinstance(prompt, str):
        return question_key(prompt)
    messages = [{**message, "content": question_key(message.get("content"))} for message in prompt]
    return json.dumps(messages, sort_keys=True, default=str)


def check_leaked_prompts(components: RunComponents) -> Iterator[Problem]:
    """Warn of held-out prompts that are trained on."""
    task, _ = _task(components)
    training_keys = {prompt_key(prompt) for prompt in task.prompts("train")}
    for split in SPLITS[1:]:
        keys = [prompt_key(prompt) for prompt in task.prompts(split)]
        leaked = [row for row, key in enumerate(keys) if key in training_keys]
        if leaked:
            message = (
                f"{len(leaked)} of {len(keys)} {split} prompts are trained on (rows "
                f"{first_rows(leaked, task.split(split))}): an accuracy on them is no accuracy on new problems."
            )
            yield Problem(message, "leaked-prompt", "prompt", row=leaked[0], level="warning")


def check_repeated_prompts(components: RunComponents) -> Iterator[Problem]:
    """Prompts that occur more than once in a split."""
    pairs = ((name, task, split) for name, task in components.tasks for split in SPLITS)
    for name, task, split in pairs:
        keys = [prompt_key(prompt) for prompt in task.prompts(split)]
        counts = Counter(keys)
        repeated = len(keys) - len(counts)
        if not repeated:
            continue
        effect = (
            "they are trained on more often than the others"
            if split == "train"
            else "an accuracy counts them as independent, so its interval is too narrow"
        )
        row = next(row for row, key in enumerate(keys) if counts[key] > 1)
        yield Problem(
            f"task {name}, {split}: {repeated:,} of {len(keys):,} prompts repeat an earlier one "
            f"(row {row} occurs {counts[keys[row]]:,} times): {effect}. Remove the repeated rows.",
            "repeated-prompt",
            "prompt",
            row=row,
            level="warning",
        )


def check_held_out_size(components: RunComponents) -> Iterator[Problem]:
    """The held-out split must be large enough for an accuracy that says something."""
    evaluation = components.recipe.evaluation
    if evaluation is None:
        return
    for name, task in components.tasks:
        available = len(task.split(evaluation.split))
        rows = min(available, evaluation.rows or available)
        if not rows or rows >= MIN_ROWS:
            continue
        interval = wilson(rows / 2, rows)  # of an accuracy of 50 %, where it is widest
        message = (
            f"evaluation: the {rows:,} rows of the split {evaluation.split} of {name} give a 95 % interval of up to "
            f"±{50 * (interval.high - interval.low):.0f} points, which hides what training gains. Use {MIN_ROWS} "
            f"rows for 10 points, or {GOOD_ROWS} rows for 5 points."
        )
        yield Problem(message, "small-split", "evaluation.split", level="warning")
