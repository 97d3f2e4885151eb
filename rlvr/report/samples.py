"""Choose a few example completions of a run by fixed rules.

Models and data sets wrote these texts: escape them before showing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.environments.transcript import Turn, cut, fit, turns
from rlvr.formatting import COMPLETION_LIMIT, PROMPT_LIMIT, is_number, shorten
from rlvr.report.rollouts import BASE, TRAINED, Rollout, reference_of

MAX_EXAMPLES = 3
NO_REWARDS = ("step", "row", "tokens", "difficulty")


@dataclass(frozen=True)
class ShownAnswer:
    """One completion: its label and texts, its rewards by name, whether it is right (None: unknown), why it was cut."""

    label: str
    turns: tuple[Turn, ...]
    rewards: tuple[tuple[str, str], ...]
    right: bool | None
    cut: str


@dataclass(frozen=True)
class Example:
    """A prompt, as (role, text) pairs (an empty role for plain text), answers to it, and its task where several are."""

    prompt: tuple[tuple[str, str], ...]
    answers: tuple[ShownAnswer, ...]
    expected: str = ""
    task: str = ""


@dataclass(frozen=True)
class ChangedProblems:
    """Held-out problems whose answers became right, or wrong: their number, and the first few."""

    count: int
    examples: tuple[Example, ...]


def training_answers(rollouts: Sequence[Rollout]) -> list[tuple[int, Example]]:
    """The step and an example of the first and the last logged training step.

    The example is the best and the worst completion of the step's first group with different rewards, or of its first
    group if there is none.
    """
    steps = sorted({item.stage for item in rollouts if item.stage >= 0})
    ends = dict.fromkeys([*steps[:1], *steps[-1:]])
    return [(step, _of_a_step([item for item in rollouts if item.stage == step])) for step in ends]


def changed_answers(rollouts: Sequence[Rollout]) -> tuple[ChangedProblems, ChangedProblems] | None:
    """Held-out problems that only the trained model solved, and that only base solved; None without both models."""
    base, trained = (
        {item.row["row"]: item.row for item in rollouts if item.stage == stage and "row" in item.row}
        for stage in (BASE, TRAINED)
    )
    if not base or not trained:
        return None
    pairs = [(base[row], trained[row]) for row in sorted(base.keys() & trained.keys())]
    pairs = [(one, other) for one, other in pairs if one["prompt"] == other["prompt"]]
    gained = [(one, other) for one, other in pairs if one["correct"] is False and other["correct"] is True]
    lost = [(one, other) for one, other in pairs if one["correct"] is True and other["correct"] is False]
    return _changed(gained), _changed(lost)


def _of_a_step(rollouts: Sequence[Rollout]) -> Example:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for item in rollouts:
        groups.setdefault(item.group, []).append(item.row)

    def advantage(row: Mapping[str, Any]) -> float:
        return row.get("advantage") or 0.0

    for group in groups.values():
        best, worst = max(group, key=advantage), min(group, key=advantage)
        if advantage(best) > advantage(worst):
            answers = (_answer(f"best of {len(group)}", best), _answer(f"worst of {len(group)}", worst))
            return Example(_prompt(best), answers, task=_task(best))
    first = next(iter(groups.values()))[:2]
    shown = tuple(_answer(f"completion {at}", row) for at, row in enumerate(first, 1))
    return Example(_prompt(first[0]), shown, task=_task(first[0]))


def _changed(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> ChangedProblems:
    examples = []
    for base, trained in pairs[:MAX_EXAMPLES]:
        answers = (_answer("base", base), _answer("trained", trained))
        examples.append(Example(_prompt(base), answers, reference_of(base), _task(base)))
    return ChangedProblems(len(pairs), tuple(examples))


def _answer(label: str, row: Mapping[str, Any]) -> ShownAnswer:
    # TRL writes one column a reward, an evaluation rewards/NAME. Text columns are logged by rewards.
    rewards = tuple(
        (name.removeprefix("rewards/"), f"{value:.2f}".replace("-", "−"))
        for name, value in row.items()
        if is_number(value) and name not in NO_REWARDS
    )
    shown = fit(turns(row["completion"]), COMPLETION_LIMIT)
    shown = shown if len(shown) > 1 else [("", text) for _, text in shown]  # a single answer needs no role
    return ShownAnswer(label, tuple(shown), rewards, row.get("correct"), cut(row))


def _task(row: Mapping[str, Any]) -> str:
    return str(row.get("task") or "")


def _prompt(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((role, shorten(text, PROMPT_LIMIT)) for role, text in turns(row.get("prompt")))
