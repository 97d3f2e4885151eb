"""Add the columns that rewards need and a file of completions lacks, from the recipe's task."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rlvr.config.specs import SPLITS
from rlvr.data.io import Row
from rlvr.data.mixture import COLUMN as TASK
from rlvr.data.task import ENDED, FROM_TRAINER, Task
from rlvr.environments.transcript import as_text
from rlvr.errors import InputError
from rlvr.formatting import one_line
from rlvr.reward_audit.completions import key_of, prompt_key, prompt_or_question
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read


def fill_columns(rows: Sequence[Row], rewards: Sequence[Reward], load: Callable[[], Task], task: str) -> str | None:
    """Add, in place, missing columns that rewards ask for, from the task's row with the same prompt.

    Optional columns, such as `language` of programs, are added if the task has them.

    Args:
        load: loads the task; called only if a column is missing.
        task: its name, for messages.

    Returns:
        A sentence on the added columns, or None without any.

    Raises:
        InputError: of kind "needs-training" (a reward asks for an argument that only training has) or
            "missing-column".
    """
    for reward in rewards:
        if missing := sorted(_only_in_training(reward.function)):
            raise InputError(
                f"The reward {reward.name} asks for {' and '.join(missing)}, which only a training run has. "
                "Score without it: --rewards '[…]' with the other rewards.",
                kind="needs-training",
                key=reward.name,
            )
    needed = sorted({column for reward in rewards for column in reward.columns} - {"prompt", "completion"})
    if any(reward.applies_to is not None for reward in rewards):
        needed.append(TASK)
    optional = sorted({column for reward in rewards for column in columns_read(reward)}.difference(needed))
    lacking = {}
    for number, row in enumerate(rows):
        names = [name for name in needed if row.get(name) is None] + [name for name in optional if name not in row]
        if names:
            lacking[number] = names
    if not lacking:
        return None
    try:
        known = _by_prompt(load(), [*needed, *optional])
    except InputError:
        if any(column not in row for row in rows for column in needed):
            raise
        return None  # only empty entries and options are missing: the rewards handle these
    filled: Counter[str] = Counter()
    for number, names in lacking.items():
        match = known.get(prompt_key(rows[number])) or {}
        added = {name: match[name] for name in names if name in match}
        rows[number].update(added)
        filled.update(added.keys())
    absent = [number for number in lacking if any(column not in rows[number] for column in needed)]
    if absent:
        raise _not_found(rows, absent, needed, known, task)
    if not filled:
        return None
    columns = " and ".join(f"{name} of {count:,} rows" for name, count in filled.items())
    return f"Added from the task {task}, by prompt: {columns}."


def _not_found(
    rows: Sequence[Row], absent: Sequence[int], needed: Sequence[str], known: dict[str, Row | None], task: str
) -> InputError:
    row = rows[absent[0]]
    missing = " and ".join(column for column in needed if column not in row)
    problem = f"{len(absent)} of {len(rows)} rows have no {missing}; the first is row {absent[0]}"
    fix = f"Add {missing} to the file"
    key = prompt_key(row)
    if key:
        fix += ", or use the recipe and the task options that the prompts came from"
        problem += f" ({one_line(as_text(prompt_or_question(row)), 80)})"
    if not key:
        cause = "it can't be looked up, because they have no prompt"
    elif key not in known:
        cause = f"the task {task} does not have this prompt"
    elif known[key] is None:
        cause = f"the task {task} has this prompt several times, with different values"
    else:
        cause = f"the task {task} does not have this column"
    first_missing = next(column for column in needed if column not in row)
    return InputError(f"{problem}: {cause}. {fix}.", kind="missing-column", key=first_missing, row=absent[0])


def _only_in_training(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    required = {parameter.name for parameter in parameters if parameter.default is parameter.empty}
    return required & (FROM_TRAINER - {"prompts", "completions", ENDED, "log_extra", "log_metric"})


def _by_prompt(task: Task, needed: Sequence[str]) -> dict[str, Row | None]:
    """The needed columns of every row of the task, by prompt, by question and by the last message of the prompt.

    None marks an ambiguous prompt: several rows share it, with different values.
    """
    known: dict[str, Row | None] = {}
    for split in SPLITS:
        for row in task.split(split):
            columns = {column: row[column] for column in needed if column in row}
            keys = {key_of(row["prompt"]), key_of(row.get("question"))}
            if isinstance(row["prompt"], list):
                keys.add(key_of(row["prompt"][-1].get("content")))
            for key in keys - {""}:
                if known.setdefault(key, columns) != columns:
                    known[key] = None
    return known
