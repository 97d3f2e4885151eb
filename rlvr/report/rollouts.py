"""Read the completions of a run: those of training, and those of its evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr.data.io import read_rows
from rlvr.data.task import RECORDED_COLUMNS, TEXT_COLUMNS
from rlvr.environments.transcript import Turn, as_json, turns
from rlvr.errors import InputError
from rlvr.formatting import is_number, shorten
from rlvr.health.run_metrics import logged_rewards
from rlvr.report.run_reader import RunRecord
from rlvr.reward_audit.completions import prompt_key, read_completions

BASE, TRAINED = -2, -1  # in place of a step
COLUMN_LIMIT = 300  # characters
NO_EXTRA_COLUMNS = frozenset(
    {"step", "prompt", "completion", "advantage", "row", "tokens", "ended", "think_opened", "correct"}
)

NO_REFERENCE = frozenset(
    {
        *TEXT_COLUMNS,
        *RECORDED_COLUMNS,
        "task",
        "language",
        "entry_point",
        "environment",
        "formatted",
        "lenient",
        "stopped",
        "tool_seconds",
    }
)


@dataclass(frozen=True)
class Rollout:
    """One completion. `number` is its index among completions of its kind, as in scripts/score.py --why."""

    stage: int  # the step, or BASE, or TRAINED
    number: int
    group: str
    row: Mapping[str, Any]
    rewards: tuple[float | None, ...]
    total: float | None
    right: bool | None

    @property
    def key(self) -> tuple[int, int]:
        return self.stage, self.number

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.turns)

    @cached_property
    def turns(self) -> list[Turn]:
        return turns(self.row["completion"])


@dataclass(frozen=True)
class RunRollouts:
    """All completions of a run, the names of their rewards, and a sentence for each file that can't be read."""

    items: list[Rollout] = field(default_factory=list)
    rewards: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_rollouts(run: RunRecord) -> RunRollouts:
    """Read the completions of training and of the evaluations."""
    folder = run.folder / "completions"
    training, notes = _training_rows(folder)
    evaluated = {stage: evaluated_rows(run.folder, name) for stage, name in ((BASE, "base"), (TRAINED, "trained"))}
    names = _reward_names(run, training, evaluated[BASE] or evaluated[TRAINED])
    items = []
    for number, row in enumerate(training):
        step = row.get("step")
        stage = step if isinstance(step, int) and step >= 0 else 0
        items.append(_rollout(run, names, "", stage, number, row))
    for stage, rows in evaluated.items():
        items += [_rollout(run, names, "rewards/", stage, number, row) for number, row in enumerate(rows)]
    return RunRollouts(items, names, notes)


def records(rollouts: RunRollouts) -> list[dict[str, Any]]:
    """Flatten the completions for a data frame; `of` is "training", "base" or "trained"."""
    return [
        {
            "of": {BASE: "base", TRAINED: "trained"}.get(item.stage, "training"),
            "step": item.stage if item.stage >= 0 else None,
            "number": item.number,
            "prompt": "\n".join(text for _, text in turns(item.row.get("prompt"))),
            "completion": item.text,
            "right": item.right,
            "total": item.total,
            **dict(zip(rollouts.rewards, item.rewards, strict=True)),
            **dict(other_columns(item.row, rollouts.rewards)),
        }
        for item in rollouts.items
    ]


def other_columns(row: Mapping[str, Any], rewards: Sequence[str]) -> list[tuple[str, str]]:
    """The other columns of a row: reference answers, sources, and columns that a reward logged."""
    known = NO_EXTRA_COLUMNS.union(rewards)
    return [
        (name, shorten(value if isinstance(value, str) else as_json(value), COLUMN_LIMIT))
        for name, value in row.items()
        if name not in known and not name.startswith("rewards/") and value is not None
    ]


def reference_of(row: Mapping[str, Any]) -> str:
    """The reference answer of a held-out row: `final_answer`, or the columns that its metric read; "" if unknown."""
    if row.get("final_answer") is not None:
        return shorten(str(row["final_answer"]), COLUMN_LIMIT)
    columns = [(name, value) for name, value in other_columns(row, ()) if name not in NO_REFERENCE]
    return columns[0][1] if len(columns) == 1 else ", ".join(f"{name}: {value}" for name, value in columns)


def _training_rows(folder: Path) -> tuple[Sequence[Mapping[str, Any]], tuple[str, ...]]:
    if not any(folder.glob("completions_*.parquet")):
        return [], ()
    try:
        source = read_completions(str(folder))
    except InputError as error:
        return [], (str(error),)
    return source.rows, tuple(note for note in source.notes if "evaluation_" not in note)


def evaluated_rows(run_dir: Path, name: str) -> list[Mapping[str, Any]]:
    """The answers of "base" or "trained" to the held-out rows; none if they were not measured."""
    try:
        rows = read_rows(run_dir / "completions" / f"evaluation_{name}.parquet")
    except InputError:
        return []
    return [row for row in rows if {"prompt", "completion", "correct"} <= row.keys()]


def _reward_names(
    run: RunRecord, training: Sequence[Mapping[str, Any]], evaluated: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The rewards of the recipe, the log and the evaluation, in the order of the columns."""
    columns = dict.fromkeys(name for row in training[:1] for name in row)
    measured = [name.removeprefix("rewards/") for row in evaluated[:1] for name in row if name.startswith("rewards/")]
    known = {*run.weights, *logged_rewards(run.metrics), *measured}
    return tuple(name for name in dict.fromkeys([*columns, *measured]) if name in known)


def _rollout(
    run: RunRecord, names: Sequence[str], prefix: str, stage: int, number: int, row: Mapping[str, Any]
) -> Rollout:
    columns = (row.get(prefix + name) for name in names)
    values = tuple(float(value) if is_number(value) else None for value in columns)
    terms = [(run.weights[name], value) for name, value in zip(names, values, strict=True) if name in run.weights]
    known = [(weight, value) for weight, value in terms if value is not None]
    # Of several tasks, a reward without a value does not apply.
    is_whole = len(known) == len(terms) or "tasks" in run.recipe
    total = sum(weight * value for weight, value in known) if known and is_whole else None
    right = row.get("correct")
    if right is None and run.metric in names:
        decisive = values[names.index(run.metric)]
        right = None if decisive is None else decisive >= 1.0
    return Rollout(stage, number, prompt_key(dict(row)), row, values, total, right if isinstance(right, bool) else None)
