"""Choose a few held-out problems whose answers training changed.

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


def _changed(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> ChangedProblems:
    examples = []
    for base, trained in pairs[:MAX_EXAMPLES]:
        answers = (_answer("base", base), _answer("trained", trained))
        prompt = tuple((role, shorten(text, PROMPT_LIMIT)) for role, text in turns(base.get("prompt")))
        examples.append(Example(prompt, answers, reference_of(base), str(base.get("task") or "")))
    return ChangedProblems(len(pairs), tuple(examples))


def _answer(label: str, row: Mapping[str, Any]) -> ShownAnswer:
    rewards = tuple(
        (name.removeprefix("rewards/"), f"{value:.2f}".replace("-", "−"))
        for name, value in row.items()
        if is_number(value) and name.startswith("rewards/")
    )
    shown = fit(turns(row["completion"]), COMPLETION_LIMIT)
    shown = shown if len(shown) > 1 else [("", text) for _, text in shown]  # a single answer needs no role
    return ShownAnswer(label, tuple(shown), rewards, row.get("correct"), cut(row))
