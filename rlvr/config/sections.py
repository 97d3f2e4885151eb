"""Read the sections `task`, `environment`, `rewards` and `evaluation` of a recipe."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from rlvr.config import schema, value_types
from rlvr.config.key_location import KeyLocation
from rlvr.config.reward_location import InvalidAddress, read_where
from rlvr.config.specs import SPLITS, EnvironmentSpec, EvaluationSpec, Reference, RewardSpec, TaskSpec
from rlvr.errors import Problem

LOCAL_PLACES = ("local", "trainer")

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


def read_tasks(value: Any, at: KeyLocation, problems: list[Problem]) -> tuple[TaskSpec, ...]:
    """Read the list `tasks`; empty if an entry has no name, or there is none."""
    if not isinstance(value, list) or not value:
        example = "- name: gsm8k, - name: mbpp"
        problems.append(at.problem(f"must be a list with one entry per task, like {example}.", _kind_of_lack(value)))
        return ()
    specs = [_read_entry(entry, number, at, problems) for number, entry in enumerate(value, start=1)]
    parts = [spec for spec in specs if spec is not None]
    labels = [part.label for part in parts]
    for label in sorted({label for label in labels if labels.count(label) > 1}):
        fix = "Give one of the entries another label."
        problems.append(at.problem(f": two entries have the label {label}. {fix}", "duplicate-task"))
    weights = [part for part in parts if part.weight is not None]
    if 0 < len(weights) < len(parts):
        without = ", ".join(part.label for part in parts if part.weight is None)
        fix = "Give every entry one, or none."
        problems.append(at.problem(f": {weights[0].label} has a weight and {without} has none. {fix}", "missing-key"))
        parts = [replace(part, weight=None) for part in parts]
    return tuple(parts) if len(parts) == len(value) else ()


def _read_entry(value: Any, number: int, tasks: KeyLocation, problems: list[Problem]) -> TaskSpec | None:
    spec = read_task(value, tasks.child(str(number), f", entry {number}"), problems)
    if spec is None:
        return None
    at = tasks.child(spec.name, f", entry {number} ({spec.name})")
    options = dict(spec.options)
    label, weight = options.pop("label", None), options.pop("weight", None)
    if label is None:
        label = _last_part(spec.name)
    if not isinstance(label, str) or not re.fullmatch(r"[\w-]+", label):
        text = f"is {label!r}, but should be letters, digits, - and _: metrics are named after it."
        problems.append(at.child("label").problem(text, "wrong-type"))
        label = str(number)
    if fault := value_types.mismatch(weight, "float | None"):
        problems.append(at.child("weight").problem(f"{fault}.", "wrong-type"))
        weight = 1.0
    elif weight is not None and not (math.isfinite(weight) and weight > 0):
        text = f"is {weight}, but should be above 0. Remove the entry to leave the task out."
        problems.append(at.child("weight").problem(text, "out-of-range"))
        weight = 1.0
    return TaskSpec(spec.name, options, label, None if weight is None else float(weight))


def _last_part(name: str) -> str:
    """The file's or the function's part of a path or a dotted name."""
    return re.split(r"[/.:]", name.removesuffix(".py"))[-1]


def read_rewards(value: Any, at: KeyLocation, problems: list[Problem], labels: Sequence[str] = ()) -> list[RewardSpec]:
    """Read the list `rewards`; entries without a name are left out.

    Args:
        labels: of the tasks, where the recipe has several.
    """
    if not isinstance(value, list) or not value:
        text = "must be a list with one entry per reward, like - name: math_correctness."
        problems.append(at.problem(text, _kind_of_lack(value)))
        return []
    specs = [_read_reward(entry, number, at, problems) for number, entry in enumerate(value, start=1)]
    rewards = [spec for spec in specs if spec is not None]
    problems += _list_problems(rewards, at)
    problems += _task_problems(rewards, labels, at)
    return rewards


def _read_reward(value: Any, number: int, rewards: KeyLocation, problems: list[Problem]) -> RewardSpec | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"].strip():
        at = rewards.child(str(number), f", entry {number}")
        example = "- name: math_correctness, or for your own file - name: rewards/mine.py:my_function"
        problems.append(at.problem(f"must be a mapping with a name, like {example}.", "wrong-type"))
        return None
    at = rewards.child(value["name"], f", entry {number} ({value['name']})")
    advice = " (options of the function belong under options:)"
    readers = {"where": _read_where, "applies_to": _read_labels}
    values = read_fields(value, RewardSpec, at, problems, readers, advice=advice)
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


def _read_labels(value: Any, at: KeyLocation, problems: list[Problem]) -> tuple[str, ...] | None:
    if isinstance(value, list) and value and all(isinstance(label, str) for label in value):
        return tuple(value)
    problems.append(at.problem("must be a list of tasks, like applies_to: [gsm8k].", "wrong-type"))
    return None


def _task_problems(rewards: Sequence[RewardSpec], labels: Sequence[str], at: KeyLocation) -> Iterator[Problem]:
    """What is wrong between the rewards and the tasks of a recipe."""
    by_name = {spec.name: spec for spec in rewards}
    for spec in rewards:
        inside = at.child(f"{spec.name}.applies_to", f": applies_to of {spec.name}")
        if spec.applies_to is not None and not labels:
            yield inside.problem("needs tasks:, and this recipe has one task. Remove it.", "conflicting-keys")
            continue
        for label in [label for label in spec.applies_to or () if label not in labels]:
            text = f"names {label}, which is no task of this recipe. {schema.hint(label, labels)}"
            yield inside.problem(text, "unknown-task", next(iter(schema.nearest(label, labels)), None))
        gate = by_name.get(spec.gate or "")
        ungated = [label for label in labels if gate and spec.applies(label) and not gate.applies(label)]
        if gate and ungated:
            text = (
                f"is {gate.name}, which does not apply to {', '.join(ungated)}, where {spec.name} does: it could never "
                "count there. Let both apply to the same tasks."
            )
            yield at.child(f"{spec.name}.gate", f": the gate of {spec.name}").problem(text, "conflicting-keys")
    is_misspelt = any(set(spec.applies_to or ()) - set(labels) for spec in rewards)
    for label in labels if rewards and not is_misspelt else ():
        if not any(spec.weight for spec in rewards if spec.applies(label)):
            text = f": no reward with a weight applies to the task {label}, so it trains nothing. Add one."
            yield at.problem(text, "task-without-reward")


def _list_problems(rewards: Sequence[RewardSpec], at: KeyLocation) -> list[Problem]:
    """What is wrong with the rewards together."""
    names = [spec.name for spec in rewards]
    why = "is listed twice, and TRL would merge the metrics of both"
    fix = "Keep one, or let the other be a file of your own that imports it under another name (docs/rewards.md)"
    problems = [
        at.problem(f": {name} {why}. {fix}.", "duplicate-reward")
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if rewards and all(spec.weight == 0 for spec in rewards):
        problems.append(at.problem(": every weight is 0, so nothing is trained. Give one a weight.", "zero-weights"))
    for spec in rewards:
        if spec.gate is None or (spec.gate != spec.name and spec.gate in names):
            continue
        others = [name for name in names if name != spec.name]
        close = [name for name in others if _last_part(name) == spec.gate] or schema.nearest(str(spec.gate), others)
        question = f" Did you mean {close[0]}?" if close else ""
        text = f"is {spec.gate!r}, which is no other reward of this recipe.{question}"
        gate = at.child(f"{spec.name}.gate", f": the gate of {spec.name}")
        problems.append(gate.problem(text, "unknown-reward", close[0] if close else None))
    return problems


def read_evaluation(
    value: Any,
    at: KeyLocation,
    rewards: Sequence[RewardSpec],
    problems: list[Problem],
    labels: Sequence[str] = (),
) -> EvaluationSpec | None:
    """Read the section `evaluation`; None if there is none.

    Args:
        labels: of the tasks, where the recipe has several.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        problems.append(at.problem("must be a mapping, like evaluation: {split: test}.", "wrong-type"))
        return None
    readers = {"reference": _read_reference, "metric": _read_metric}
    spec = EvaluationSpec(**read_fields(value, EvaluationSpec, at, problems, readers))
    if spec.split not in SPLITS[1:]:
        text = f"is {spec.split!r}, but should be test or validation: rows of the training split are not held out."
        problems.append(at.child("split").problem(text, "unknown-choice"))
    problems += _measured_task_problems(spec, at, rewards, labels)
    if spec.metric is None and rewards and not labels:
        spec = replace(spec, metric=max(rewards, key=lambda reward: reward.weight).name)
    return spec


def _read_metric(value: Any, at: KeyLocation, problems: list[Problem]) -> str | dict[str, str] | None:
    names = list(value.values()) if isinstance(value, dict) else [value]
    if names and all(isinstance(name, str) and name.strip() for name in names):
        return value
    example = "metric: math_correctness, or for several tasks metric: {gsm8k: math_correctness}"
    problems.append(at.problem(f"must name a reward, like {example}.", "wrong-type"))
    return None


def _measured_task_problems(
    spec: EvaluationSpec, at: KeyLocation, rewards: Sequence[RewardSpec], labels: Sequence[str]
) -> Iterator[Problem]:
    """What is wrong between the section `evaluation` and the tasks of a recipe."""
    by_task = spec.metric if isinstance(spec.metric, Mapping) else dict.fromkeys(labels, spec.metric)
    for label, name in by_task.items():
        inside = at.child(f"metric.{label}" if isinstance(spec.metric, Mapping) else "metric")
        reward = next((reward for reward in rewards if reward.name == name), None)
        if label not in labels:
            listed = f"the tasks are {', '.join(labels)}" if labels else "this recipe has one. Write metric: NAME"
            yield inside.problem(f"is for {label}, which is no task of this recipe: {listed}.", "unknown-task")
        elif reward is not None and not reward.applies(label):
            fix = f"Write metric: {{{label}: NAME}} with a reward that applies."
            yield inside.problem(f"is {name}, which does not apply to the task {label}. {fix}", "conflicting-keys")
    if labels and spec.reference is not None:
        fix = "is the score of one task, and this recipe has several. Remove it."
        yield at.child("reference").problem(fix, "conflicting-keys")


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
