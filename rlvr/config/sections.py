"""The sections `task`, `environment`, `rewards` and `evaluation` of a recipe: their types, and how they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from rlvr.config import schema, value_types
from rlvr.config.key_location import KeyLocation
from rlvr.config.reward_location import InvalidAddress, read_where
from rlvr.errors import Problem

SPLITS = ("train", "validation", "test")
LOCAL_PLACES = ("local", "trainer")


@dataclass(frozen=True)
class TaskSpec:
    """The `task:` section: `name` is a file in tasks/, the rest are options of its function."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentSpec:
    """The `environment:` section, or one entry of it if it is a list.

    Attributes:
        name: a file in environments/, `path/to/file.py[:Class]`, or a dotted import path.
        options: keyword arguments of the class.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardSpec:
    """One entry of the `rewards:` list.

    Attributes:
        name: a file in rewards/, `path/to/file.py[:function]`, or a dotted import path.
        weight: factor of this reward in the sum that a completion is scored with.
        options: keyword-only parameters of the function.
        gate: name of another reward in the list; this one counts only if that one is positive.
        where: "local" for a worker process beside the training process, "trainer" for the training process itself,
            "http://host:port" for a reward server, several with commas between, "ray" or "ray://head:10001" for a Ray
            cluster; None for the function's own default, else local.
    """

    name: str
    weight: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    gate: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class Reference:
    """A published score of the untrained model, to compare ours with.

    Attributes:
        score: a share, 0.416 for 41.6 %.
        source: where it was published, and how it was measured, in a few words.
    """

    score: float
    source: str


@dataclass(frozen=True)
class EvaluationSpec:
    """The `evaluation:` section: what run_grpo.py measures before and after training, greedily, on held-out rows.

    Attributes:
        split: "test", or "validation" while hyperparameters are being chosen. "train" is refused.
        rows: how many rows, the first ones of the split; None for all.
        metric: the reward that decides whether an answer is right (its value is at least 1); by default the one with
            the largest weight in `rewards`.
        batch_size: prompts generated at a time.
        max_new_tokens: tokens a completion may have; by default the recipe's `max_completion_length`.
        reference: a published score of the base; if ours is far below it, the evaluation is suspect.
    """

    split: str = "test"
    rows: int | None = None
    metric: str | None = None
    batch_size: int = 64
    max_new_tokens: int | None = None
    reference: Reference | None = None


# Reads the value of a key that is more than a plain value, and adds its problems to the list.
Reader = Callable[[Any, KeyLocation, list[Problem]], Any]


def read_fields(
    section: Mapping[str, Any],
    cls: type,
    at: KeyLocation,
    problems: list[Problem],
    readers: Mapping[str, Reader],
    *,
    may_be_zero: Sequence[str] = (),
    advice: str = "",
) -> dict[str, Any]:
    """Read a mapping by the fields of a dataclass, and return the values that are right.

    Whole numbers must be 1 or more, and texts not empty.

    Args:
        readers: for keys that are more than plain values.
        may_be_zero: whole numbers that may be 0.
        advice: for an unknown key that resembles none.
    """
    types = {one.name: str(one.type) for one in fields(cls)}
    values: dict[str, Any] = {}
    for key, value in section.items():
        inside = at.child(key)
        if key not in types:
            problems.append(inside.unknown(types, "a key", advice))
        elif value is None:
            continue  # the default; the command line removes a key of the recipe by `null`
        elif key in readers:
            values[key] = readers[key](value, inside, problems)
        elif text := value_types.mismatch(value, types[key]):
            problems.append(inside.problem(f"{text}.", "unknown-choice" if "Literal" in types[key] else "wrong-type"))
        elif isinstance(value, float) and not math.isfinite(value):
            problems.append(inside.problem(f"is {value}, but should be a finite number.", "out-of-range"))
        elif isinstance(value, int) and "int" in types[key] and value < (least := 0 if key in may_be_zero else 1):
            problems.append(inside.problem(f"is {value}, but should be at least {least}.", "out-of-range"))
        elif isinstance(value, str) and not value.strip():
            problems.append(inside.problem("is empty text. Give it a value, or remove it.", "out-of-range"))
        else:
            values[key] = value
    return values


def read_task(value: Any, at: KeyLocation, problems: list[Problem]) -> TaskSpec | None:
    """Read the section `task`; None if it has no name."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        example = f"name: {value}" if isinstance(value, str) else "name: gsm8k, shots: 8"
        example = f"task: {{{example}}}" if at.path is not None else f"--task.name {value}"
        problems.append(at.problem(f"must be a mapping with a name, like {example}.", _kind_of_lack(value)))
        return None
    return TaskSpec(value["name"], {key: item for key, item in value.items() if key != "name"})


def read_environments(value: Any, at: KeyLocation, problems: list[Problem]) -> tuple[EnvironmentSpec, ...]:
    """Read the section `environment`: a mapping, or a list of mappings; entries without a name are left out."""
    specs = []
    for entry in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"].strip():
            problems.append(at.problem("must have a name, like environment: {name: python_sandbox}.", "wrong-type"))
            continue
        advice = " (options of the environment belong under options:)"
        specs.append(EnvironmentSpec(**read_fields(entry, EnvironmentSpec, at, problems, {}, advice=advice)))
    return tuple(specs)


def read_rewards(value: Any, at: KeyLocation, problems: list[Problem]) -> list[RewardSpec]:
    """Read the list `rewards`; entries without a name are left out."""
    if not isinstance(value, list) or not value:
        name = value.get("name", next(iter(value), None)) if isinstance(value, dict) else value
        example = name if isinstance(name, str) else "math_correctness"
        found = "is a mapping" if isinstance(value, dict) else "is text" if name else "names no reward"
        text = f"{found}, but should be a list with one entry per reward, like - name: {example}."
        problems.append(at.problem(text, _kind_of_lack(value)))
        return []
    specs = [_read_reward(entry, number, at, problems) for number, entry in enumerate(value, start=1)]
    rewards = [spec for spec in specs if spec is not None]
    problems += _list_problems(rewards, at)
    return rewards


def _read_reward(value: Any, number: int, rewards: KeyLocation, problems: list[Problem]) -> RewardSpec | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"].strip():
        at = rewards.child(str(number), f", entry {number}")
        problems.append(at.problem("must be a mapping with a name, like - name: math_correctness.", "wrong-type"))
        return None
    at = rewards.child(value["name"], f", entry {number} ({value['name']})")
    advice = " (options of the function belong under options:)"
    values = read_fields(value, RewardSpec, at, problems, {"where": _read_where}, advice=advice)
    return RewardSpec(**{**values, "weight": float(values.get("weight", 1.0))})


def _read_where(value: Any, at: KeyLocation, problems: list[Problem]) -> str | None:
    try:
        servers = read_where(value)
    except InvalidAddress as error:
        problems.append(at.problem(f"{error}.", "invalid-address"))
        return None
    if servers is None and value not in LOCAL_PLACES:
        choices = f"{', '.join(LOCAL_PLACES)}, ray or http://host:port"
        problems.append(at.problem(f"is {value!r}, but should be {choices}.", "unknown-choice"))
    return servers or value


def _list_problems(rewards: Sequence[RewardSpec], at: KeyLocation) -> list[Problem]:
    """What is wrong with the rewards together."""
    names = [spec.name for spec in rewards]
    problems = [
        at.problem(f": {name} is listed twice, and TRL would merge the metrics of both. Keep one.", "duplicate-reward")
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if rewards and all(spec.weight == 0 for spec in rewards):
        problems.append(at.problem(": every weight is 0, so nothing is trained. Give one a weight.", "zero-weights"))
    for spec in rewards:
        if spec.gate is None or (spec.gate != spec.name and spec.gate in names):
            continue
        close = schema.nearest(str(spec.gate), [name for name in names if name != spec.name])
        question = f" Did you mean {close[0]}?" if close else ""
        text = f"is {spec.gate!r}, which is no other reward of this recipe.{question}"
        gate = at.child(f"{spec.name}.gate", f": the gate of {spec.name}")
        problems.append(gate.problem(text, "unknown-reward", close[0] if close else None))
    return problems


def read_evaluation(
    value: Any, at: KeyLocation, rewards: Sequence[RewardSpec], problems: list[Problem]
) -> EvaluationSpec | None:
    """Read the section `evaluation`; None if there is none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        problems.append(at.problem("must be a mapping, like evaluation: {split: test}.", "wrong-type"))
        return None
    spec = EvaluationSpec(**read_fields(value, EvaluationSpec, at, problems, {"reference": _read_reference}))
    if spec.split not in SPLITS[1:]:
        text = f"is {spec.split!r}, but should be test or validation: rows of the training split are not held out."
        problems.append(at.child("split").problem(text, "unknown-choice"))
    if spec.metric is None and rewards:
        spec = replace(spec, metric=max(rewards, key=lambda reward: reward.weight).name)
    return spec


def _read_reference(value: Any, at: KeyLocation, problems: list[Problem]) -> Reference | None:
    example = 'reference: {score: 0.416, source: "Qwen2.5 report, 4-shot"}'
    if not isinstance(value, dict) or set(value) != {"score", "source"}:
        problems.append(at.problem(f"must have a score and a source, and no more, like {example}.", "wrong-type"))
        return None
    values = read_fields(value, Reference, at, problems, {})
    if "score" in values and not 0 < values["score"] <= 1:
        text = f"is {values['score']!r}, but should be a share of the rows, like 0.416 for 41.6 %."
        problems.append(at.child("score").problem(text, "out-of-range"))
    return Reference(float(values["score"]), values["source"].strip()) if len(values) == 2 else None


def _kind_of_lack(value: Any) -> str:
    return "missing-key" if value is None else "wrong-type"
