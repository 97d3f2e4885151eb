"""The sections `task`, `rewards` and `evaluation` of a recipe: their types, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlvr.config import schema
from rlvr.config.key_location import KeyLocation
from rlvr.config.reward_location import read_where
from rlvr.errors import Problem

SPLITS = ("train", "validation", "test")
LOCAL_PLACES = ("local", "trainer")


@dataclass(frozen=True)
class TaskSpec:
    """The `task:` section: `name` is a file in tasks/, the rest are options of its function."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


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
    options: Mapping[str, Any] = field(default_factory=dict)
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


def read_task(value: Any, at: KeyLocation, problems: list[Problem]) -> TaskSpec | None:
    """Read the section `task`; None if it has no name."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        example = f"name: {value}" if isinstance(value, str) else "name: gsm8k, shots: 8"
        problems.append(at.problem(f"must be a mapping with a name, like task: {{{example}}}.", _kind_of_lack(value)))
        return None
    return TaskSpec(value["name"], {key: item for key, item in value.items() if key != "name"})


def read_rewards(value: Any, at: KeyLocation, problems: list[Problem]) -> list[RewardSpec]:
    """Read the list `rewards`; entries without a name are left out."""
    if not isinstance(value, list) or not value:
        example = value if isinstance(value, str) else "math_correctness"
        text = f"must be a list with one entry per reward, like - name: {example}."
        problems.append(at.problem(text, _kind_of_lack(value)))
        return []
    specs = [_read_reward(entry, number, at, problems) for number, entry in enumerate(value, start=1)]
    rewards = [spec for spec in specs if spec is not None]
    problems += _list_problems(rewards, at)
    return rewards


def _read_reward(value: Any, number: int, rewards: KeyLocation, problems: list[Problem]) -> RewardSpec | None:
    entry = {"name": value} if isinstance(value, str) else value
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        at = rewards.child(str(number), f", entry {number}")
        problems.append(at.problem("must be a mapping with a name, like - name: math_correctness.", "wrong-type"))
        return None
    name = entry["name"]
    at = rewards.child(name, f", entry {number} ({name})")
    known = ("name", "weight", "options", "gate", "where")
    advice = " (options of the function belong under options:)"
    problems += [at.unknown_key(key, known, advice) for key in entry if key not in known]
    weight, options, gate = entry.get("weight", 1.0), entry.get("options") or {}, entry.get("gate")
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        problems.append(at.child("weight").problem(f"is {weight!r}, but should be a number.", "wrong-type"))
        weight = 1.0
    if not isinstance(options, dict):
        problems.append(at.child("options").problem("must be a mapping, like options: {tolerance: 0}.", "wrong-type"))
        options = {}
    where = entry.get("where")
    servers, fault = read_where(where)
    if fault is not None:
        problems.append(at.child("where").problem(f"{fault}.", "invalid-address"))
    elif servers is None and where is not None and where not in LOCAL_PLACES:
        choices = f"{', '.join(LOCAL_PLACES)}, ray or http://host:port"
        problems.append(at.child("where").problem(f"is {where!r}, but should be {choices}.", "unknown-choice"))
    return RewardSpec(name, float(weight), options, gate, servers or where)


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


def usable_rewards(specs: Sequence[RewardSpec]) -> tuple[RewardSpec, ...]:
    """The rewards without what may be wrong with the list: each once, without a gate, and local."""
    return tuple({spec.name: replace(spec, gate=None, where=None) for spec in specs}.values())


def read_evaluation(
    value: Any, at: KeyLocation, rewards: Sequence[RewardSpec], problems: list[Problem]
) -> EvaluationSpec | None:
    """Read the section `evaluation`; None if there is none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        problems.append(at.problem("must be a mapping, like evaluation: {split: test}.", "wrong-type"))
        return None
    types: dict[str, type] = {"split": str, "rows": int, "metric": str, "batch_size": int, "max_new_tokens": int}
    values: dict[str, Any] = {}
    for key, item in value.items():
        inside = at.child(key)
        if key == "reference":
            values[key] = _read_reference(item, inside, problems)
        elif key not in types:
            problems.append(inside.unknown((*types, "reference"), "a key"))
        elif item is not None and (not isinstance(item, types[key]) or isinstance(item, bool)):
            expected = "text" if types[key] is str else "a whole number"
            problems.append(inside.problem(f"is {item!r}, but should be {expected}.", "wrong-type"))
        elif isinstance(item, int) and item < 1:
            problems.append(inside.problem(f"is {item}, but should be at least 1.", "out-of-range"))
        else:
            values[key] = item
    spec = EvaluationSpec(**values)
    if spec.split not in SPLITS[1:]:
        text = f"is {spec.split!r}, but should be test or validation: rows of the training split are not held out."
        problems.append(at.child("split").problem(text, "unknown-choice"))
    if spec.metric is None and rewards:
        spec = replace(spec, metric=max(rewards, key=lambda reward: reward.weight).name)
    return spec


def _read_reference(value: Any, at: KeyLocation, problems: list[Problem]) -> Reference | None:
    if value is None:
        return None
    example = 'reference: {score: 0.416, source: "Qwen2.5 report, 4-shot"}'
    if not isinstance(value, dict) or set(value) != {"score", "source"}:
        problems.append(at.problem(f"must have a score and a source, and no more, like {example}.", "wrong-type"))
        return None
    score, source = value["score"], value["source"]
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 < score <= 1:
        text = f"is {score!r}, but should be a share of the rows, like 0.416 for 41.6 %."
        problems.append(at.child("score").problem(text, "out-of-range"))
        return None
    if not isinstance(source, str) or not source.strip():
        text = f"is {source!r}, but should name the publication and the method, like {example}."
        problems.append(at.child("source").problem(text, "wrong-type"))
        return None
    return Reference(float(score), source.strip())


def _kind_of_lack(value: Any) -> str:
    return "missing-key" if value is None else "wrong-type"
