"""What calls of reward functions gave: `CallResult` of one call, `RewardFailure` for people, `Scored` for the trainer.

All of them use the words of `Status`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlvr.workers.pool import TaskResult

Note = tuple[str, str, Any]  # ("extra", column, list) or ("metric", name, number)
Status = Literal["done", "raised", "wrong length", "no number", "timeout", "crashed", "unavailable"]


@dataclass(frozen=True)
class CallResult:
    """The result of one call of a reward function, as workers and reward servers send it.

    Attributes:
        values: one per row: a number, None for a row that the function can't score, or text that shows what it
            returned instead of a number.
        status: "done": the function returned a list of the right length; "wrong length": it returned something else;
            "raised", "timeout", "crashed" (its process died) or "unavailable": the batch ran out of time, or no
            worker, server or cluster could be reached.
        why: the failure as part of a sentence, such as "raised ZeroDivisionError: division by zero".
        trace: traceback from the user's file on.
        notes: what the function logged, in its order.
    """

    values: Sequence[float | str | None] = ()
    status: Status = "done"
    why: str = ""
    trace: str = ""
    notes: Sequence[Note] = ()

    @classmethod
    def of_worker(cls, result: TaskResult) -> CallResult:
        """The result of a worker whose function returns the fields of a `CallResult`."""
        if result.status == "done":
            return cls(**result.value)
        # What the function raises is in the value. An error of the worker says as little of the function as a crash.
        return cls(status="crashed" if result.status == "raised" else result.status, why=result.why)


@dataclass(frozen=True)
class RewardFailure:
    """A failure of a reward function.

    Attributes:
        reward: label of the reward.
        row: row of the batch on this rank; None for the whole batch.
        status: of the call; or "no number": the value of the row is text, NaN or infinite.
        message: everything that is known, for people.
    """

    reward: str
    row: int | None
    status: Status
    message: str


@dataclass(frozen=True)
class Scored:
    """Rewards of a batch.

    Attributes:
        values: by row and reward, before gates and masks (`rlvr.scoring.reward.apply_gates_and_mask`); None where a
            function returned None or failed.
        failures: in the order of the rewards and rows.
        seconds: by label, from the call until the values were known.
        outage_s: seconds since a remote backend last answered; 0 if there is none, or if it answered this batch.
        outage_of: which service that is, such as "reward server".
        logged: columns of the table of completions that were logged.
    """

    values: list[list[float | None]]
    failures: list[RewardFailure]
    seconds: dict[str, float]
    outage_s: float = 0.0
    outage_of: str = ""
    logged: frozenset[str] = frozenset()


def merge_shards(shards: Sequence[tuple[CallResult, Sequence[int]]]) -> CallResult:
    """Merge the results of one reward for shards of a batch, each given with its rows.

    Values are in the order of the rows. Metrics are averaged, weighted by rows. If a shard failed, its result is the
    result of the batch.
    """
    shards = sorted(shards, key=lambda shard: list(shard[1]))
    for result, _ in shards:
        if result.status != "done" or len(shards) == 1:
            return result
    return _merge(shards)


def spread(result: CallResult, rows: Sequence[int], count: int) -> CallResult:
    """The result of a call with some rows of a batch of `count`, with None in the other rows."""
    others = sorted(set(range(count)) - set(rows))
    return _merge([(result, rows), (CallResult([None] * len(others)), others)])


def merge_rows(results: Sequence[CallResult]) -> CallResult:
    """Merge results of calls for single rows, in the order of the rows. A failed row has no value and no notes."""
    done = [result if result.status == "done" else CallResult([None]) for result in results]
    return _merge([(result, [row]) for row, result in enumerate(done)])


def _merge(shards: Sequence[tuple[CallResult, Sequence[int]]]) -> CallResult:
    rows = [row for _, shard_rows in shards for row in shard_rows]
    place = {row: number for number, row in enumerate(sorted(rows))}
    values: list[float | str | None] = [None] * len(rows)
    extras: dict[str, list[Any]] = {}
    metrics: dict[str, list[tuple[float, int]]] = {}
    for result, shard_rows in shards:
        for row, value in zip(shard_rows, result.values, strict=True):
            values[place[row]] = value
        for what, name, content in result.notes:
            if what == "metric":
                metrics.setdefault(name, []).append((float(content), len(shard_rows)))
            elif len(content) == len(shard_rows):
                column = extras.setdefault(name, [None] * len(rows))
                for row, entry in zip(shard_rows, content, strict=True):
                    column[place[row]] = entry
    notes: list[Note] = [("extra", name, column) for name, column in extras.items()]
    for name, pairs in metrics.items():
        mean = math.fsum(value * count for value, count in pairs) / sum(count for _, count in pairs)
        notes.append(("metric", name, mean))
    return CallResult(values, notes=notes)
