"""Score batches with all rewards of a recipe, at the same time and wherever they run.

    with Scorer(rewards, timeout_s=30, batch_timeout_s=600) as scorer:
        scored = scorer.score(prompts, completions, {"final_answer": references}, step=7)
    scored.values[row][reward], scored.failures

A backend (rlvr/scoring/backends) calls each reward: worker processes by default. All backends have the same rules and
messages:

- A function gets the whole batch in one call, as from GRPOTrainer. If it raises, dies, times out or returns no list of
  the right length, it is called for each row. The rows that fail are named; the others keep their values.
- A function that is right for each row alone but raised for the batch has failed for the whole batch. After a timeout
  or a crash of the batch's call, which the machine may have caused, the values of the rows count, with a warning.
- The trainer logs the text columns that rewards read beside the completions, so that scripts/score.py can score them
  again from that file alone.
- A reward with `applies_to` is called with the rows of those tasks alone (column `task`); other rows have None.
- Random numbers of a call depend on the seed, step, rank and reward, so that a resumed run gets the same rewards.

From TRL (`_calculate_rewards`, called by training/trl_seam.py) to the function of a reward there are eight frames in
four files:

    in the trainer's process                            in a worker's process
    scorer.py           column                          workers/fork_server_main.py  serve_items
    scorer.py           Scorer.score                    backends/local.py            serve
    scorer.py           Scorer._score_with              backends/local.py            call_reward
    backends/local.py   LocalBackend.call
    workers/pool.py     WorkerPool.map
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from rlvr import console
from rlvr.data.mixture import COLUMN as TASK
from rlvr.data.task import OPENED
from rlvr.errors import Problem
from rlvr.scoring.backends import make_backends
from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.batch import Batch, EncodingError, RewardCall
from rlvr.scoring.call_result import CallResult, RewardFailure, Scored, spread
from rlvr.scoring.environment_reward import ENVIRONMENTS
from rlvr.scoring.failures import FailureReporter, Outcome
from rlvr.scoring.logged_columns import LogExtra, TextColumns
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import parameters, visible_names
from rlvr.workers.pool import OUT_OF_TIME, WorkerError

_log = logging.getLogger(__name__)
START_TIMEOUT_S = 300.0  # for a worker's imports (torch on a busy file system), or for a server to boot
# Keyword arguments of TRL's call that are no columns of the data.
FROM_TRL = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
SLOW_BATCH_S = 30.0  # after which the terminal names the rewards that have not returned


def trl_reward_functions(
    rewards: Sequence[Reward], scorer: Scorer, after: Callable[[Scored, Mapping[str, Any]], None]
) -> list[Callable[..., list[float | None]]]:
    """The reward functions for TRL: the first call of a batch runs all rewards, and each returns its own column.

    Args:
        rewards: the first ones of the scorer, which may also run a metric that is none of them.
        after: called once for each batch, with what was scored and the keyword arguments of TRL's call.
    """
    latest: dict[str, Any] = {"completions": None}

    def make(index: int, label: str) -> Callable[..., list[float | None]]:
        def column(**arguments: Any) -> list[float | None]:
            if latest["completions"] is not arguments["completions"]:
                state = arguments["trainer_state"]
                scored = scorer.score(
                    arguments["prompts"],
                    arguments["completions"],
                    {name: value for name, value in arguments.items() if name not in FROM_TRL},
                    completion_ids=arguments["completion_ids"],
                    trainer_state={name: getattr(state, name) for name in ("global_step", "max_steps", "epoch")},
                    step=state.global_step,
                    log_extra=arguments["log_extra"],
                    log_metric=arguments["log_metric"],
                )
                after(scored, arguments)
                latest.update(completions=arguments["completions"], values=scored.values)
            return [row[index] for row in latest["values"]]

        column.__name__ = label  # GRPOTrainer names its metrics after it: rewards/<label>/mean
        return column

    return [make(index, reward.label) for index, reward in enumerate(rewards)]


@contextmanager
def _in_threads(calls: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Make calls in daemon threads, so that Ctrl-C does not wait for them; raises their first error."""
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # raised in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Scorer:
    """Scores batches with all rewards of a recipe; see the head of this file.

    Args:
        rewards: as `rlvr.scoring.registry.load_rewards` returns them.
        timeout_s, batch_timeout_s: seconds for a row, and for a batch: half of them for the call with all its rows.
        seed, rank: what random numbers depend on, with the step and the reward.
        start_timeout_s: seconds to wait for a worker's imports, or for a server.
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
        start_timeout_s: float = START_TIMEOUT_S,
        waits_for_services: bool = True,
    ) -> None:
        self.rewards = list(rewards)
        self.timeout_s = timeout_s
        self.batch_timeout_s = batch_timeout_s
        self.seed = seed
        self.rank = rank
        self.text_columns = TextColumns(self.rewards)
        self._visible = [visible_names(reward.function) for reward in self.rewards]
        self._backends = make_backends(self.rewards, start_timeout_s)
        for _, backend in self._backends:
            backend.waits_for_service = waits_for_services
        self.started = False
        self.think_opened = False  # whether the chat template opens <think>, so that completions lack it

    def start(self) -> None:
        """Start the backends without waiting for them."""
        self.started = True
        for _, backend in self._backends:
            try:
                backend.launch()
            except WorkerError as error:
                _log.warning("%s. The first batch tries again.", error)

    def close(self) -> None:
        """End processes and connections."""
        self.started = False
        for _, backend in self._backends:
            backend.close()

    def __enter__(self) -> Scorer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> list[tuple[list[Reward], WorkerError]]:
        """Connect to the remote services, and return the rewards that can't be called, with the cause."""
        remote = [pair for pair in self._backends if pair[1].service]
        failures: list[tuple[list[int], WorkerError]] = []

        def start(indices: list[int], backend: RewardBackend) -> None:
            try:
                backend.start()
            except WorkerError as error:
                failures.append((indices, error))

        with _in_threads([partial(start, *pair) for pair in remote]):
            pass
        in_order = sorted(failures, key=lambda failure: failure[0])
        return [([self.rewards[index] for index in indices], error) for indices, error in in_order]

    def environment_info(self) -> dict[str, str]:
        """What scores depend on at remote services; known after `connect`."""
        return {name: value for _, backend in self._backends for name, value in backend.environment_info().items()}

    def warnings(self) -> list[Problem]:
        """What is wrong with the remote services, though rewards can be called; known after `connect`."""
        return [warning for _, backend in self._backends for warning in backend.warnings()]

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
        rows = len(completions)
        if not rows:
            return Scored([], [], {reward.label: 0.0 for reward in self.rewards})
        if not self.started:
            self.start()
        tokens = {} if completion_ids is None else {"completion_ids": completion_ids}
        arguments: dict[str, Any] = {**columns, "prompts": prompts, "completions": completions, **tokens}
        batch = _ScoredBatch(self, Batch(arguments, rows, step=step, trainer_state=trainer_state))
        for index, reward in enumerate(self.rewards):
            if reward.label in skipped:
                batch.finish(index, time.monotonic(), (CallResult([None] * rows), []))
        others = [partial(self._score_with, batch, *pair) for pair in self._backends[:-1]]
        with console.SlowStep(batch.waiting(), SLOW_BATCH_S) as batch.slow_step, _in_threads(others):
            for pair in self._backends[-1:]:  # in this thread, since it may be the trainer's
                self._score_with(batch, *pair)
        results = [batch.results[index] for index in range(len(self.rewards))]
        logged = self.text_columns.log(results, columns, rows, log_extra, log_metric)
        if self.think_opened and log_extra is not None:  # for scripts/score.py
            log_extra(OPENED, [True] * rows)
        outages = [(backend.outage_s(), backend.service) for _, backend in self._backends]
        outage_s, outage_of = max(outages, default=(0.0, ""))
        return Scored(
            values=[list(row) for row in zip(*(result.values for result in results), strict=True)],
            failures=[failure for index in range(len(results)) for failure in batch.failures[index]],
            seconds={reward.label: batch.seconds[index] for index, reward in enumerate(self.rewards)},
            outage_s=outage_s,
            outage_of=outage_of if outage_s else "",
            logged=logged,
        )

    def _score_with(self, batch: _ScoredBatch, indices: list[int], backend: RewardBackend) -> None:
        """Score a batch with the rewards of one backend."""
        started = time.monotonic()
        called = [index for index in indices if index not in batch.results]
        if not called:
            return
        try:
            backend.start()  # imports take none of the batch's time
            for warning in backend.warnings():
                console.error(str(warning))
        except WorkerError as error:
            for index in called:
                batch.finish(index, started, batch.reporter(index).not_called(str(error)))
            return
        end = time.monotonic() + self.batch_timeout_s
        parts = batch.parts(called, backend)
        for number, part in enumerate(parts):
            started = time.monotonic()
            part_end = started + (end - started) / (len(parts) - number)
            calls = {}
            for index in part:
                try:
                    calls[index] = self._make_call(batch, index, indices.index(index), backend)
                except EncodingError as error:
                    batch.finish(index, started, batch.reporter(index).not_called(str(error)))
            limit_s = min(self.timeout_s * len(batch.rows(part[0])), 0.5 * (part_end - started))
            limits: dict[str, float] = {"timeout_s": limit_s, "end": started + limit_s}
            results = backend.call(list(calls.values()), **limits) if calls else []
            results = self._call_lost_again(backend, list(calls.values()), results, limits)
            for (index, call), result in zip(calls.items(), results, strict=True):
                if result.status == "unavailable" and result.why == OUT_OF_TIME:
                    result = CallResult(status="timeout", why=f"not done after {limit_s:.3g} s")
                of_rows = [result]
                if result.status not in ("done", "unavailable") and call.batch.rows > 1:
                    row_calls = [replace(call, row=row) for row in range(call.batch.rows)]
                    limits = {"timeout_s": self.timeout_s, "end": part_end}
                    of_rows = backend.call(row_calls, **limits)
                    of_rows = self._call_lost_again(backend, row_calls, of_rows, limits)
                batch.finish(index, started, batch.reporter(index).outcome(result, of_rows))

    def _make_call(self, batch: _ScoredBatch, index: int, place: int, backend: RewardBackend) -> RewardCall:
        """The call of a reward with the rows that it applies to. `place` is its index in the backend.

        Raises:
            EncodingError: an argument that the function can see can't be sent.
        """
        visible, part = self._visible[index], batch.part(index)
        names = [
            name
            for name in part.columns
            if (visible is None or name in visible or name in ("prompts", "completions"))
            and (name != ENVIRONMENTS or not backend.encoding)
        ]
        part.encode(names, backend.encoding)
        return RewardCall(place, part, names, (self.seed, part.step, self.rank, self.rewards[index].label))

    def _call_lost_again(
        self,
        backend: RewardBackend,
        calls: Sequence[RewardCall],
        results: list[CallResult],
        limits: Mapping[str, float],
    ) -> list[CallResult]:
        """Call functions once more whose calls were lost with their backend, such as a killed fork server."""
        unavailable = [number for number, result in enumerate(results) if result.status == "unavailable"]
        lost = [number for number in unavailable if results[number].why != OUT_OF_TIME]
        if lost and self.started:  # not closed meanwhile
            again = backend.call([calls[number] for number in lost], **limits)
            for number, result in zip(lost, again, strict=True):
                results[number] = result
        return results


class _ScoredBatch:
    """A batch and what is known of it so far: results, failures and seconds, by the reward's index."""

    def __init__(self, scorer: Scorer, batch: Batch) -> None:
        self.scorer = scorer
        self.batch = batch
        self.results: dict[int, CallResult] = {}
        self.failures: dict[int, list[RewardFailure]] = {}
        self.seconds: dict[int, float] = {}
        self.slow_step: console.SlowStep | None = None
        self._parts: dict[tuple[int, ...], Batch] = {}

    def rows(self, index: int) -> tuple[int, ...]:
        """The rows that a reward applies to."""
        reward, tasks = self.scorer.rewards[index], self.batch.columns.get(TASK)
        return tuple(row for row in range(self.batch.rows) if reward.applies(tasks[row] if tasks else None))

    def part(self, index: int) -> Batch:
        """The rows that a reward applies to, as it sees them: one object for all rewards that see the same."""
        rows, reward = self.rows(index), self.scorer.rewards[index]
        if rows not in self._parts:
            self._parts[rows] = self.batch.select(rows) if len(rows) < self.batch.rows else self.batch
        part = self._parts[rows]
        if self.scorer.think_opened and reward.options.get("opened") is None:  # else the recipe tells it
            return part.opened_by_template
        return part if "opened" in parameters(reward.function) else part.opened_by_prompts

    def parts(self, indices: Sequence[int], backend: RewardBackend) -> list[list[int]]:
        """The rewards to call together: those with the same rows, or each one by itself."""
        parts: dict[object, list[int]] = {}
        for index in indices:
            if self.rows(index):
                parts.setdefault(id(self.part(index)) if backend.calls_together else index, []).append(index)
            else:
                self.finish(index, time.monotonic(), (CallResult(), []))
        return list(parts.values())

    def reporter(self, index: int) -> FailureReporter:
        reward, rows = self.scorer.rewards[index], self.rows(index)
        columns = {name: self.batch.slice(name, rows) for name in reward.columns if name in self.batch.columns}
        return FailureReporter(reward, self.scorer.rank, self.batch.slice("completions", rows), rows, columns)

    def finish(self, index: int, started: float, outcome: Outcome) -> None:
        result, self.failures[index] = outcome
        if len(result.values) < self.batch.rows:  # the reward does not apply to the other rows
            result = spread(result, self.rows(index), self.batch.rows)
        self.results[index], self.seconds[index] = result, time.monotonic() - started
        if self.slow_step is not None:
            self.slow_step.text = self.waiting()

    def waiting(self) -> str:
        """What the terminal shows of a batch that takes long."""
        names = ", ".join(one.name for index, one in enumerate(self.scorer.rewards) if index not in self.results)
        step = f" of step {self.batch.step}" if self.batch.step >= 0 else ""
        return f"Waiting for the rewards{step} (reward_batch_timeout_s: {self.scorer.batch_timeout_s:g}): {names}"
