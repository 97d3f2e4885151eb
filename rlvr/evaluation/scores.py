"""Summarise records: accuracy, its parts, pass@k, and the difference of two models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.artifacts.evaluation import Difference, Part, PassGain, PassRate, Score
from rlvr.artifacts.evaluation_summary import interval_words
from rlvr.config.specs import Reference
from rlvr.evaluation.statistics import (
    bootstrap,
    paired_difference,
    pass_at_k,
    powers_of_two,
    wilson,
)
from rlvr.formatting import count, is_number, percent
from rlvr.scoring.reward import Reward, total

Record = Mapping[str, Any]
MAX_DIFFICULTIES = 8  # more different numbers are put into four ranges
FAR_BELOW = 0.10
OFTEN_CUT_OFF = 0.5


def summarise(records: Sequence[Record], labels: Sequence[str]) -> Score:
    """Count records (see `rlvr.evaluation.evaluate.measure`) into a score."""
    judged = [record for record in records if record["correct"] is not None]
    correct = sum(record["correct"] for record in judged)
    values = {label: [record[f"rewards/{label}"] for record in records] for label in labels}
    scored = {label: [value for value in column if value is not None] for label, column in values.items()}
    of_several_tasks = len({record.get("task") for record in records}) > 1  # not all rewards apply to each
    lenient = [record for record in judged if record.get("lenient") is not None]
    formatted = [record for record in judged if record.get("formatted") is not None]
    bare = [record for record in formatted if record.get("lenient") is not None]
    return Score(
        rows=len(judged),
        correct=correct,
        accuracy=correct / len(judged) if judged else 0.0,
        interval=wilson(correct, len(judged)),
        unscored=len(records) - len(judged),
        cut_off=sum(not record["ended"] for record in records) / max(len(records), 1),
        mean_tokens=sum(record["tokens"] for record in records) / max(len(records), 1),
        rewards={label: sum(column) / len(column) if column else math.nan for label, column in scored.items()},
        unscored_rewards={
            label: len(records) - len(column)
            for label, column in scored.items()
            if len(column) < len(records) and not of_several_tasks
        },
        by_source=_parts(judged, "source", str),
        by_difficulty=_parts(judged, "difficulty", _ranges([record.get("difficulty") for record in judged])),
        lenient=sum(record["lenient"] for record in lenient) if lenient else None,
        formatted=sum(record["formatted"] for record in formatted) if formatted else None,
        right_without_format=sum(record["lenient"] and not record["formatted"] for record in bare) if bare else None,
    )


@dataclass(frozen=True)
class SampledGroups:
    """How a model did when it was sampled as in training.

    Attributes:
        prompts, samples: how many prompts, and how many completions in all.
        pass_rate: share of the completions that the metric could judge and that are right; 0 without any.
        with_spread: share of the prompts whose completions differ in their total reward.
        decoding: in words.
    """

    prompts: int
    samples: int
    pass_rate: float
    with_spread: float
    decoding: str

    def words(self) -> str:
        """Format as "sampled at temperature 0.7: 12.5 % of 128 completions right; 44 % of 16 groups have a spread"."""
        return (
            f"{self.decoding}: {percent(self.pass_rate)} of {self.samples:,} completions right; "
            f"{100 * self.with_spread:.0f} % of {count(self.prompts, 'group')} have a spread of rewards"
        )

    def warning(self) -> str | None:
        """What to change if no completion is right."""
        if self.pass_rate > 0:
            return None
        return (
            f"None of {self.samples:,} completions of {count(self.prompts, 'training prompt')} is right ("
            f"{self.decoding}), so training may have nothing to learn from. Read completions (--profile): the reward "
            "may ask for another form than the prompt. Else lower the temperature, show an example in the prompt, or "
            "start with easier rows."
        )


def summarise_groups(records: Sequence[Record], rewards: Sequence[Reward], decoding: str) -> SampledGroups:
    """Count the records of several samples per row."""
    judged = [record["correct"] for record in records if record["correct"] is not None]
    totals: dict[int, set[float]] = {}
    for record in records:
        values = [record[f"rewards/{reward.label}"] for reward in rewards]
        is_masked = any(
            value is None and reward.applies(record.get("task")) for value, reward in zip(values, rewards, strict=True)
        )
        sum_of_rewards = None if is_masked else total(values, rewards)
        totals.setdefault(record["row"], set()).update([] if sum_of_rewards is None else [sum_of_rewards])
    return SampledGroups(
        prompts=len(totals),
        samples=len(records),
        pass_rate=sum(judged) / max(len(judged), 1),
        with_spread=sum(len(group) > 1 for group in totals.values()) / max(len(totals), 1),
        decoding=decoding,
    )


def by_task(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each task by label, in the order of their rows; the label of a recipe's only task is ""."""
    tasks: dict[str, list[Record]] = {}
    for record in records:
        tasks.setdefault(record.get("task", ""), []).append(record)
    return tasks


def _parts(judged: Sequence[Record], column: str, name: Callable[[Any], str]) -> dict[str, Part]:
    """The accuracy for each value of a column, in the order of the values."""
    groups: dict[str, list[bool]] = {}
    known = [record for record in judged if record.get(column) is not None]
    are_numbers = all(is_number(record[column]) for record in known)
    for record in sorted(known, key=lambda record: record[column] if are_numbers else str(record[column])):
        groups.setdefault(name(record[column]), []).append(record["correct"])
    return {
        value: Part(len(part), sum(part) / len(part), wilson(sum(part), len(part))) for value, part in groups.items()
    }


def _ranges(values: Sequence[Any]) -> Callable[[Any], str]:
    """Name a value: by itself, or by its range where there are many different numbers.

    Each range has about a quarter of the rows.
    """
    numbers = sorted(value for value in values if is_number(value))
    if len(numbers) < len([value for value in values if value is not None]) or len(set(numbers)) <= MAX_DIFFICULTIES:
        return lambda value: f"{value:g}" if is_number(value) else str(value)
    tops = sorted({numbers[len(numbers) * part // 4 - 1] for part in (1, 2, 3, 4)})
    ranges: dict[float, list[float]] = {}  # by their upper end
    for number in numbers:
        ranges.setdefault(next(top for top in tops if number <= top), []).append(number)
    return {value: f"{part[0]:g} … {part[-1]:g}" for part in ranges.values() for value in part}.__getitem__


def compare(base: Sequence[Record], trained: Sequence[Record]) -> Difference:
    """The paired difference over the rows that both evaluations could score."""
    pairs = [(before["correct"], after["correct"]) for before, after in zip(base, trained, strict=True)]
    judged = [pair for pair in pairs if None not in pair]
    return paired_difference([before for before, _ in judged], [after for _, after in judged])


# ----------------------------------------------------------------------------------------------------------------------
# Several samples a row


def count_samples(records: Sequence[Record]) -> dict[int, tuple[int, int]]:
    """For each row, how many of its samples were scored, and how many of these were right."""
    verdicts: dict[int, list[bool]] = {}
    for record in records:
        verdicts.setdefault(record["row"], []).extend([] if record["correct"] is None else [record["correct"]])
    return {row: (len(judged), sum(judged)) for row, judged in verdicts.items()}


def pass_rates(records: Sequence[Record], samples: int) -> dict[str, PassRate]:
    """pass@k for k = 1, 2, 4 … up to `samples`, by k as text.

    A row counts for k if at least k of its samples were scored.
    """
    rates = {}
    for k in powers_of_two(samples):
        values = [pass_at_k(judged, right, k) for judged, right in count_samples(records).values() if judged >= k]
        if values:
            rates[str(k)] = PassRate(sum(values) / len(values), bootstrap(values), len(values))
    return rates


def compare_samples(base: Sequence[Record], trained: Sequence[Record], samples: int) -> dict[str, PassGain]:
    """The difference in pass@k on the rows that were scored for both, with its interval by resampling rows."""
    before, after = count_samples(base), count_samples(trained)
    differences = {}
    for k in powers_of_two(samples):
        values = [
            pass_at_k(*after[row], k) - pass_at_k(*before[row], k)
            for row in before
            if row in after and min(before[row][0], after[row][0]) >= k
        ]
        if values:
            interval = bootstrap(values, least=-1.0)
            differences[str(k)] = PassGain(sum(values) / len(values), interval, len(values))
    return differences


# ----------------------------------------------------------------------------------------------------------------------


def reference_warning(reference: Reference | None, base: Score | None) -> str | None:
    """Warn of a base that scores far below its published score; None if it doesn't."""
    if reference is None or base is None or not base.rows or base.interval.high >= reference.score - FAR_BELOW:
        return None
    return (
        f"The evaluation is suspect: the base model is at {100 * base.accuracy:.1f} % (95 % interval "
        f"{interval_words(base.interval)}), but {reference.source} gives "
        f"{100 * reference.score:.1f} %. A gain over a base that is measured too low is no gain. Look at its "
        "completions: are they cut off, does the model know the prompt's form, is its answer the one that is read?"
    )


def truncation_warning(limit: int | None, scores: Mapping[str, Score]) -> str | None:
    """Warn of an accuracy for which most answers were cut off; None if they weren't.

    Args:
        limit: max_new_tokens.
        scores: by model ("base", "trained, task").
    """
    often = [f"{100 * one.cut_off:.0f} % ({model})" for model, one in scores.items() if one.cut_off >= OFTEN_CUT_OFF]
    if not often:
        return None
    key = f"max_new_tokens ({limit})" if limit else "max_new_tokens"
    return (
        f"Most answers were cut off: {', '.join(often)}. Such an accuracy measures the limit more than the model. Read "
        f"some answers: if they were on their way, raise {key} in the section evaluation; if they never end, look at "
        "the prompt and its stop strings."
    )


def unscored_warning(scores: Mapping[str, Score]) -> str | None:
    """Warn of accuracies that leave out many rows, since the metric gave no score for them; None if they don't.

    Args:
        scores: by model ("base", "trained, task").
    """
    often = [f"{score.unscored_words} ({name})" for name, score in scores.items() if score.is_often_unscored]
    if not often:
        return None
    return (
        f"The metric gave no score for {', '.join(often)}. The accuracy is that of the other answers alone, so base "
        "and trained can't be compared. Return 0 for a wrong answer, and None only for a failure of the reward itself."
    )


def partial_value_warning(metrics: Mapping[str, str], results: Mapping[str, Sequence[Record]]) -> str | None:
    """Warn of a metric that pays, but for no answer the 1.0 that counts as right, or that pays several values above it.

    Args:
        metrics: the metric's label by that of its task; the key is "" for one task.
        results: the records of each model.
    """
    for task, label in metrics.items():
        records = [record for own in results.values() for record in own if not task or record.get("task") == task]
        values = [value for record in records if (value := record.get(f"rewards/{label}")) is not None]
        if values and 0 < max(values) < 1:
            return (
                f"No answer counts as right: {label} paid up to {max(values):g}, and an answer is right from 1.0 on. "
                "If that is what a right answer earns, let it earn 1.0 and lower the weight, or name another reward in "
                "evaluation.metric."
            )
        counted = sorted({value for value in values if value >= 1})
        if len(counted) > 1:
            return (
                f"{label} paid values from {counted[0]:g} to {counted[-1]:g}, and every answer with 1.0 or more counts "
                "as right. If the smaller ones are for answers that are partly right, let only a right answer earn "
                "1.0, and raise the weight."
            )
    return None
