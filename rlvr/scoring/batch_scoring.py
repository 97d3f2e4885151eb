"""One batch on its way through the backends of a scorer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlvr import console
from rlvr.console import SlowStep
from rlvr.data.mixture import COLUMN as TASK
from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.batch import Batch, EncodingError, RewardCall
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.failures import FailureReporter
from rlvr.scoring.results import CallResult, RewardFailure, spread
from rlvr.workers.pool import OUT_OF_TIME, WorkerError

if TYPE_CHECKING:
    from rlvr.scoring.scorer import Scorer

SLOW_BATCH_S = 30.0  # after which the terminal names the rewards that have not returned


def at_the_same_time(
    function: Callable[[list[int], RewardBackend], None], backends: Sequence[tuple[list[int], RewardBackend]]
) -> None:
    """Call a function with each backend: the last one in this thread, since it may be the trainer's."""
    errors: list[BaseException] = []

    def call(indices: list[int], backend: RewardBackend) -> None:
        try:
            function(indices, backend)
        except BaseException as error:  # a bug of ours, raised in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=call, args=pair, daemon=True) for pair in backends[:-1]]
    for thread in threads:
        thread.start()
    for pair in backends[-1:]:
        function(*pair)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class BatchScoring:
    """One batch on its way through the backends: results, failures and seconds, by the reward's index."""

    def __init__(self, scorer: Scorer, batch: Batch, skipped: Collection[str]) -> None:
        self.scorer = scorer
        self.batch = batch
        self.skipped = skipped
        self.results: dict[int, CallResult] = {}
        self.failures: dict[int, list[RewardFailure]] = {}
        self.seconds: dict[int, float] = {}
        self._step = SlowStep(self._waiting(), SLOW_BATCH_S)

    def run(self, backends: Sequence[tuple[list[int], RewardBackend]]) -> None:
        """Score with all backends at the same time."""
        with self._step:
            at_the_same_time(self._score_all, backends)

    def _score_all(self, indices: list[int], backend: RewardBackend) -> None:
        started = time.monotonic()
        called = [index for index in indices if self.scorer.rewards[index].label not in self.skipped]
        for index in set(indices) - set(called):
            self._finish(index, started, CallResult([None] * self.batch.rows), [])
        if not called:
            return
        try:
            backend.start()  # imports take none of the batch's time
            for warning in backend.warnings():
                console.error(str(warning))
        except WorkerError as error:
            for index in called:
                self._finish(index, started, *self._reporter(index).not_called(str(error)))
            return
        end = time.monotonic() + self.scorer.batch_timeout_s
        parts = [[index] for index in called]
        if backend.calls_together:  # those with the same rows
            together: dict[tuple[int, ...], list[int]] = {}
            for index in called:
                together.setdefault(self._rows(index), []).append(index)
            parts = list(together.values())
        for number, part in enumerate(parts):
            now = time.monotonic()
            self._score(
                {index: indices.index(index) for index in part}, backend, now + (end - now) / (len(parts) - number)
            )

    def _rows(self, index: int) -> tuple[int, ...]:
        """The rows that a reward applies to."""
        reward, tasks = self.scorer.rewards[index], self.batch.columns.get(TASK)
        return tuple(row for row in range(self.batch.rows) if reward.applies(tasks[row] if tasks else None))

    def _score(self, places: Mapping[int, int], backend: RewardBackend, end: float) -> None:
        """Call rewards that apply to the same rows with all of these, and those that fail with one row at a time.

        Args:
            places: the backend's index of each reward, by the recipe's index.
        """
        started = time.monotonic()
        rows = self._rows(next(iter(places)))
        batch = self.batch if len(rows) == self.batch.rows else self.batch.select(rows)
        if not rows:
            for index in places:
                self._finish(index, started, CallResult(), [])
            return
        calls: dict[int, RewardCall] = {}
        for index, place in places.items():
            visible = self.scorer.visible[index]
            names = [
                name
                for name in batch.columns
                if (visible is None or name in visible or name in ("prompts", "completions"))
                and (name != ENVIRONMENTS or not backend.encoding)
            ]
            try:
                batch.encode(names, backend.encoding)
            except EncodingError as error:
                self._finish(index, started, *self._reporter(index).not_called(str(error)))
                continue
            seed = (self.scorer.seed, batch.step, self.scorer.rank, self.scorer.rewards[index].label)
            calls[index] = RewardCall(place, batch, names, seed)
        limit_s = min(self.scorer.timeout_s * batch.rows, 0.5 * (end - started))
        results = self._call(backend, list(calls.values()), limit_s, started + limit_s)
        for index, result in zip(calls, results, strict=True):
            if result.kind == "unavailable" and result.message == OUT_OF_TIME:
                result = CallResult(kind="timeout", message=f"not done after {limit_s:.3g} s")
            reporter = self._reporter(index)
            if not result.kind:
                outcome = reporter.of_batch(result)
            elif result.kind == "unavailable":
                outcome = reporter.not_called(f"{result.message}.")
            elif batch.rows == 1:
                outcome = reporter.of_rows(result, [result])
            else:
                row_calls = [replace(calls[index], row=row) for row in range(batch.rows)]
                outcome = reporter.of_rows(result, self._call(backend, row_calls, self.scorer.timeout_s, end))
            self._finish(index, started, *outcome)

    def _call(
        self, backend: RewardBackend, calls: Sequence[RewardCall], timeout_s: float, end: float
    ) -> list[CallResult]:
        """Call functions, and once more those that were lost with their backend, such as a killed fork server."""
        results = backend.call(calls, timeout_s=timeout_s, end=end) if calls else []
        lost = [
            number
            for number, result in enumerate(results)
            if result.kind == "unavailable" and result.message != OUT_OF_TIME
        ]
        if lost and self.scorer.started:  # not closed meanwhile
            again = backend.call([calls[number] for number in lost], timeout_s=timeout_s, end=end)
            for number, result in zip(lost, again, strict=True):
                results[number] = result
        return results

    def _reporter(self, index: int) -> FailureReporter:
        rows = self._rows(index)
        completions = self.batch.slice("completions", rows)
        reward = self.scorer.rewards[index]
        columns = {name: self.batch.slice(name, rows) for name in reward.columns if name in self.batch.columns}
        return FailureReporter(reward, self.scorer.rank, completions, rows, columns)

    def _finish(self, index: int, started: float, result: CallResult, failures: list[RewardFailure]) -> None:
        if len(result.values) < self.batch.rows:  # the reward does not apply to the other rows
            result = spread(result, self._rows(index), self.batch.rows)
        self.results[index], self.failures[index] = result, failures
        self.seconds[index] = time.monotonic() - started
        self._step.text = self._waiting()

    def _waiting(self) -> str:
        waiting = [reward.name for index, reward in enumerate(self.scorer.rewards) if index not in self.results]
        step = f" of step {self.batch.step}" if self.batch.step >= 0 else ""
        limit = f"reward_batch_timeout_s: {self.scorer.batch_timeout_s:g}"
        return f"Waiting for the rewards{step} ({limit}): {', '.join(waiting)}"
