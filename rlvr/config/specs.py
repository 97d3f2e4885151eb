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
        name: a file in tasks/.
        options: keyword arguments of its function.
        label: the name of an entry of `tasks:` in rewards, metrics and results; empty for `task:`.
        weight: its share of the training prompts, relative to those of the others; None if no task has one: then
            shares are those of the rows.
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
        applies_to: labels of the tasks that it counts for, among those of `tasks:`; None for all.
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
        split: "test", or "validation" while hyperparameters are being chosen. "train" is refused.
        rows: how many rows, the first ones of the split (of each task's split); None for all.
        metric: the reward that decides whether an answer is right (its value is at least 1); by default the one with
            the largest weight in `rewards`. Of several tasks: one for all, or one for each by the task's label; by
            default the one with the largest weight among those that apply to the task.
        batch_size: prompts generated at a time.
        max_new_tokens: tokens a completion may have; by default the recipe's `max_completion_length`.
        reference: a published score of the base; if ours is far below it, the evaluation is suspect.
        cache: whether runs that measure the same base alike share its answers, in a folder of the user.
    """

    split: str = "test"
    rows: int | None = None
    metric: str | Mapping[str, str] | None = None
    batch_size: int = 64
    max_new_tokens: int | None = None
    reference: Reference | None = None
    cache: bool = True
