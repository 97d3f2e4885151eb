"""What the completions of a profile scored, and whether their totals differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from rlvr import console
from rlvr.data.mixture import COLUMN as TASK
from rlvr.environments.transcript import as_text
from rlvr.errors import InputError, Problem
from rlvr.formatting import number, one_line, percent, shorten
from rlvr.scoring.reward import Reward, total
from rlvr.training.batch_merge import CompletionTable
from rlvr.training.prepared_run import PreparedRun

MAX_SHOWN = 480  # characters of a completion
# If a tenth of the prompts have right and wrong completions, so many have none with a probability of 3 %.
MIN_PROMPTS = 32


@dataclass(frozen=True)
class ScoredCompletions:
    """The completions of all measured generations, after gates and masks.

    Attributes:
        values: of each completion, in the order of `rewards`; None where a reward did not score it.
        totals: the weighted sum of each; None where the row is masked.
        correct: whether the metric scores each at least 1; None if the recipe does not train on the metric, or it gave
            no score.
        group: completions of each prompt.
    """

    rewards: Sequence[Reward]
    prompts: list[Any]
    completions: list[Any]
    values: list[list[float | None]]
    totals: list[float | None]
    correct: list[bool | None]
    group: int

    @classmethod
    def of(cls, tables: Sequence[CompletionTable], prepared: PreparedRun) -> ScoredCompletions:
        rewards, metrics, labels = prepared.rewards, prepared.metrics, [reward.label for reward in prepared.rewards]
        values: list[list[float | None]] = []
        correct: list[bool | None] = []
        for table in tables:
            tasks = [""] * len(table.prompt) if "" in metrics else table.extra[TASK]
            columns = zip(*(table.rewards[label] for label in labels), strict=True)
            for task, row in zip(tasks, columns, strict=True):
                values.append([None if value is None or math.isnan(value) else value for value in row])
                decisive = metrics[task]
                value = values[-1][labels.index(decisive.label)] if decisive in rewards else None
                correct.append(None if value is None else value >= 1)
        return cls(
            rewards,
            [prompt for table in tables for prompt in table.prompt],
            [completion for table in tables for completion in table.completion],
            values,
            [total(row, rewards) for row in values],
            correct,
            prepared.plan.generations,
        )

    def of_reward(self, index: int) -> list[float]:
        return [value for row in self.values if (value := row[index]) is not None]

    def with_spread(self) -> float:
        """The share of groups whose totals differ."""
        starts = range(0, len(self.totals), self.group)
        groups = [[value for value in self.totals[start : start + self.group] if value is not None] for start in starts]
        return fmean(not _constant(own) for own in groups)

    def lines(self) -> list[str]:
        known = [value for value in self.totals if value is not None]
        columns = [(reward.label, self.of_reward(index)) for index, reward in enumerate(self.rewards)]
        rows = [
            [name, *(f"{figure:.3f}" for figure in (fmean(own), pstdev(own), min(own), max(own)))]
            if own
            else [name, *"----"]
            for name, own in [*columns, ("weighted sum", known)]
        ]
        judged = [value for value in self.correct if value is not None]
        right = f"{percent(fmean(judged))} of {len(judged):,} sampled completions are right; " if judged else ""
        return [
            "",
            console.table(["reward", "mean", "spread", "lowest", "highest"], rows),
            "",
            f"  {right}{percent(self.with_spread())} of the groups have a spread",
            *self._examples(),
        ]

    def _examples(self) -> Iterator[str]:
        """The completions with the lowest, the middle and the highest total."""
        ranked = sorted((value, row) for row, value in enumerate(self.totals) if value is not None)
        if not ranked:
            return
        for place in dict.fromkeys([0, len(ranked) // 2, len(ranked) - 1]):
            value, row = ranked[place]
            scores = zip(self.rewards, self.values[row], strict=True)
            parts = ", ".join(f"{reward.label} {number(score)}" for reward, score in scores if score is not None)
            completion = shorten(as_text(self.completions[row]).strip(), MAX_SHOWN)
            yield f"\n  total {number(value)}: {parts}"
            yield f"    prompt      {one_line(as_text(self.prompts[row]), 120, end=True)}"
            yield f"    completion  {one_line(completion, 2 * MAX_SHOWN)}"


def _constant(values: Sequence[float]) -> bool:
    return not values or max(values) - min(values) < 1e-6  # sums of equal parts differ by rounding


def check_spread(table: ScoredCompletions) -> Iterator[Problem]:
    """Warn of one total reward for all completions.

    Raises:
        InputError: it is so over at least `MIN_PROMPTS` prompts.
    """
    known = [value for value in table.totals if value is not None]
    if not _constant(known):
        return
    said = f"Not one of {len(table.totals):,} completions could be scored"
    if known:
        said = f"All {len(known):,} completions have the total reward {number(known[0])}"
    advice = (
        "Read the completions above. If right ones score nothing, correct the reward (scripts/score.py). Else take "
        "easier or harder rows, or show an example in the prompt."
    )
    prompts = len(table.totals) // table.group
    if prompts >= MIN_PROMPTS:
        message = f"{said}, so there is nothing to learn from. {advice}"
        raise InputError(message, kind="constant-reward", key="rewards")
    message = f"{said}. With {prompts} prompts that may be chance. {advice}"
    yield Problem(message, "constant-reward", "rewards", level="warning")
