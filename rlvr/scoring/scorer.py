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

From TRL to a reward: training/reward_functions.py is what TRL calls, grpo_trainer.py scores the batch with a `Scorer`,
batch_scoring.py sends it to backends/local.py, reward_worker.py gets it in a worker process, and call.py calls the
function of the reward (reward.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rlvr.errors import InputError, Problem
from rlvr.scoring.backends import make_backends
from rlvr.scoring.backends.base import RewardBackend
from rlvr.scoring.batch import Batch, EncodingError
from rlvr.scoring.batch_scoring import BatchScoring, at_the_same_time
from rlvr.scoring.failures import report
from rlvr.scoring.results import CallResult, RewardFailure, Scored
from rlvr.scoring.reward import Reward
from rlvr.scoring.signature import columns_read, visible_names
from rlvr.workers.pool import WorkerError

__all__ = ["RewardFailure", "Scored", "Scorer", "report"]

_log = logging.getLogger(__name__)
LogExtra = Callable[[str, list[Any]], None]
# Columns of the trainer's table of completions (trl/trainer/grpo_trainer.py, log).
TABLE_COLUMNS = frozenset({"step", "prompt", "completion", "advantage"})
# Characters. Longer text is not repeated for every completion of a group; the task has it, by the prompt.
MOST_LOGGED = 10_000
START_TIMEOUT_S = 300.0  # for a worker's imports (torch on a busy file system), or for a server to boot
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
        self.visible = [visible_names(reward.function) for reward in self.rewards]
        self._backends = make_backends(self.rewards, START_TIMEOUT_S if start_timeout_s is None else start_timeout_s)
        for _, backend in self._backends:
            backend.waits_for_service = waits_for_services
        # Whether a column holds text, as its first batch had it: TRL can't write a table of completions with a column
        # that is logged in some steps only.
        self._is_text: dict[str, bool] = {}
        self.started = False

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
        failures: dict[int, tuple[list[Reward], WorkerError]] = {}
        remote = [pair for pair in self._backends if pair[1].service]

        def start(indices: list[int], backend: RewardBackend) -> None:
            try:
                backend.start()
            except WorkerError as error:
                failures[indices[0]] = [self.rewards[index] for index in indices], error

        at_the_same_time(start, remote)
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
        if not self.started:
            self.start()
        arguments: dict[str, Any] = {**columns, "prompts": prompts, "completions": completions}
        if completion_ids is not None:
            arguments["completion_ids"] = completion_ids
        scoring = BatchScoring(self, Batch(arguments, rows, step=step, trainer_state=trainer_state), skipped)
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
