"""Statistics of scores: spread, groups, disagreements between rewards, comparison with recorded values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from rlvr.data.io import Row
from rlvr.reward_audit.completions import prompt_key
from rlvr.reward_audit.rescoring import Scores
from rlvr.reward_audit.reward_call import recorded_names
from rlvr.scoring.reward import Reward


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of a column of scores, without its `unscored` rows.

    `std` is that of a sample (n − 1), as TRL logs it. Without any score, all but the counts are None.
    """

    rows: int
    unscored: int
    mean: float | None = None
    std: float | None = None
    least: float | None = None
    most: float | None = None
    positive: float | None = None


@dataclass(frozen=True)
class RecordedComparison:
    """A column of the file against today's scores: the number of compared rows, and the rows that differ."""

    name: str
    compared: int
    differing: list[int]


@dataclass(frozen=True)
class Disagreement:
    """Rows on which the reward `yes` is positive and the reward `no` is not."""

    yes: str
    no: str
    rows: list[int]


@dataclass(frozen=True)
class GroupStats:
    """Groups (two or more completions of one prompt in one step), the rows in them, and the rows of a group.

    Groups `without_spread` have equal totals, so that all advantages are 0.
    """

    count: int
    rows: int
    smallest: int
    largest: int
    without_spread: int


def column_stats(values: Sequence[float | None]) -> ColumnStats:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ColumnStats(rows=0, unscored=len(values))
    return ColumnStats(
        rows=len(numbers),
        unscored=len(values) - len(numbers),
        mean=statistics.fmean(numbers),
        std=statistics.stdev(numbers) if len(numbers) > 1 else 0.0,
        least=min(numbers),
        most=max(numbers),
        positive=sum(number > 0 for number in numbers) / len(numbers),
    )


def compare_with_recorded(rows: Sequence[Row], scores: Scores, metric: Reward | None) -> list[RecordedComparison]:
    """Compare rewards in the file, and its column `correct`, with today's scores.

    Args:
        metric: the reward that decided `correct` (its value is at least 1); None if the recipe doesn't list it.
    """
    columns = [
        (name, reward, [row[index] for row in scores.effective])
        for index, reward in enumerate(scores.rewards)
        for name in recorded_names(reward)
    ]
    if metric is not None:
        values = [row[list(scores.rewards).index(metric)] for row in scores.values]
        columns.append(("correct", metric, [None if value is None else float(value >= 1.0) for value in values]))
    comparisons = []
    for name, reward, now in columns:
        written = {number: row[name] for number, row in enumerate(rows) if name in row and _is_score(row[name])}
        # A run wrote neither a column of the data nor a text column of the reward's name nor one that is always empty.
        if name not in reward.columns and any(value is not None for value in written.values()):
            differing = [number for number, value in written.items() if not _same(value, now[number])]
            comparisons.append(RecordedComparison(name, len(written), differing))
    return comparisons


def _is_score(value: object) -> bool:
    return value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**53)


def _same(written: float | None, now: float | None) -> bool:
    """Compare a recorded number, which may be a float32, or NaN for "unscored", with today's."""
    if written is None or math.isnan(written):
        return now is None
    return now is not None and math.isclose(written, now, rel_tol=1e-5, abs_tol=1e-6)


def disagreements(scores: Scores) -> list[Disagreement]:
    """Every pair of rewards of which one is positive where the other is not, most rows first."""
    pairs = []
    for first, second in combinations(range(len(scores.rewards)), 2):
        for yes, no in ((first, second), (second, first)):
            numbers = [number for number, row in enumerate(scores.values) if _differ(row[yes], row[no])]
            if numbers:
                pairs.append(Disagreement(scores.rewards[yes].label, scores.rewards[no].label, numbers))
    return sorted(pairs, key=lambda pair: -len(pair.rows))


def _differ(yes: float | None, no: float | None) -> bool:
    return yes is not None and no is not None and yes > 0 >= no


def group_stats(rows: Sequence[Row], totals: Sequence[float | None], size: int) -> GroupStats:
    """Count groups. A masked row (None) belongs to its group, but its total is not compared.

    Args:
        size: completions a group in training. A prompt that a step has twice, as mixtures may, has two groups.
    """
    members: dict[tuple[Any, str], list[float | None]] = {}
    for row, value in zip(rows, totals, strict=True):
        members.setdefault((repr(row.get("step")), prompt_key(row)), []).append(value)
    groups = []
    for (_, key), group in members.items():
        length = size if len(group) % size == 0 else len(group)  # of a run, or of another sampler
        parts = (group[start : start + length] for start in range(0, len(group), length))
        groups += [part for part in parts if key and len(part) > 1]
    scored = ([total for total in group if total is not None] for group in groups)
    # TRL uses torch.isclose: the last bits of a float make no difference.
    equal = sum(max(totals, default=0.0) - min(totals, default=0.0) < 1e-8 for totals in scored)
    sizes = [len(group) for group in groups] or [0]
    return GroupStats(len(groups), sum(sizes), min(sizes), max(sizes), equal)


def as_dict(scores: Scores) -> dict[str, Any]:
    """The statistics of each reward and the scores of each row, for `score.py --json`."""
    labels = [reward.label for reward in scores.rewards]
    return {
        "rewards": [
            {"name": reward.name, "label": reward.label, "weight": reward.weight}
            | asdict(column_stats(scores.of(index)))
            for index, reward in enumerate(scores.rewards)
        ],
        "total": asdict(column_stats(scores.totals)),
        "scores": [
            {"row": number, "total": scores.totals[number], "rewards": dict(zip(labels, values, strict=True))}
            for number, values in enumerate(scores.values)
        ],
    }
