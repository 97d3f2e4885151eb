"""The types of a recipe's sections `task`, `environment`, `rewards` and `evaluation`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class TaskSpec:
    """The `task:` section, or one entry of `tasks:`.

    Attributes:
        name: A file in tasks/, `path/to/file.py[:function]`, or a dotted import path.
        options: Keyword arguments of the function. They stand next to `name` in a recipe.
        label: With `tasks:`, the name of the task in rewards, metrics and results.
        weight: With `tasks:`, the relative share of the training prompts. Default: the number of rows.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    weight: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The section as YAML has it."""
        own = {key: value for key, value in (("label", self.label), ("weight", self.weight)) if value}
        return {"name": self.name, **own, **self.options}


@dataclass(frozen=True)
class EnvironmentSpec:
    """The `environment:` section, or one entry of it if it is a list.

    Attributes:
        name: A file in environments/, `path/to/file.py[:Class]`, or a dotted import path.
        options: Keyword arguments of the class.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardSpec:
    """One entry of the `rewards:` list.

    Attributes:
        name: A file in rewards/, `path/to/file.py[:function]`, or a dotted import path.
        weight: Factor of the reward in the weighted sum.
        options: Keyword-only parameters of the function.
        gate: Another reward of the list. The reward counts only where the gate is positive.
        where: local (a worker process), trainer, ray, ray://head:10001, or addresses of reward servers.
        applies_to: With `tasks:`, the labels of the tasks that the reward scores. Default: all.
    """

    name: str
    weight: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    gate: str | None = None
    where: str | None = None
    applies_to: tuple[str, ...] | None = None

    def applies(self, task: str | None) -> bool:
        """Whether it counts for rows of the task with this label."""
        return self.applies_to is None or task in self.applies_to


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
        split: test, or validation while you choose hyperparameters. train is refused.
        rows: The number of rows from the start of the split, for each task. Default: all.
        metric: The reward that says which answers are right: its score is at least 1. With `tasks:`, a mapping by label
            is possible. Default: the reward with the largest weight.
        batch_size: Prompts that are generated at once.
        max_new_tokens: Limit of tokens per completion. Default: `max_completion_length`.
        reference: A published score of the base model: {score: 0.416, source: text}.
        cache: Share answers of the base model between runs that measure it in the same way.
    """

    split: str = "test"
    rows: int | None = None
    metric: str | Mapping[str, str] | None = None
    batch_size: int = 64
    max_new_tokens: int | None = None
    reference: Reference | None = None
    cache: bool = True
