"""Mix several tasks into one: the rows of a recipe with `tasks:`.

An epoch has every training row of every task at least once, and as many prompts of each task as its weight says: the
task with the most rows for its weight has each of its rows once, and the others repeat theirs. Prompts of the tasks
alternate evenly; the trainer then shuffles the epoch by the recipe's seed. Without weights, each row occurs once.
Held-out splits are the tasks' own, one after another.

Each row has the column `task`, the label of its task. A column that a task lacks is None in its rows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlvr.config.specs import SPLITS
from rlvr.data.splits import question_key
from rlvr.data.task import Task
from rlvr.dataset_columns import column_values
from rlvr.errors import InputError
from rlvr.formatting import count

if TYPE_CHECKING:
    from datasets import Dataset

COLUMN = "task"
MAX_PROMPTS = 10_000_000  # of an epoch


def mix(tasks: Mapping[str, Task], weights: Mapping[str, float] | None = None) -> Task:
    """Mix tasks, by label, as the head of this file says.

    Training rows whose question is held out by another task are dropped. The mixture has an answer column only if all
    tasks have the same; `mixed` keeps the column of each.

    Raises:
        InputError: a task has no training rows, or two tasks can't be in one run.
    """
    notes = [f"{label}: {note}" for label, task in tasks.items() for note in task.notes]
    tasks, dropped = _without_held_out_questions(tasks)
    _check_together(tasks)
    order, shares = interleave({label: len(task.train) for label, task in tasks.items()}, weights)
    tasks = {label: replace(task, **_labelled(task, label)) for label, task in tasks.items()}
    splits = {split: _join([task.split(split) for task in tasks.values()]) for split in SPLITS}
    answers = {task.answer for task in tasks.values()}
    golds = {label: task.gold for label, task in tasks.items() if task.gold is not None}

    def gold(row: Mapping[str, Any]) -> str | None:
        return golds[row[COLUMN]](row) if row[COLUMN] in golds else None

    return Task(
        train=splits["train"].select(order),
        validation=splits["validation"],
        test=splits["test"],
        stop_strings=next(iter(tasks.values())).stop_strings,
        notes=(*notes, *dropped, f"An epoch has {len(order):,} prompts: {'; '.join(shares)}."),
        gold=gold if golds else None,
        answer=answers.pop() if len(answers) == 1 else None,
        mixed=tasks,
    )


def interleave(rows: Mapping[str, int], weights: Mapping[str, float] | None = None) -> tuple[list[int], list[str]]:
    """Order the rows of tasks that follow one another, for an epoch.

    Args:
        rows: of each task.
        weights: of each task; None for those of the rows.

    Returns:
        Row numbers, and a phrase on the prompts of each task.

    Raises:
        InputError: the weights repeat rows too often.
    """
    weights = weights or {label: float(number) for label, number in rows.items()}
    unit = max(number / weights[label] for label, number in rows.items())  # prompts of an epoch by weight
    prompts = {label: max(round(unit * weights[label]), number) for label, number in rows.items()}
    total = sum(prompts.values())
    if total > MAX_PROMPTS:
        most = max(prompts, key=lambda label: prompts[label] / rows[label])
        raise InputError(
            f"tasks: with these weights an epoch would have {total:,} prompts, and each row of {most} "
            f"{prompts[most] // rows[most]:,} times. Lower its weight, or limit the rows of the others (limit_train).",
            kind="out-of-range",
            key="tasks",
        )
    places: list[tuple[float, int, int]] = []
    phrases = []
    start = 0
    for position, (label, number) in enumerate(rows.items()):
        passes, rest = divmod(prompts[label], number)
        own = [row for _ in range(passes) for row in range(number)]
        own += sorted(random.Random(f"tasks/{label}").sample(range(number), rest))
        places += [((place + 0.5) / len(own), position, start + row) for place, row in enumerate(own)]
        repeats = f", {count(number, 'row')} up to {passes + (rest > 0)} times" if len(own) > number else ""
        phrases.append(f"{len(own):,} of {label} ({len(own) / total:.0%}{repeats})")
        start += number
    return [row for _, _, row in sorted(places)], phrases


def _without_held_out_questions(tasks: Mapping[str, Task]) -> tuple[dict[str, Task], list[str]]:
    """Drop training rows whose question is in a held-out split of another task; and a note on each."""
    held_out = {
        label: {key for split in SPLITS[1:] for key in _questions(task.split(split))} for label, task in tasks.items()
    }
    kept, notes = {}, []
    for label, task in tasks.items():
        of_others = set().union(*(keys for other, keys in held_out.items() if other != label))
        rows = [row for row, key in enumerate(_questions(task.train)) if key not in of_others]
        dropped = len(task.train) - len(rows)
        if dropped and not rows:
            raise InputError(
                f"tasks: all {dropped} training questions of {label} are held out by another task. Use other rows.",
                kind="empty-data",
                key="tasks",
            )
        if dropped:
            notes.append(f"Dropped {count(dropped, 'training row')} of {label} that another task holds out.")
        kept[label] = replace(task, train=task.train.select(rows)) if dropped else task
    return kept, notes


def _questions(rows: Dataset) -> Iterable[str]:
    columns = [column for column in ("question", "prompt") if column in rows.column_names]
    for values in zip(*(column_values(rows, column) for column in columns), strict=True) if columns else ():
        yield question_key(next((value for value in values if value), ""))


def _check_together(tasks: Mapping[str, Task]) -> None:
    """Refuse tasks that can't be in one run, and splits that can't be mixed."""
    for label, task in tasks.items():
        if len(task.train) == 0 or "prompt" not in task.train.column_names:
            fix = "Give it some, or remove the task"
            raise InputError(f"tasks: {label} has no training rows with prompts. {fix}.", kind="no-rows", key="tasks")
        if COLUMN in task.train.column_names:
            fix = "Rename it in the data"
            message = f"tasks: {label} has a column {COLUMN}, which a mixture needs for the task's label. {fix}."
            raise InputError(message, kind="reserved-column", key=COLUMN)
    (first, one), *others = tasks.items()
    for label, other in others:
        if one.is_chat != other.is_chat:
            chat, text = (first, label) if one.is_chat else (label, first)
            raise InputError(
                f"tasks: {chat} has prompts of messages and {text} of plain text, but the prompts of a run are of one "
                "kind. Give both the same style.",
                kind="mixed-prompts",
                key="tasks",
            )
        if set(one.stop_strings) != set(other.stop_strings):
            stops = [
                f"{name} at {json.dumps(list(task.stop_strings))}" for name, task in ((first, one), (label, other))
            ]
            raise InputError(
                f"tasks: completions of {' and of '.join(stops)} end, but all of a run end at the same strings. Give "
                "both the same stop_strings, or chat prompts.",
                kind="mixed-stop-strings",
                key="tasks",
            )


def _labelled(task: Task, label: str) -> dict[str, Dataset]:
    splits = {split: task.split(split) for split in SPLITS}
    return {split: rows.add_column(COLUMN, [label] * len(rows)) for split, rows in splits.items()}


def _join(parts: Sequence[Dataset]) -> Dataset:
    """One split after another. A column whose types differ keeps each row's value as it is."""
    from datasets import Value, concatenate_datasets

    from rlvr.data.exact_columns import as_exact_json

    parts = [part for part in parts if len(part)] or list(parts[:1])
    for column in dict.fromkeys(name for part in parts for name in part.column_names):
        types = [part.features[column] for part in parts if column in part.column_names]
        known = [one for one in types if one != Value("null")]
        if any(one != known[0] for one in known):
            parts = [as_exact_json(part, column) if column in part.column_names else part for part in parts]
    return concatenate_datasets(list(parts))
