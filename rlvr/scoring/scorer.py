"""Score batches with all rewards of a recipe, at the same time and wherever they run.

    with Scorer(rewards, timeout_s=30, batch_timeout_s=600) as scorer:
        scored = scorer.score(prompts, completions, {"final_answer": references}, step=7)
    scored.values[row][reward], scored.failures

A backend (rlvr/scoring/backends) calls each reward: worker processes by default. All backends have the same rules and
messages:

- A function gets the whole batch in one call, as from GRPOTrainer. If it raises, dies, times out or returns no list of
  the right length, it is called for one row at a time. The rows that fail are named; the others keep their values.
- A function that is right for each row alone but raised for the batch has failed for the whole batch. After a timeout
  or a crash of the batch's call, which the machine may have caused, the values of the rows count, with a warning.
- The trainer logs the text columns that rewards read beside the completions, so that scripts/score.py can score them
  again from that file alone.
- A reward with `applies_to` is called with the rows of those tasks alone (column `task`); its values of other rows are
  None.
- Random numbers of a call depend on the seed, step, rank and reward, so that a resumed run gets the same rewards.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlvr import console
from rlvr.console import SlowStep
from rlvr.data.mixture import COLUMN as TASK
from rlvr.errors import InputError, Problem
from rlvr.scoring.backends import make_backends
from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.batch import Batch, EncodingError, RewardCall
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.failures import FailureReporter, report
from rlvr.scoring.results import CallResult, RewardFailure, Scored, spread
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read, visible_names
from rlvr.workers.pool import OUT_OF_TIME, WorkerError

__all__ = ["RewardFailure", "Scored", "Scorer", "report"]

_log = logging.getLogger(__name__)
LogExtra = Callable[[str, list[Any]], None]
# Columns of the trainer's table of completions (trl/trainer/grpo_trainer.py, log).
TABLE_COLUMNS = frozenset({"step", "prompt", "completion", "advantage"})
# Characters. Longer text is not repeated for every completion of a group; the task has it, by the prompt.
MOST_LOGGED = 10_000
START_TIMEOUT_S = 300.0  # for a worker's imports (torch on a busy file system), or for a server to boot
SLOW_BATCH_S = 30.0  # after which the terminal names the rewards that have not returned
SHORT_START_TIMEOUT_S = 15.0  # after another remote backend has not started in time


class Scorer:
    """Scores batches with all rewards of a recipe; see the head of this file.

    Args:
        rewards: as `rlvr.scoring.registry.load_rewards` returns them.
        timeout_s: seconds for a row.
        batch_timeout_s: seconds for a batch; half of them for the call with the whole batch.
        seed, rank: what random numbers depend on, with the step and the reward.
        start_timeout_s: seconds to wait for a worker's imports, or for a server; None: START_TIMEOUT_S.
        waits_for_services: whether to wait for a server or a cluster that can't be reached.
    """

    def __init__(
        self,
        rewards: Sequence[Reward],
        *,
        timeout_s: float = 30.0,
        batch_timeout_s: float = 600.0,
        seed: int = 0,
        rank: int = 0,
        start_timeout_s: float | None = None,
        waits_for_services: bool = True,
    ) -> None:
        self.rewards = list(rewards)
        self.timeout_s = timeout_s
        self.batch_timeout_s = batch_timeout_s
        self.seed = seed
        self.rank = rank
        self._columns = [sorted(columns_read(reward)) for reward in self.rewards]
        self._visible = [visible_names(reward.function) for reward in self.rewards]
        self._backends = make_backends(self.rewards, START_TIMEOUT_S if start_timeout_s is None else start_timeout_s)
        for _, backend in self._backends:
            backend.waits_for_service = waits_for_services
        # Whether a column holds text, as its first batch had it: TRL can't write a table of completions with a column
        # that is logged in some steps only.
        self._is_text: dict[str, bool] = {}
        self._started = False

    def start(self) -> None:
        """Start the backends without waiting for them."""
        self._started = True
        for _, backend in self._backends:
            try:
                backend.launch()
            except WorkerError as error:
                _log.warning("%s. The first batch tries again.", error)

    def close(self) -> None:
        """End processes and connections."""
        self._started = False
        for _, backend in self._backends:
            backend.close()

    def __enter__(self) -> Scorer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> list[tuple[list[Reward], WorkerError]]:
        """Connect to the remote services, and return the rewards that can't be called, with the cause."""
        failures: dict[int, tuple[list[Reward], WorkerError]] = {}
        remote = [pair for pair in self._backends if pair[1].service]

        def start(indices: list[int], backend: RewardBackend) -> None:
            try:
                backend.start()
            except WorkerError as error:
                failures[indices[0]] = [self.rewards[index] for index in indices], error

        _at_the_same_time(start, remote)
        for _, backend in remote if failures else []:
            backend.start_timeout_s = min(backend.start_timeout_s, SHORT_START_TIMEOUT_S)
        return [failure for _, failure in sorted(failures.items())]

    def environment_info(self) -> dict[str, str]:
        """What scores depend on at remote services; known after `connect`."""
        return {name: value for _, backend in self._backends for name, value in backend.environment_info().items()}

    def warnings(self) -> list[Problem]:
        """What is wrong with the remote services, though rewards can be called; known after `connect`."""
        backends = [backend for _, backend in self._backends]
        return [each for backend in backends for each in (*backend.warnings(), *backend.absent_services())]

    def validate_rows(self, reward: Reward, columns: Mapping[str, Sequence[Any]]) -> list[str | None]:
        """Run the `validate_rows` of a reward's file where the reward runs.

        Raises:
            InputError: it has a problem with all rows, or its backend does not answer.
        """
        index = self.rewards.index(reward)
        backend = next(backend for indices, backend in self._backends if index in indices)
        try:
            return backend.validate_rows(reward, columns)
        except (WorkerError, EncodingError) as error:
            raise InputError(
                f"The rows can't be checked for the reward {reward.label}: {str(error).rstrip('.')}.",
                kind=backend.service.lower().replace(" ", "-"),
                key=reward.name,
            ) from error

    def declare_text(self, columns: Mapping[str, bool]) -> None:
        """Say which columns hold text, for a mixture of tasks: its first batch may lack the rows that have a column."""
        self._is_text.update(columns)

    def score(
        self,
        prompts: list[Any],
        completions: list[Any],
        columns: Mapping[str, list[Any]],
        *,
        completion_ids: list[Any] | None = None,
        trainer_state: Mapping[str, float | str | None] | None = None,
        step: int = 0,
        skipped: Collection[str] = (),
        log_extra: LogExtra | None = None,
        log_metric: Callable[[str, float], None] | None = None,
    ) -> Scored:
        """Score a batch with all rewards. Failures of reward functions are returned, not raised.

        Args:
            prompts, completions, completion_ids: one per row, as GRPOTrainer has them.
            columns: of the data, by name; each as long as `completions`.
            trainer_state: numbers and text of the trainer's, which functions see as attributes.
            skipped: labels of rewards not to call; their values are None.
            log_extra, log_metric: the trainer's. They get the text columns that rewards ask for and what functions
                logged, in the order of the rewards.
        """
        labels = [reward.label for reward in self.rewards]
        rows = len(completions)
        if not rows:
            return Scored([], [], dict.fromkeys(labels, 0.0))
        if not self._started:
            self.start()
        arguments: dict[str, Any] = {**columns, "prompts": prompts, "completions": completions}
        if completion_ids is not None:
            arguments["completion_ids"] = completion_ids
        scoring = _BatchScoring(self, Batch(arguments, rows, step=step, trainer_state=trainer_state), skipped)
        scoring.run(self._backends)
        self._log(scoring.results, rows, columns, log_extra, log_metric)
        outages = [(backend.outage_s(), backend.service) for _, backend in self._backends]
        outage_s, outage_of = max(outages, default=(0.0, ""))
        per_reward = [scoring.results[index].values for index in range(len(self.rewards))]
        return Scored(
            values=[list(row) for row in zip(*per_reward, strict=True)],
            failures=[failure for index in range(len(self.rewards)) for failure in scoring.failures[index]],
            seconds={label: scoring.seconds[index] for index, label in enumerate(labels)},
            outage_s=outage_s,
            outage_of=outage_of if outage_s else "",
        )

    def _log(
        self,
        results: Mapping[int, CallResult],
        rows: int,
        columns: Mapping[str, Any],
        log_extra: LogExtra | None,
        log_metric: Callable[[str, float], None] | None,
    ) -> None:
        """Log columns and notes. The first column of a name wins: two would make the table of completions unwritable.

        Numbers are not logged, since the report takes every number of that table for a reward.
        """
        reserved = TABLE_COLUMNS.union(reward.label for reward in self.rewards)
        logged: set[str] = set()
        for index, reward in enumerate(self.rewards):
            for column in self._columns[index]:
                if column in reserved or column in logged:
                    continue
                values = columns.get(column)
                if log_extra is None or not isinstance(values, list) or len(values) != rows:
                    continue
                if self._is_text.setdefault(column, all(value is None or isinstance(value, str) for value in values)):
                    logged.add(column)
                    log_extra(column, [_loggable(value) for value in values])
            for what, name, value in results[index].notes:
                if what == "metric" and log_metric is not None:
                    log_metric(name, value)
                elif what == "extra" and log_extra is not None and name not in logged:
                    if len(value) == rows:
                        logged.add(name)
                        log_extra(name, value)
                    else:
                        _log.warning(
                            "The reward %s logged %d values for %d completions under %s. The table of completions "
                            "leaves them out.",
                            reward.name,
                            len(value),
                            rows,
                            name,
                        )


def _loggable(value: Any) -> str | None:
    """The text itself; None where parquet could not hold it (a lone surrogate), or it is too long."""
    if not isinstance(value, str) or len(value) > MOST_LOGGED:
        return None
    return None if any("\ud800" <= character <= "\udfff" for character in value) else value


def _at_the_same_time(
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


class _BatchScoring:
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
            _at_the_same_time(self._score_all, backends)

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
            visible = self.scorer._visible[index]
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
        if lost and self.scorer._started:  # not closed meanwhile
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
