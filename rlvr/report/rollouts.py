"""Pack completions into the page for its browser.

A long run has more completions than a page can hold. The page then holds whole groups, so that the completions of a
prompt can be compared: first held-out rows, then the first and the last group of prompts that were sampled several
times, then a group of every step in turn, until the page is full. The page states how many completions it holds.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.formatting import is_number, shorten
from rlvr.report import reward_explanations, samples
from rlvr.report.curves import reward_names
from rlvr.report.run_reader import RunRecord

# Characters of all completions, of one, of a prompt and of a column; compressed bytes of all.
MAX_CHARACTERS, COMPLETION_LIMIT, PROMPT_LIMIT, COLUMN_LIMIT = 24_000_000, 8000, 6000, 300
MAX_BYTES = 10_000_000
MAX_EXPLAINED = 400
BASE, TRAINED = -2, -1  # in place of a step
GroupKey = tuple[int, str]  # the stage and the prompt
NO_EXTRA_COLUMNS = frozenset({"step", "prompt", "completion", "advantage", "row", "tokens", "ended", "correct"})
EVALUATION_TITLES = {"formatted": "in the form asked for", "lenient": "right, whatever the form"}


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
    def text(self) -> str:
        return "\n".join(text for _, text in samples.messages(self.row["completion"]))


@dataclass(frozen=True)
class RunRollouts:
    """All completions of a run, the names of their rewards, and a sentence for each file that can't be read."""

    items: list[Rollout] = field(default_factory=list)
    rewards: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PackedRollouts:
    """The completions in the page.

    Attributes:
        data: JSON, compressed with gzip, in base64: no character has a meaning in HTML.
        shown: number of completions in it; the run directory holds `all`.
        explained: number of them with an explanation of their rewards.
    """

    data: str
    shown: int
    all: int
    explained: int
    notes: tuple[str, ...]


def read_rollouts(run: RunRecord) -> RunRollouts:
    """Read the completions of training and of the evaluations."""
    folder = run.folder / "completions"
    training, notes = _training_rows(folder)
    evaluated = {BASE: _evaluated_rows(folder, "base"), TRAINED: _evaluated_rows(folder, "trained")}
    names = _reward_names(run, training, evaluated[BASE] or evaluated[TRAINED])
    items = []
    for number, row in enumerate(training):
        step = row.get("step")
        stage = step if isinstance(step, int) and step >= 0 else 0
        items.append(_rollout(run, names, "", stage, number, row))
    for stage, rows in evaluated.items():
        items += [_rollout(run, names, "rewards/", stage, number, row) for number, row in enumerate(rows)]
    return RunRollouts(items, names, notes)


def pack(run: RunRecord, rollouts: RunRollouts, limit: int = MAX_CHARACTERS) -> PackedRollouts | None:
    """Choose and compress the completions for the page; None without completions."""
    if not rollouts.items:
        return None
    chosen = _choose(rollouts.items, limit)
    explanations = _explain(run, chosen)
    data = _compressed(run, rollouts, chosen, explanations)
    while len(data) > MAX_BYTES:
        limit = int(0.85 * min(limit, _characters(chosen)) * MAX_BYTES / len(data))
        chosen = _choose(rollouts.items, limit)
        data = _compressed(run, rollouts, chosen, explanations)
    explained = sum(bool(explanations.get(_key(item))) for item in chosen)
    return PackedRollouts(
        base64.b64encode(data).decode("ascii"), len(chosen), len(rollouts.items), explained, rollouts.notes
    )


def records(rollouts: RunRollouts) -> list[dict[str, Any]]:
    """Flatten the completions for a data frame; `of` is "training", "base" or "trained"."""
    return [
        {
            "of": {BASE: "base", TRAINED: "trained"}.get(item.stage, "training"),
            "step": item.stage if item.stage >= 0 else None,
            "number": item.number,
            "prompt": "\n".join(text for _, text in samples.messages(item.row.get("prompt"))),
            "completion": item.text,
            "right": item.right,
            "total": item.total,
            **dict(zip(rollouts.rewards, item.rewards, strict=True)),
            **dict(_columns(item.row, rollouts.rewards)),
        }
        for item in rollouts.items
    ]


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _training_rows(folder: Path) -> tuple[list[Mapping[str, Any]], tuple[str, ...]]:
    from rlvr.rescoring.completions import read_completions

    if not any(folder.glob("completions_*.parquet")):
        return [], ()
    try:
        source = read_completions(str(folder))
    except InputError as error:
        return [], (str(error),)
    notes = tuple(note for note in source.notes if "evaluation_" not in note)
    return list(source.rows), notes


def _evaluated_rows(folder: Path, name: str) -> list[Mapping[str, Any]]:
    from rlvr.data.io import read_rows

    try:
        rows = read_rows(folder / f"evaluation_{name}.parquet")
    except InputError:
        return []
    return [row for row in rows if {"prompt", "completion", "correct"} <= row.keys()]


def _reward_names(
    run: RunRecord, training: Sequence[Mapping[str, Any]], evaluated: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The rewards of the recipe and the metrics; without both, all columns with numbers."""
    columns = dict.fromkeys(name for row in training[:1] for name in row)
    measured = [name.removeprefix("rewards/") for row in evaluated[:1] for name in row if name.startswith("rewards/")]
    known = {*run.weights, *reward_names(run), *measured}
    if not known:
        known = {name for name in columns if name not in NO_EXTRA_COLUMNS and is_number(training[0][name])}
    return tuple(name for name in dict.fromkeys([*columns, *measured]) if name in known)


def _rollout(
    run: RunRecord, names: Sequence[str], prefix: str, stage: int, number: int, row: Mapping[str, Any]
) -> Rollout:
    from rlvr.rescoring.completions import prompt_key

    columns = (row.get(prefix + name) for name in names)
    values = tuple(float(value) if is_number(value) else None for value in columns)
    terms = [(run.weights[name], value) for name, value in zip(names, values, strict=True) if name in run.weights]
    known = [(weight, value) for weight, value in terms if value is not None]
    total = sum(weight * value for weight, value in known) if known and len(known) == len(terms) else None
    right = row.get("correct")
    if right is None and run.metric in names:
        decisive = values[names.index(run.metric)]
        right = None if decisive is None else decisive >= 1.0
    return Rollout(stage, number, prompt_key(dict(row)), row, values, total, right if isinstance(right, bool) else None)


# ── Choosing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _key(item: Rollout) -> tuple[int, int]:
    return item.stage, item.number


def _size(item: Rollout) -> int:
    return min(len(item.text), COMPLETION_LIMIT) + 100


def _characters(items: Sequence[Rollout]) -> int:
    prompts = {item.group: min(len(item.group), PROMPT_LIMIT) for item in items}
    return sum(map(_size, items)) + sum(prompts.values())


def _choose(items: Sequence[Rollout], limit: int) -> list[Rollout]:
    """Choose as many groups as fit, in the order of the stages."""
    if _characters(items) <= limit:
        return sorted(items, key=_key)
    groups: dict[GroupKey, list[Rollout]] = {}
    for item in items:
        groups.setdefault((item.stage, item.group), []).append(item)
    left, taken = limit, set[GroupKey]()
    for share, candidates in (
        (0.25, _held_out(groups)),
        (0.35, _first_and_last(groups)),
        (1.0, _in_turn(groups)),
    ):
        reserve = left - int(share * left)
        for names in candidates:
            new = [name for name in names if name not in taken]
            cost = sum(min(len(name[1]), PROMPT_LIMIT) + sum(map(_size, groups[name])) for name in new)
            if left - cost < reserve:
                break
            left -= cost
            taken.update(new)
    return sorted((item for name in taken for item in groups[name]), key=_key)


def _held_out(groups: Mapping[GroupKey, Sequence[Rollout]]) -> Iterator[list[GroupKey]]:
    for prompt in dict.fromkeys(prompt for stage, prompt in groups if stage < 0):
        yield [(stage, prompt) for stage in (BASE, TRAINED) if (stage, prompt) in groups]


def _first_and_last(groups: Mapping[GroupKey, Sequence[Rollout]]) -> Iterator[list[GroupKey]]:
    steps: dict[str, list[int]] = {}
    for stage, prompt in groups:
        if stage >= 0:
            steps.setdefault(prompt, []).append(stage)
    for prompt, stages in steps.items():
        if len(stages) > 1:
            yield [(min(stages), prompt), (max(stages), prompt)]


def _in_turn(groups: Mapping[GroupKey, Sequence[Rollout]]) -> Iterator[list[GroupKey]]:
    """Yield the first group of every step, then the second, and so on. Steps far apart come first."""
    of_step: dict[int, list[str]] = {}
    for stage, prompt in groups:
        if stage >= 0:
            of_step.setdefault(stage, []).append(prompt)
    steps = sorted(of_step)
    order = sorted(range(len(steps)), key=lambda place: int(f"{place:032b}"[::-1], 2))
    if steps:  # both ends come first
        order = [0, len(steps) - 1, *(place for place in order if place not in (0, len(steps) - 1))]
    for turn in range(max(map(len, of_step.values()), default=0)):
        for place in order:
            if turn < len(of_step[steps[place]]):
                yield [(steps[place], of_step[steps[place]][turn])]


def _explain(run: RunRecord, chosen: Sequence[Rollout]) -> dict[tuple[int, int], dict[str, list[str]]]:
    """Explain the rewards of some chosen completions: the first of each stage, then the second, and so on."""
    by_stage: dict[int, list[Rollout]] = {}
    for item in chosen:
        if len(item.text) <= COMPLETION_LIMIT:
            by_stage.setdefault(item.stage, []).append(item)
    training = sorted(stage for stage in by_stage if stage >= 0)
    spread = sorted({training[place * (len(training) - 1) // 24] for place in range(25)}) if training else []
    shown: list[Rollout] = []
    for stages, share in (([BASE, TRAINED], MAX_EXPLAINED // 2), (spread, MAX_EXPLAINED)):
        queues = [by_stage[stage] for stage in stages if stage in by_stage]
        turns = (
            queue[turn] for turn in range(max(map(len, queues), default=0)) for queue in queues if turn < len(queue)
        )
        shown += [item for item, _ in zip(turns, range(share - len(shown)), strict=False)]
    explanations = reward_explanations.explain(run.recipe, [item.row for item in shown])
    return {_key(item): lines for item, lines in zip(shown, explanations, strict=True)}


# ── Packing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _compressed(
    run: RunRecord,
    rollouts: RunRollouts,
    chosen: Sequence[Rollout],
    explanations: Mapping[tuple[int, int], Mapping[str, Sequence[str]]],
) -> bytes:
    examples = {item.group: item for item in reversed(chosen)}
    prompt_index = {group: index for index, group in enumerate(examples)}
    content = {
        "rewards": rollouts.rewards,
        "weights": [run.weights.get(name) for name in rollouts.rewards],
        "metric": run.metric if run.metric in rollouts.rewards else "",
        "prompts": [_prompt(item.row.get("prompt")) for item in examples.values()],
        "stage": [item.stage for item in chosen],
        "number": [item.number for item in chosen],
        "prompt": [prompt_index[item.group] for item in chosen],
        "text": [shorten(item.text, COMPLETION_LIMIT) for item in chosen],
        "values": [[_rounded(value) for value in item.rewards] for item in chosen],
        "total": [_rounded(item.total) for item in chosen],
        "right": [None if item.right is None else int(item.right) for item in chosen],
        "advantage": [_rounded(item.row.get("advantage")) for item in chosen],
        "tokens": [_rounded(item.row.get("tokens")) for item in chosen],
        "cut": [int(item.row.get("ended") is False) for item in chosen],
        "columns": [_shown_columns(item, rollouts.rewards) for item in chosen],
        "why": [explanations.get(_key(item)) or 0 for item in chosen],
    }
    # ASCII, because UTF-8 can't encode a lone surrogate; gzip makes up for the length.
    return gzip.compress(json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii"), 6, mtime=0)


def _prompt(prompt: Any) -> list[tuple[str, str]]:
    return [(role, shorten(text, PROMPT_LIMIT)) for role, text in samples.messages(prompt)]


def _columns(row: Mapping[str, Any], rewards: Sequence[str]) -> list[tuple[str, str]]:
    """The other columns of a row: reference answers, sources, and columns that a reward logged."""
    return [
        (
            name,
            shorten(
                value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), COLUMN_LIMIT
            ),
        )
        for name, value in row.items()
        if name not in NO_EXTRA_COLUMNS
        and name not in rewards
        and not name.startswith("rewards/")
        and value is not None
    ]


def _shown_columns(item: Rollout, rewards: Sequence[str]) -> list[tuple[str, str]]:
    """The same, with the titles of the accuracy table for the columns of an evaluation."""
    titles = EVALUATION_TITLES if item.stage < 0 else {}
    return [(titles.get(name, name), value) for name, value in _columns(item.row, rewards)]


def _rounded(value: Any) -> float | None:
    return float(f"{value:.4g}") if is_number(value) else None
