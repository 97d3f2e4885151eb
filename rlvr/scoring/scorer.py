"""Rewards outside of the training process: in workers that can be killed, all at the same time.

    with Scorer(rewards, deadline_s=30, budget_s=600) as scorer:
        scored = scorer.score(prompts, completions, {"final_answer": golds}, step=7)
    scored.values[row][reward], scored.faults

Each reward has a worker of its own; rewards with the same `WORKER_GROUP` in their files share one.
Rewards that run on reward servers (`where: http://host:port`) or on a Ray cluster (`where: ray`) are asked for there,
by the same rules, and failures have the same words. In the caller's own process run the rewards that ask for it
(`where: trainer`, or an attribute `run_in_trainer` of the function) and those that no other process could find again
(lambdas). What hangs there can't be stopped.

A function gets the whole batch in one call, as from GRPOTrainer. If it raises, dies, is late or returns no list of the
right length, it is called for one row at a time, several workers at once, so that the rows at fault are known by name
and the others keep their values. A function that is right for each row but not for the batch is at fault for the whole
batch, unless it was only late or killed: which can be a machine's doing, and is told as a warning.

A worker draws the same random numbers for the same seed, step, rank and reward, so that a run that is resumed is
rewarded as it would have been. The caller's random numbers are left as they are.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any

from rlvr.scoring.backends.http.pool import HttpRewardBackend
from rlvr.scoring.backends.ray_cluster.pool import RayRewardBackend
from rlvr.scoring.batch_encoding import EncodingError, RewardCall
from rlvr.scoring.call import call, item, names_seen
from rlvr.scoring.dispatch import Batch, Pool, WorkerGroup, group_rewards
from rlvr.scoring.failures import FailureReporter, RewardFailure, RewardResult, reply_of, report
from rlvr.scoring.log_replay import replay
from rlvr.scoring.reward import LogExtra, Reward
from rlvr.workers.pool import OUT_OF_TIME, StartError, TaskResult, WorkerError, WorkerPool

__all__ = ["RewardFailure", "Scored", "Scorer", "report"]

_log = logging.getLogger(__name__)
START_S = 300.0  # for a worker's imports, which may be torch on a busy file system; for a server to be there
ONCE_MORE_S = 15.0  # for one that was waited for in vain


@dataclass(frozen=True)
class Scored:
    """What the rewards say of a batch.

    Attributes:
        values: by row and reward, before gates and masks (`rlvr.scoring.reward.settle`); None where a reward could not
        say,
            or was at fault.
        faults: in the order of the rewards and rows.
        seconds: by label, from the call until its values were there.
        silent_s: for how long no reward server or Ray cluster has answered; 0 where none was needed, or one did.
        silent: which of the two that is; "" where it is neither.
    """

    values: list[list[float | None]]
    faults: list[RewardFailure]
    seconds: dict[str, float]
    silent_s: float = 0.0
    silent: str = ""


class Scorer:
    """Scores batches with all rewards of a recipe; see the head of this file.

    Args:
        rewards: as `rlvr.scoring.registry.load_rewards` returns them.
        deadline_s: seconds that one row may take.
        budget_s: seconds that a batch may take; half of them for the call with the whole batch.
        seed, rank: what random numbers in workers depend on, beside the step.
        start_s: seconds to wait for a worker's imports, or for a reward server to be there; None for START_S.
    """

    def __init__(
        self,
        rewards: Sequence[Reward],
        *,
        deadline_s: float = 30.0,
        budget_s: float = 600.0,
        seed: int = 0,
        rank: int = 0,
        start_s: float | None = None,
    ) -> None:
        self.rewards = list(rewards)
        self.deadline_s = deadline_s
        self.budget_s = budget_s
        self.seed = seed
        self.rank = rank
        self._seen = [names_seen(reward.function) for reward in self.rewards]
        self._closed = False
        self._here, self._groups = group_rewards(self.rewards, START_S if start_s is None else start_s)

    def start(self) -> None:
        """Has the workers' processes begin with their imports, and does not wait for them."""
        self._closed = False
        for group in self._groups:
            try:
                group.pool.launch()
            except WorkerError as error:
                _log.warning("%s. It is tried again when the first batch is scored.", error)

    def close(self) -> None:
        """Ends the workers; a later batch would start new ones."""
        self._closed = True  # and threads that an exception has left behind start none
        for group in self._groups:
            group.pool.close()

    @property
    def _elsewhere(self) -> list[HttpRewardBackend | RayRewardBackend]:
        return [group.pool for group in self._groups if not isinstance(group.pool, WorkerPool)]

    def environment_info(self) -> dict[str, str]:
        """What scores depend on elsewhere (as `rlvr.scoring.registry.environment_info`); waits for servers to start."""
        found: dict[str, str] = {}
        for pool in self._elsewhere:
            try:
                pool.start()
            except WorkerError:  # it is told with the first batch
                for other in self._elsewhere:
                    other.start_s = min(other.start_s, ONCE_MORE_S)
            found |= pool.environment_info()
        return found

    def validate_rows(self, reward: Reward, columns: Mapping[str, Sequence[Any]]) -> list[str | None]:
        """Run the `validate_rows` of a reward that runs elsewhere, where it runs.

        Raises:
            InputError: what it has against all of them; or no server answers.
        """
        place = self.rewards.index(reward)
        pool = next(group.pool for group in self._groups if place in group.places)
        assert not isinstance(pool, WorkerPool)
        return pool.validate_rows(reward, columns)

    def __enter__(self) -> Scorer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def score(
        self,
        prompts: list[Any],
        completions: list[Any],
        columns: Mapping[str, list[Any]],
        *,
        completion_ids: list[Any] | None = None,
        trainer_state: object = None,
        step: int = 0,
        log_extra: LogExtra | None = None,
        log_metric: Callable[[str, float], None] | None = None,
    ) -> Scored:
        """What all rewards say of a batch. What is wrong with a reward function is returned and not raised.

        Args:
            prompts, completions, completion_ids: one per row, as GRPOTrainer has them.
            columns: of the data, by name; each as long as `completions`.
            trainer_state: what functions see of it in workers are its attributes (or entries) that are numbers or text.
            log_extra, log_metric: the trainer's. They are called here and in the order of the rewards, with what
                functions logged and with the columns of text that rewards ask for (`Reward.log_columns`).
        """
        labels = [reward.label for reward in self.rewards]
        rows = len(completions)
        if not rows:
            return Scored([], [], dict.fromkeys(labels, 0.0))
        self._closed = False
        batch = self._batch(prompts, completions, columns, completion_ids, trainer_state, step)
        findings: dict[int, RewardResult] = {}
        broken: list[BaseException] = []

        def work(group: WorkerGroup) -> None:
            try:
                self._in_workers(group, batch, findings)
            except BaseException as error:  # a fault of ours, and no reward's: raised where it is seen
                broken.append(error)

        # The last group needs no thread, unless there is something else to do here.
        apart = self._groups if self._here else self._groups[:-1]
        threads = [threading.Thread(target=work, args=(group,), daemon=True) for group in apart]
        for thread in threads:
            thread.start()
        end = time.monotonic() + self.budget_s
        for place in self._here:
            findings[place] = self._here_and_now(place, batch, end)
        for group in self._groups[len(apart) :]:
            self._in_workers(group, batch, findings)
        for thread in threads:
            thread.join()
        if broken:
            raise broken[0]
        in_order = [findings[place] for place in range(len(self.rewards))]
        silences = [
            (pool.silent_s(), "Ray cluster" if isinstance(pool, RayRewardBackend) else "reward server")
            for pool in self._elsewhere
        ]
        silent_s, silent = max((one for one in silences if one[0]), default=(0.0, ""))
        logged: set[str] = set()
        for reward, finding in zip(self.rewards, in_order, strict=True):
            replay(reward, finding, completions, columns, log_extra, log_metric, logged)
        return Scored(
            values=[list(row) for row in zip(*(finding.values for finding in in_order), strict=True)],
            faults=[fault for finding in in_order for fault in finding.faults],
            seconds={label: finding.seconds for label, finding in zip(labels, in_order, strict=True)},
            silent_s=silent_s,
            silent=silent,
        )

    def _batch(
        self,
        prompts: list[Any],
        completions: list[Any],
        columns: Mapping[str, list[Any]],
        completion_ids: list[Any] | None,
        trainer_state: object,
        step: int,
    ) -> Batch:
        given: dict[str, Any] = {**columns, "prompts": prompts, "completions": completions}
        if completion_ids is not None:
            given["completion_ids"] = completion_ids
        wanted: set[str] = set()
        for group in self._groups:
            for place in group.places if isinstance(group.pool, WorkerPool) else ():
                wanted.update(self._names(place, given))
        return Batch.of(given, wanted, trainer_state, step)

    def _names(self, place: int, given: Mapping[str, Any]) -> list[str]:
        """The arguments that a reward gets to see."""
        seen = self._seen[place]
        return [name for name in given if seen is None or name in seen or name in ("prompts", "completions")]

    # ------------------------------------------------------------------------------------------------------------------
    # In workers

    def _in_workers(self, group: WorkerGroup, batch: Batch, findings: dict[int, RewardResult]) -> None:
        """Asks for the rewards of a group, one after the other."""
        try:
            self._wait_for(group.pool)
        except WorkerError as error:
            for place in group.places:
                findings[place] = self._case(place, batch).not_called(str(error))
            return
        if not isinstance(group.pool, WorkerPool):
            self._on_servers(group.pool, group.places, batch, findings)
            return
        end = time.monotonic() + self.budget_s
        for number, place in enumerate(group.places):
            start = time.monotonic()
            share = (end - start) / (len(group.places) - number)
            findings[place] = self._in_worker(group.pool, number, place, batch, start + share)
            findings[place].seconds = time.monotonic() - start

    def _wait_for(self, pool: Pool) -> None:
        """Until a worker is there, however long its imports take: that is none of the batch's time."""
        try:
            pool.start(1)
        except StartError:
            raise  # what could not be imported could not be the next time
        except WorkerError:
            if self._closed or not isinstance(pool, WorkerPool):
                raise
            pool.start(1)

    def _in_worker(self, pool: WorkerPool, number: int, place: int, batch: Batch, end: float) -> RewardResult:
        case = self._case(place, batch)
        parts: dict[str, bytes] = {}
        for name in self._names(place, batch.given):
            part = batch.pickled[name]
            if isinstance(part, Exception):
                return case.not_called(
                    f"{name} can't be sent to its worker ({type(part).__name__}: {part}). Give the reward "
                    "`where: trainer` in the recipe."
                )
            parts[name] = part
        seed = self._seed(batch, case)

        def rows() -> list[Any]:
            items = []
            for row in range(batch.rows):
                one = batch.row(row)
                parts_of_row = {name: pickle.dumps(one[name], protocol=5) for name in parts}
                items.append(item(number, parts_of_row, batch.state, (*seed, row)))
            return items

        limit = min(self.deadline_s * batch.rows, 0.5 * (end - time.monotonic()))
        asked = [item(number, parts, batch.state, seed)]
        whole = self._ask(pool, asked, limit, time.monotonic() + limit, at_most=1)[0]
        return self._found(pool, case, whole, rows, limit, end)

    def _on_servers(
        self,
        pool: HttpRewardBackend | RayRewardBackend,
        places: Sequence[int],
        batch: Batch,
        findings: dict[int, RewardResult],
    ) -> None:
        """Asks for all rewards of a group together, and then for the rows of those that are at fault."""
        start = time.monotonic()
        end = start + self.budget_s
        errands: dict[int, RewardCall] = {}
        for number, place in enumerate(places):
            case, names = self._case(place, batch), self._names(place, batch.given)
            try:
                pool.check_columns(batch.carried, [*names, "prompts"])
            except EncodingError as error:
                findings[place] = case.not_called(str(error))
            else:
                errands[place] = RewardCall(number, batch.carried, names, batch.state, self._seed(batch, case))
        limit = min(self.deadline_s * batch.rows, 0.5 * self.budget_s)
        wholes = self._ask(pool, list(errands.values()), limit, start + limit)
        for place, whole in zip(errands, wholes, strict=True):
            rows = partial(_row_by_row, errands[place], batch.rows)
            findings[place] = self._found(pool, self._case(place, batch), whole, rows, limit, end)
        for place in places:
            findings[place].seconds = time.monotonic() - start

    def _found(
        self,
        pool: Pool,
        case: FailureReporter,
        whole: TaskResult,
        rows: Callable[[], Sequence[Any]],
        limit: float,
        end: float,
    ) -> RewardResult:
        """What a call for the whole batch came to, or else what calls for one row at a time do.

        Args:
            rows: makes the items for these.
            limit: seconds that the call for the whole batch had.
        """
        if whole.status == "unavailable" and whole.why == OUT_OF_TIME:
            whole = TaskResult("timeout", why=f"not done after {limit:.3g} s")
        reply = reply_of(whole)
        if reply is not None and not reply.kind:
            return case.of_batch(reply)
        if whole.status == "unavailable":
            return case.not_called(f"{whole.why}.")
        if len(case.completions) == 1:
            return case.of_rows(whole, [whole])
        return case.of_rows(whole, self._ask(pool, rows(), self.deadline_s, end))

    def _seed(self, batch: Batch, case: FailureReporter) -> tuple[Any, ...]:
        return (self.seed, batch.step, self.rank, case.reward.label)

    def _ask(
        self,
        pool: Pool,
        items: Sequence[Any],
        deadline_s: float,
        end: float,
        at_most: int | None = None,
    ) -> list[TaskResult]:
        """What workers say, asked again for what was lost with all of them: somebody has killed their fork server."""
        outcomes: dict[int, TaskResult] = {}
        lost = list(range(len(items)))
        for _ in range(2):
            budget_s = max(end - time.monotonic(), 0.0)
            asked = pool.map(
                [items[place] for place in lost], timeout_s=deadline_s, batch_timeout_s=budget_s, max_workers=at_most
            )
            outcomes.update(zip(lost, asked, strict=True))
            lost = [
                place
                for place in lost
                if outcomes[place].status == "unavailable" and outcomes[place].why != OUT_OF_TIME
            ]
            if not lost or self._closed:
                break
        return [outcomes[place] for place in range(len(items))]

    # ------------------------------------------------------------------------------------------------------------------
    # In the caller's process

    def _here_and_now(self, place: int, batch: Batch, end: float) -> RewardResult:
        case = self._case(place, batch)
        start = time.monotonic()
        reply = call(case.reward, batch.given, batch.trainer_state)
        if not reply.kind:
            finding = case.of_batch(reply)
        else:
            whole = TaskResult("done", reply)
            outcomes = [whole] if batch.rows == 1 else []
            while len(outcomes) < batch.rows:
                if time.monotonic() >= end:
                    outcomes.append(TaskResult("unavailable", why=OUT_OF_TIME))
                else:
                    outcomes.append(
                        TaskResult("done", call(case.reward, batch.row(len(outcomes)), batch.trainer_state))
                    )
            finding = case.of_rows(whole, outcomes)
        finding.seconds = time.monotonic() - start
        return finding

    def _case(self, place: int, batch: Batch) -> FailureReporter:
        return FailureReporter(self.rewards[place], self.rank, batch.given["completions"])


def _row_by_row(errand: RewardCall, rows: int) -> list[RewardCall]:
    return [replace(errand, row=row) for row in range(rows)]
