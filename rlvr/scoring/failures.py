"""Messages about failing reward functions: which one, at which row, on which rank, why, and what to do."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.formatting import count
from rlvr.scoring.call_result import CallResult, RewardFailure, Status, merge_rows
from rlvr.scoring.reward import A_REWARD_IS, MODULE_FIX, Reward, excerpt
from rlvr.workers.pool import OUT_OF_TIME

_log = logging.getLogger(__name__)
MAX_QUOTED = 3  # failures that a report quotes

# What to do about a failure, by its status. The messages of the others say it.
FIXES: Mapping[Status, str] = {
    "raised": "A reward gets any text that a model may write: return 0.0 for a completion that it can't read. If a "
    "value of the data is the cause, correct the row.",
    "wrong length": "Return a list with one number for each completion.",
    "crashed": "Look at its native code (C extensions), and at the memory that it takes.",
}
CHAT_FIX = 'Completions of a chat task are lists of messages: read the text with completion[-1]["content"].'
TEXT_FIX = "These completions are text, not lists of messages: `rlvr.completion_text(completion)` reads both."
# Of a function that raised for all rows of a batch.
ALL_ROWS_FIX = (
    "No single completion is the cause, so correct the reward. Return None for failures of its own, such as a server "
    "that is down."
)
# Parts of messages, each with its fix.
ADVICE = {
    "'list'": CHAT_FIX,
    "string indices must be integers": TEXT_FIX,
    " raised ModuleNotFoundError": MODULE_FIX,
}
Outcome = tuple[CallResult, list[RewardFailure]]  # of a reward and a batch: its values are numbers or None


def report(failures: Sequence[RewardFailure]) -> str:
    """Quote the first failure of each reward and status, of the first few, each with its fix, and count all."""
    counts = Counter((failure.reward, failure.status) for failure in failures)
    firsts = {(failure.reward, failure.status): failure for failure in reversed(failures)}
    quoted = [_with_fix(firsts[key]) for key in list(counts)[:MAX_QUOTED]]
    if len(failures) > len(quoted):
        tally = "; ".join(f"{reward}: {number} {status}" for (reward, status), number in counts.items())
        quoted.append(f"Failures in all: {tally}.")
    return "\n\n".join(quoted)


def _with_fix(failure: RewardFailure) -> str:
    if failure.status == "raised" and "\nTraceback" not in failure.message:
        return failure.message  # an InputError, which names its fix
    fix = FIXES.get(failure.status)
    if failure.status == "raised":
        general = ALL_ROWS_FIX if failure.row is None else fix
        fix = next((advice for words, advice in ADVICE.items() if words in failure.message), general)
    return "\n".join(filter(None, [failure.message, fix]))


@dataclass(frozen=True)
class FailureReporter:
    """Turns the results of one reward and one batch into values and failures.

    Attributes:
        completions: those that the reward is called with.
        rows: their rows of the batch, for messages.
        columns: those that the reward asks for, one value per completion, for messages.
    """

    reward: Reward
    rank: int
    completions: Sequence[Any]
    rows: Sequence[int]
    columns: Mapping[str, Sequence[Any]]

    def outcome(self, whole: CallResult, results: Sequence[CallResult]) -> Outcome:
        """Of a call with the whole batch and, if that failed, of calls for single rows."""
        if whole.status == "done":
            return self._of_values(whole)
        if whole.status == "unavailable":
            return self.not_called(f"{whole.why}.")
        message = self._message(whole, None)
        statuses = {result.status for result in results}
        if statuses == {"done"}:
            if whole.status in ("raised", "wrong length"):
                return self._of_all(whole.status, f"{message}\nCalled for one row at a time, it does not fail.")
            _log.warning("%s\nCalled for one row at a time, it scored them all.", message)
        elif len(results) > 1 and statuses == {whole.status}:
            return self._of_all(whole.status, f"{message}\nIt fails for every single row, too.")
        elif len(results) > 1 and statuses == {"unavailable"}:
            rest = "No time was left to call it for one row at a time (`reward_batch_timeout_s` in the recipe)."
            return self._of_all(whole.status, f"{message}\n{rest}")
        merged, failures = self._of_values(merge_rows(results))
        for row, result in enumerate(results):
            if result.status != "done":
                message = self._message(result, row)
                failures.append(RewardFailure(self.reward.label, self.rows[row], result.status, message))
        return merged, sorted(failures, key=lambda failure: failure.row or 0)

    def not_called(self, cause: str) -> Outcome:
        """Of a backend that could not call the function."""
        return self._of_all("unavailable", f"The reward {self.reward.name} was not called{self._on_rank}: {cause}")

    def _of_values(self, result: CallResult) -> Outcome:
        values: list[float | None] = []
        failures = []
        for row, value in enumerate(result.values):
            values.append(None if isinstance(value, str) else value)
            if isinstance(value, str):
                message = f"The reward {self.reward.name} returned {value} {self._where(row)}; {A_REWARD_IS}."
                failures.append(RewardFailure(self.reward.label, self.rows[row], "no number", message))
        return CallResult(values, notes=result.notes), failures

    def _of_all(self, status: Status, message: str) -> Outcome:
        failure = RewardFailure(self.reward.label, None, status, message)
        return CallResult([None] * len(self.completions)), [failure]

    def _message(self, result: CallResult, row: int | None) -> str:
        """The message of a failed call."""
        name, where = f"The reward {self.reward.name}", self._where(row)
        if result.status == "timeout":
            advice = "Give what can hang a timeout of its own. `reward_timeout_s` in the recipe is the time for a row."
            return f"{name} was stopped {where}: {result.why}. {advice}"
        if result.status == "unavailable":
            advice = " (`reward_batch_timeout_s` in the recipe)" if result.why == OUT_OF_TIME else ""
            return f"{name} has no value {where}: {result.why}{advice}."
        if result.status == "crashed":
            return f"{name} crashed its process {where}, or its result was lost: {result.why}."
        return f"{name} {result.why}, {where}." + (f"\n{result.trace}" if result.trace else "")

    def _where(self, row: int | None) -> str:
        if row is None:
            return f"for a batch of {count(len(self.completions), 'row')}{self._on_rank}"
        given = "".join(f", {name}={values[row]!r:.60}" for name, values in self.columns.items())
        completion = excerpt(self.completions[row])
        return f"at row {self.rows[row]} of the batch{self._on_rank} (completion: {completion}{given})"

    @property
    def _on_rank(self) -> str:
        return f" on rank {self.rank}" if self.rank or int(os.environ.get("WORLD_SIZE") or 1) > 1 else ""
