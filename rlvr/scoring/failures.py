"""What is wrong with a reward function, in words: values and faults from what its calls came to
(rlvr/scoring/scorer.py)."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rlvr.scoring.call import CallResult, Note
from rlvr.scoring.reward import A_REWARD_IS, Reward, excerpt
from rlvr.workers.pool import OUT_OF_TIME, TaskResult

_log = logging.getLogger(__name__)
IN_FULL = 3  # faults that a report quotes

Kind = Literal["raised", "timeout", "crashed", "wrong length", "no number", "unavailable"]


@dataclass(frozen=True)
class RewardFailure:
    """What was wrong with a reward function.

    Attributes:
        reward: its label.
        row: of the batch on this rank; None if it is the whole batch.
        kind: "raised", "timeout", "crashed" (it took its process down), "wrong length", "no number" (text, NaN, an
            infinite one), or "unavailable": the time for the batch ran out first, or no worker could be had.
        message: all that is known of it, for people.
    """

    reward: str
    row: int | None
    kind: Kind
    message: str


def report(faults: Sequence[RewardFailure]) -> str:
    """The first fault of each reward and kind in full (of the first few), then how many there are of each."""
    counts = Counter((fault.reward, fault.kind) for fault in faults)
    firsts = {(fault.reward, fault.kind): fault for fault in reversed(faults)}
    shown = [firsts[key].message for key in list(counts)[:IN_FULL]]
    if len(faults) > len(shown):
        tally = "; ".join(f"{reward}: {number} {kind}" for (reward, kind), number in counts.items())
        shown.append(f"In all, at fault were: {tally}.")
    return "\n\n".join(shown)


@dataclass
class RewardResult:
    """What is known of one reward and one batch: a value a row (None where it is at fault, too), faults, and logs."""

    values: list[float | None]
    faults: list[RewardFailure] = field(default_factory=list)
    notes: Sequence[Note] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class FailureReporter:
    """One reward and one batch, on which findings are made."""

    reward: Reward
    rank: int
    completions: Sequence[Any]

    def of_batch(self, reply: CallResult) -> RewardResult:
        """From the call for the whole batch, that went well."""
        return self._with_faults_of_values(reply.values, reply.notes)

    def of_rows(self, whole: TaskResult, outcomes: Sequence[TaskResult]) -> RewardResult:
        """From calls for one row at a time, after a call for all of them that was no good."""
        rows = len(self.completions)
        said = [self._said(outcome, row) for row, outcome in enumerate(outcomes)]
        kinds = {one[0] if one is not None else None for one in said}
        of_whole = self._said(whole, None)
        assert of_whole is not None
        kind, message = of_whole
        if kinds == {None}:
            if kind in ("raised", "wrong length"):
                return self.of_all(kind, f"{message}\nCalled for one row at a time, it is not at fault.")
            _log.warning("%s\nCalled for one row at a time, it scored them all.", message)
        elif rows > 1 and kinds == {kind}:
            return self.of_all(kind, f"{message}\nAnd so for every row alone.")
        elif rows > 1 and kinds == {"unavailable"}:
            rest = "No time was left to call it for one row at a time (`reward_batch_timeout_s` in the recipe)."
            return self.of_all(kind, f"{message}\n{rest}")
        replies = [reply_of(outcome) for outcome in outcomes]
        values = [reply.values[0] if reply is not None and not reply.kind else None for reply in replies]
        finding = self._with_faults_of_values(values, _merged(replies))
        for row, one in enumerate(said):
            if one is not None:
                finding.faults.append(RewardFailure(self.reward.label, row, *one))
        finding.faults.sort(key=lambda fault: fault.row or 0)
        return finding

    def of_all(self, kind: Kind, message: str) -> RewardResult:
        """One fault for the whole batch."""
        return RewardResult([None] * len(self.completions), [RewardFailure(self.reward.label, None, kind, message)])

    def not_called(self, why: str) -> RewardResult:
        return self.of_all("unavailable", f"The reward {self.reward.name} was not called on rank {self.rank}: {why}")

    def _with_faults_of_values(self, values: Sequence[float | str | None], notes: Sequence[Note]) -> RewardResult:
        finding = RewardResult([None if isinstance(value, str) else value for value in values], notes=notes)
        for row, value in enumerate(values):
            if isinstance(value, str):
                message = f"The reward {self.reward.name} returned {value} {self._where(row)}; {A_REWARD_IS}."
                finding.faults.append(RewardFailure(self.reward.label, row, "no number", message))
        return finding

    def _said(self, outcome: TaskResult, row: int | None) -> tuple[Kind, str] | None:
        """What is wrong with an outcome, and the report on it; None if nothing is."""
        reply = reply_of(outcome)
        name, where = f"The reward {self.reward.name}", self._where(row)
        if reply is not None:
            if not reply.kind:
                return None
            return reply.kind, f"{name} {reply.said}, {where}." + (f"\n{reply.trace}" if reply.trace else "")
        if outcome.status == "timeout":
            advice = "What can hang needs a limit of its own; `reward_timeout_s` in the recipe is what a row may take."
            return "timeout", f"{name} was stopped {where}: {outcome.why}. {advice}"
        if outcome.status == "unavailable":
            advice = " (`reward_batch_timeout_s` in the recipe)" if outcome.why == OUT_OF_TIME else ""
            return "unavailable", f"{name} has no value {where}: {outcome.why}{advice}."
        if outcome.status == "failed":
            return "crashed", f"{name} can't be called in a worker, {where}: {outcome.why}."
        return "crashed", f"{name} took its process down {where}: {outcome.why}."

    def _where(self, row: int | None) -> str:
        if row is None:
            return f"for a batch of {len(self.completions)} rows on rank {self.rank}"
        return f"at row {row} of the batch on rank {self.rank} (completion: {excerpt(self.completions[row])})"


def reply_of(outcome: TaskResult) -> CallResult | None:
    """What a function said; None if it did not come to that."""
    if outcome.status != "done":
        return None
    return outcome.value if isinstance(outcome.value, CallResult) else CallResult(**outcome.value)


def _merged(replies: Sequence[CallResult | None]) -> list[Note]:
    """What was logged for single rows, as if it had been logged for the batch; metrics are averaged."""
    extras: dict[str, list[Any]] = {}
    metrics: dict[str, list[float]] = {}
    for row, reply in enumerate(replies):
        for what, name, value in reply.notes if reply is not None else ():
            if what == "metric":
                metrics.setdefault(name, []).append(value)
            elif len(value) == 1:
                extras.setdefault(name, [None] * len(replies))[row] = value[0]
    return [
        *(("extra", name, values) for name, values in extras.items()),
        *(("metric", name, math.fsum(values) / len(values)) for name, values in metrics.items()),
    ]


def merged(found: Sequence[tuple[TaskResult, int]]) -> TaskResult:
    """What became of a call whose rows were shared out: the first part that went wrong, or the parts put together."""
    if len(found) == 1:
        return found[0][0]
    replies = [reply_of(outcome) for outcome, _ in found]
    for (outcome, _), reply in zip(found, replies, strict=True):
        if reply is None or reply.kind:
            return outcome
    whole = [(reply, rows) for reply, (_, rows) in zip(replies, found, strict=True) if reply is not None]
    values = [value for reply, _ in whole for value in reply.values]
    extras: dict[str, list[Any]] = {}
    metrics: dict[str, list[tuple[float, int]]] = {}
    done = 0
    for reply, rows in whole:
        for what, name, value in reply.notes:
            if what == "metric":
                metrics.setdefault(name, []).append((float(value), rows))
            elif len(value) == rows:
                extras.setdefault(name, [None] * len(values))[done : done + rows] = value
        done += rows
    notes: list[tuple[str, str, Any]] = [("extra", name, content) for name, content in extras.items()]
    for name, pairs in metrics.items():
        notes.append(
            ("metric", name, math.fsum(value * rows for value, rows in pairs) / sum(rows for _, rows in pairs))
        )
    return TaskResult("done", asdict(CallResult(values, notes=notes)))
