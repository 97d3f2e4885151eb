"""Scoring completions that are already there: what each reward says of them, where rewards disagree, and why.

No model is loaded and nothing is generated; rlvr/rescoring/completions.py reads the rows.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from rlvr.data.io import Row
from rlvr.errors import InputError
from rlvr.rescoring.completions import prompt_key
from rlvr.scoring.registry import FROM_TRAINER, companion_function
from rlvr.scoring.reward import Reward, apply_gates_and_mask, total
from rlvr.verifiers.math import completion_text, own_turn, without_thinking

# Rewards are called with at most so many rows at a time; a batch never holds rows of two steps.
BATCH = 256
# What runs and evaluations write beside the data's own columns (see also `recorded_names`).
WRITTEN_BY_RUNS = frozenset({"step", "advantage", "correct", "row", "tokens", "ended"})


@dataclass(frozen=True)
class Scores:
    """What the rewards of a recipe said of some rows.

    Attributes:
        rewards: as the recipe lists them.
        values: by row and reward, as the functions returned them; None where one could not say, or raised.
        settled: the same after gates and masks (`rlvr.scoring.reward.settle`).
        totals: the weighted sum of each settled row; None where it is masked.
        seconds: by reward, for all rows.
        raised: by reward, the rows on which it raised or returned no number, and what it said.
    """

    rewards: Sequence[Reward]
    values: list[list[float | None]]
    settled: list[list[float | None]]
    totals: list[float | None]
    seconds: list[float]
    raised: list[dict[int, str]]


@dataclass(frozen=True)
class Spread:
    """Figures of one column of numbers; those of the rows without a number are `unscored` and in nothing else.

    `std` is that of a sample (n − 1), as TRL logs it. All but the counts are None where no row has a number.
    """

    rows: int
    unscored: int
    mean: float | None = None
    std: float | None = None
    least: float | None = None
    most: float | None = None
    positive: float | None = None


@dataclass(frozen=True)
class Recorded:
    """A column that the file came with, against what the same reward says now: rows compared, and rows that differ."""

    name: str
    compared: int
    differing: list[int]


@dataclass(frozen=True)
class Disagreement:
    """Rows on which `yes` (a reward's label) is positive and `no` (another's) is not."""

    yes: str
    no: str
    rows: list[int]


@dataclass(frozen=True)
class Groups:
    """Completions of one prompt (in one step), at least two: how many such groups, and which can't teach anything.

    Attributes:
        count: groups of two or more rows.
        rows: rows in them.
        smallest, largest: rows of a group.
        without_spread: groups whose totals are all the same, so that every advantage is 0.
    """

    count: int
    rows: int
    smallest: int
    largest: int
    without_spread: int


# ----------------------------------------------------------------------------------------------------------------------
# Scoring


def score(
    rows: Sequence[Row], rewards: Sequence[Reward], progress: Callable[[int], object] = lambda done: None
) -> Scores:
    """Scores every row with every reward, as training would: in batches, gates and masks applied.

    A completion is handed over as it stands; where the prompt is a list of messages, text becomes an assistant's
    message, as GRPOTrainer has it. Where a reward raises, its batch is scored row by row, to find which rows it was.

    Args:
        rows: with `completion`, the columns that rewards ask for, and `prompt` where there is one.
        progress: called after each batch with the number of its rows.

    Raises:
        InputError: raised by a reward: one of its options, or an entry of a column, is wrong.
    """
    values: list[list[float | None]] = [[] for _ in rows]
    seconds, raised = [0.0 for _ in rewards], [dict[int, str]() for _ in rewards]
    for batch in batches(rows):
        for place, reward in enumerate(rewards):
            arguments = _arguments([rows[number] for number in batch], reward, rewards)
            start = time.perf_counter()
            scored = _score_batch(reward, arguments, batch, raised[place])
            seconds[place] += time.perf_counter() - start
            for number, value in zip(batch, scored, strict=True):
                values[number].append(value)
        progress(len(batch))
    settled = apply_gates_and_mask(values, rewards)
    return Scores(rewards, values, settled, [total(row, rewards) for row in settled], seconds, raised)


def batches(rows: Sequence[Row]) -> Iterator[range]:
    """Row numbers that are scored together."""
    start = 0
    for number in range(1, len(rows) + 1):
        ends = number == len(rows) or number - start == BATCH
        if ends or rows[number].get("step") != rows[start].get("step"):
            yield range(start, number)
            start = number


def _arguments(rows: Sequence[Row], reward: Reward, rewards: Sequence[Reward]) -> dict[str, list[Any]]:
    """What a reward is called with, a list each, as long as `rows`; None where one of several rows lacks a column."""
    names = given_columns(dict.fromkeys(name for row in rows for name in row), reward, rewards)
    return {
        "prompts": [row.get("prompt", "") for row in rows],
        "completions": [handed_over(row) for row in rows],
        **{name: [row.get(name) for row in rows] for name in names},
    }


def _score_batch(
    reward: Reward, arguments: dict[str, list[Any]], batch: range, raised: dict[int, str]
) -> list[float | None]:
    try:
        return reward(**arguments, log_extra=lambda column, values: None, log_metric=lambda name, value: None)
    except Exception as raised_now:  # RewardError; or what its own message ran into, with a completion that is no text
        error = raised_now
    # Outside of the handler, so that a row's error does not get that of its batch for its cause.
    if len(batch) > 1:
        values: list[float | None] = []
        for place, number in enumerate(batch):
            one = {name: given[place : place + 1] for name, given in arguments.items()}
            values += _score_batch(reward, one, range(number, number + 1), raised)
        return values
    cause = error.__cause__ or error.__context__
    if isinstance(cause, InputError):
        raise InputError(f"Row {batch.start}, reward {reward.name}: {cause}") from error
    said = str(error).replace("row 0 of the batch", "this row")
    raised[batch.start] = f"{type(cause).__name__}: {cause}" if cause else said
    return [None]


def given_columns(names: Iterable[str], reward: Reward, rewards: Sequence[Reward]) -> list[str]:
    """Which of these columns a reward is given: those it asks for, and the data's others, as in training.

    Left out is what a run wrote there itself, and what the recipe sets as an option.
    """
    recorded = {name for other in rewards for name in recorded_names(other)}
    left_out = recorded.union(WRITTEN_BY_RUNS, FROM_TRAINER, reward.options)
    given = [name for name in names if name in reward.columns or name not in left_out]
    return [name for name in given if name not in ("prompt", "completion")]


def handed_over(row: Row) -> Any:
    """The completion as rewards get it (see `score`)."""
    completion = row["completion"]
    if isinstance(completion, str) and isinstance(row.get("prompt"), list):
        return [{"role": "assistant", "content": completion}]
    return completion


# ----------------------------------------------------------------------------------------------------------------------
# Figures


def spread(values: Sequence[float | None]) -> Spread:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return Spread(rows=0, unscored=len(values))
    return Spread(
        rows=len(numbers),
        unscored=len(values) - len(numbers),
        mean=statistics.fmean(numbers),
        std=statistics.stdev(numbers) if len(numbers) > 1 else 0.0,
        least=min(numbers),
        most=max(numbers),
        positive=sum(number > 0 for number in numbers) / len(numbers),
    )


def recorded_names(reward: Reward) -> tuple[str, str]:
    """The columns in which a run (by TRL's name) and an evaluation write a reward, gates and masks applied."""
    return reward.label, f"rewards/{reward.label}"


def compare_with_recorded(rows: Sequence[Row], scores: Scores, metric: Reward | None) -> list[Recorded]:
    """The rewards that the file came with, and its column `correct`, against what is said now.

    Args:
        metric: the reward that `correct` (its value is at least 1) was decided by; None if the recipe doesn't list it.
    """
    found = []
    for place, reward in enumerate(scores.rewards):
        for name in recorded_names(reward):
            pairs = [
                (number, row[name], scores.settled[number][place])
                for number, row in enumerate(rows)
                if name in row and name not in reward.columns and _is_number_or_none(row[name])
            ]
            # A text column of the reward's name is none of the run's, and neither is one that is empty throughout.
            if any(written is not None for _, written, _ in pairs):
                differing = [number for number, written, now in pairs if not _same(written, now)]
                found.append(Recorded(name, len(pairs), differing))
    if metric is not None and "correct" not in metric.columns:
        place = list(scores.rewards).index(metric)
        judged = [(number, row["correct"]) for number, row in enumerate(rows) if "correct" in row]
        judged = [(number, written) for number, written in judged if _is_number_or_none(written)]
        if any(written is not None for _, written in judged):
            differing = []
            for number, written in judged:
                value = scores.values[number][place]
                if not _same(written, None if value is None else float(value >= 1.0)):
                    differing.append(number)
            found.append(Recorded("correct", len(judged), differing))
    return found


def _is_number_or_none(value: object) -> bool:
    return value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**53)


def _same(written: float | None, now: float | None) -> bool:
    """Whether a recorded number, perhaps a float32 or NaN for "could not say", is the one of now."""
    if written is None or math.isnan(written):
        return now is None
    return now is not None and math.isclose(written, now, rel_tol=1e-5, abs_tol=1e-6)


def disagreements(scores: Scores) -> list[Disagreement]:
    """Every two rewards of which one is positive where the other is not, most rows first."""
    found = []
    for first, second in combinations(range(len(scores.rewards)), 2):
        for yes, no in ((first, second), (second, first)):
            numbers = [number for number, row in enumerate(scores.values) if _positive(row[yes]) and _zero(row[no])]
            if numbers:
                found.append(Disagreement(scores.rewards[yes].label, scores.rewards[no].label, numbers))
    return sorted(found, key=lambda one: -len(one.rows))


def _positive(value: float | None) -> bool:
    return value is not None and value > 0


def _zero(value: float | None) -> bool:
    return value is not None and value <= 0


def groups(rows: Sequence[Row], totals: Sequence[float | None]) -> Groups:
    """Counts the groups among rows; a masked row (None) is in its group, but has no total to differ in."""
    members: dict[tuple[Any, str], list[float | None]] = {}
    for row, value in zip(rows, totals, strict=True):
        key = prompt_key(row)
        if key:
            members.setdefault((repr(row.get("step")), key), []).append(value)
    found = [group for group in members.values() if len(group) > 1]
    # As TRL has it (torch.isclose to a spread of 0): the last bits of a float make no difference.
    flat = sum(max(numbers, default=0.0) - min(numbers, default=0.0) < 1e-8 for numbers in map(_numbers, found))
    sizes = [len(group) for group in found] or [0]
    return Groups(len(found), sum(sizes), min(sizes), max(sizes), flat)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def by_step(rows: Sequence[Row], scores: Scores) -> dict[int, tuple[Spread, list[Spread]]]:
    """For each step, the spread of the totals and of each reward; empty where rows carry no step, or only one."""
    steps: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        if isinstance(row.get("step"), int):
            steps.setdefault(row["step"], []).append(number)
    if len(steps) < 2:
        return {}
    return {
        step: (
            spread([scores.totals[number] for number in numbers]),
            [spread([scores.values[number][place] for number in numbers]) for place in range(len(scores.rewards))],
        )
        for step, numbers in sorted(steps.items())
    }


def as_dict(
    scores: Scores, recorded: Sequence[Recorded], groups: Groups, disagreements: Sequence[Disagreement]
) -> dict[str, Any]:
    """All figures, and what each row got, for programs (`score.py --json`)."""
    labels = [reward.label for reward in scores.rewards]
    return {
        "rewards": [
            {
                "name": reward.name,
                "label": reward.label,
                "weight": reward.weight,
                "gate": reward.gate,
                "options": dict(reward.options),
                **asdict(spread([row[place] for row in scores.values])),
                "failed": {str(number): said for number, said in scores.raised[place].items()},
                "seconds_per_1000": 1000 * scores.seconds[place] / len(scores.values),
            }
            for place, reward in enumerate(scores.rewards)
        ],
        "total": asdict(spread(scores.totals)),
        "recorded": [asdict(one) for one in recorded],
        "groups": asdict(groups),
        "disagreements": [asdict(one) for one in disagreements],
        "scores": [
            {"row": number, "total": scores.totals[number], "rewards": dict(zip(labels, values, strict=True))}
            for number, values in enumerate(scores.values)
        ],
    }


# ----------------------------------------------------------------------------------------------------------------------
# Explaining


@dataclass(frozen=True)
class Explanation:
    """What the module of a reward says on one completion; `fault` is set where its `explain` fails instead."""

    lines: list[str] = field(default_factory=list)
    fault: str | None = None


def explanation(row: Row, reward: Reward, rewards: Sequence[Reward]) -> Explanation:
    """Calls `explain(completion, *, columns and options, **kwargs) -> list[str]` of the module that defines the reward.

    A module without one says nothing; one that raises, or returns something else, is quoted in `fault`.
    """
    explain = companion_function(reward.function, "explain")
    if explain is None:
        return Explanation()
    columns = {name: row[name] for name in given_columns(row, reward, rewards)}
    try:
        lines = explain(handed_over(row), prompt=row.get("prompt"), **columns, **reward.options)
    except Exception as error:  # whatever the author of the reward has overlooked: the rest of the page is still true
        return Explanation(fault=f"its explain raised {type(error).__name__}: {error}")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return Explanation(fault=f"its explain returned {type(lines).__name__}, but should return a list of text")
    return Explanation(lines)


@dataclass(frozen=True)
class Turn:
    """What of a completion is read as the model's answer.

    Attributes:
        text: all that it wrote: the completion, or its last assistant message.
        own: the model's own turn (`rlvr.verifiers.math.own_turn`).
        thinking: characters between <think> tags, with the tags.
        rest: what was cut off behind the own turn; it begins with what it was cut at.
    """

    text: str
    own: str
    thinking: int
    rest: str


def turn_of(completion: Any) -> Turn:
    text = completion_text(completion)
    own, spoken = own_turn(text), without_thinking(text)
    return Turn(text, own, max(len(text) - len(spoken), 0), spoken[len(own) :] if spoken.startswith(own) else "")
