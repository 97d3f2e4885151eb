"""A Ray cluster behind the face of a pool of workers, so that a scorer treats both alike (rlvr/scoring/scorer.py).

    pool = RayPool("ray", rewards)
    outcomes = pool.map([Errand(0, carried, names, state, seed)], timeout_s=30, batch_timeout_s=300)

A batch travels in tasks of whole groups (rlvr/scoring/backends/ray_cluster/sharding.py), of which Ray gives each to a
node with a free processor. Rewards that share judgements travel in one task, one after the other, so that a program
that two of them judge is judged once; others travel apart. Single rows are a task each. A task that is lost with its
node is given to another one, and draws the same random numbers there.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlvr.config.recipe import RewardSpec
from rlvr.errors import InputError
from rlvr.scoring.backends.ray_cluster.driver_client import RayDriverClient, open_line, require_ray
from rlvr.scoring.backends.ray_cluster.sharding import chunks_of, together
from rlvr.scoring.batch_encoding import EncodedBatch, EncodingError, RewardCall
from rlvr.scoring.call import check_these, digest_of, item
from rlvr.scoring.registry import worker_group
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import OUT_OF_TIME, StartError, TaskResult, WorkerError

_log = logging.getLogger(__name__)
START_S = 300.0  # for a cluster to be there at all: its machines may boot at the same time
CHECKED_ROWS = 256  # a task, when rows are looked through before training


@dataclass(frozen=True)
class Task:
    """What one node is given at a time.

    Attributes:
        rewards: the number of the set that it calls some of.
        calls: one after the other, as a worker is told (rlvr/scoring/call.py).
        widest: how many processors it could use.
    """

    rewards: int
    calls: Sequence[bytes]
    widest: int = 1


class RayRewardBackend:
    """Has rewards called on a Ray cluster; usable from any thread.

    Args:
        where: "ray", or "ray://head:port".
        rewards: those that are called there.
        start_s: how long to wait for the cluster to be there.

    Raises:
        InputError: Ray is not installed.
    """

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_s: float = START_S) -> None:
        require_ray(f"The reward {rewards[0].name}", where)
        self.where = where
        self.rewards = list(rewards)
        self.start_s = start_s
        self._lock = threading.Lock()
        self._line: RayDriverClient | None = None
        self._met: dict[str, str] | None = None  # conditions, once the cluster was there
        self._silent_since: float | None = None
        by_set: dict[str, list[int]] = {}
        for place, reward in enumerate(self.rewards):
            by_set.setdefault(worker_group(reward.function) or f"only {place}", []).append(place)
        self._sets = list(by_set.values())
        self._set_of = {place: (number, members.index(place))
                        for number, members in enumerate(self._sets) for place in members}  # fmt: skip
        self._made_with = [pickle.dumps([_there(self.rewards[place]) for place in members]) for members in self._sets]
        self._judges = [worker_group(self.rewards[members[0]].function) is not None for members in self._sets]

    # ------------------------------------------------------------------------------------------------------------------
    # The cluster

    def launch(self) -> None:
        """Begins to start the process that talks to Ray, and does not wait for it."""
        self._open().launch()

    def start(self, workers: int | None = None) -> None:
        """Waits until there is a cluster whose nodes have these rewards; at once where one was before.

        Raises:
            StartError: there is one that can't be used.
            WorkerError: there is none.
        """
        line = self._open()
        if self._met is not None:
            return
        begun = time.monotonic()
        try:
            said = line.ask({"what": "meet", "sets": self._made_with, "folder": os.getcwd()}, begun + self.start_s)
        except StartError:
            raise  # somebody has answered
        except WorkerError:
            self._missed(begun)
            raise
        for node, why in said["unfit"].items():
            _log.warning("The Ray node %s can't score, and is left to others: %s", node, why)
        environment: dict[str, set[str]] = {}
        for about in said["nodes"]:
            for name, value in about["environment_info"].items():
                environment.setdefault(f"{name} of the Ray nodes", set()).add(value)
        self._compare(said["nodes"])
        self._met = {name: " / ".join(sorted(values)) for name, values in environment.items()}

    def environment_info(self) -> dict[str, str]:
        """What the nodes say that scores depend on beside the rewards' arguments, by a short name."""
        return dict(self._met or {})

    def silent_s(self) -> float:
        """Seconds for which calls have gone without any answer; 0 if the last one had one."""
        return time.monotonic() - self._silent_since if self._silent_since is not None else 0.0

    def close(self) -> None:
        with self._lock:
            line, self._line, self._met = self._line, None, None
        if line is not None:
            line.close()

    def _open(self) -> RayDriverClient:
        with self._lock:
            if self._line is None:
                self._line = open_line(self.where)
            return self._line

    def _missed(self, since: float) -> None:
        if self._silent_since is None:
            self._silent_since = since

    def _compare(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        for number, members in enumerate(self._sets):
            for place, reward in enumerate(self.rewards[member] for member in members):
                others = [about["node"] for about in nodes if about["digests"][number][place] != digest_of(reward)]
                if others:
                    _log.warning(
                        "The reward %s is another one on the Ray nodes %s than here: its file differs. What counts is "
                        "what is there.", reward.name, ", ".join(sorted(others)[:5]),
                    )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------------------
    # Calls

    def check_columns(self, carried: EncodedBatch, names: Sequence[str]) -> None:
        """Whether columns of a batch can travel.

        Raises:
            CannotCarry: one of them can't; with what to do.
        """
        for name in names:
            try:
                pickle.dumps(carried.given[name], protocol=5)
            except Exception as error:  # pickle raises what it likes
                raise EncodingError(
                    f"{name} can't be sent to Ray ({type(error).__name__}: {error}). Give the reward `where: trainer` "
                    "in the recipe."
                ) from error

    def validate_rows(self, reward: Reward, columns: Mapping[str, Sequence[Any]]) -> list[str | None]:
        """What a reward's own file has against rows of the data, asked where it will be called.

        Raises:
            InputError: what it has against all of them; or no cluster answers.
        """
        rows = max((len(values) for values in columns.values()), default=0)
        number, within = self._set_of[self.rewards.index(reward)]
        portions = [slice(start, start + CHECKED_ROWS) for start in range(0, rows, CHECKED_ROWS)]
        asked = [{name: list(values[portion]) for name, values in columns.items()} for portion in portions]
        tasks = [Task(number, [check_these(within, some)]) for some in asked]
        patience_s = max(self.start_s, 60.0)
        try:
            self.start()
            found = self._asked(tasks, deadline_s=patience_s, end=time.monotonic() + patience_s)
        except WorkerError as error:
            raise InputError(f"The reward {reward.name} runs on Ray: {str(error).rstrip('.')}.") from error
        faults: list[str | None] = []
        for (outcome,) in found:
            if outcome.status != "done":
                raise InputError(f"The reward {reward.name} could not look through the rows on Ray: {outcome.why}.")
            if "error" in outcome.value:
                raise InputError(outcome.value["error"])
            faults += outcome.value["faults"]
        return faults

    def map(
        self,
        items: Sequence[RewardCall],
        *,
        timeout_s: float,
        batch_timeout_s: float | None = None,
        max_workers: int | None = None,
    ) -> list[TaskResult]:
        """What became of calls, in their order; as `rlvr.workers.pool.WorkerPool.map`.

        Args:
            items: all of one batch; either calls for all rows, or for single ones.
            max_workers: has no meaning here.
        """
        begun = time.monotonic()
        end = begun + (batch_timeout_s if batch_timeout_s is not None else math.inf)
        if not items:
            return []
        tasks: list[Task] = []
        parts: list[tuple[list[int], list[int]]] = []  # of each task: the items that it is part of, and the rows
        if items[0].row is not None:
            for number, errand in enumerate(items):
                assert errand.row is not None
                tasks.append(self._task([errand], [errand.row], own_seed=True))
                parts.append(([number], [errand.row]))
        else:
            by_set: dict[int, list[int]] = {}
            for number, errand in enumerate(items):
                by_set.setdefault(self._set_of[errand.place][0], []).append(number)
            for members in by_set.values():
                for rows in self._chunks([items[number] for number in members]):
                    tasks.append(self._task([items[number] for number in members], rows))
                    parts.append((members, rows))
        try:
            found = self._asked(tasks, deadline_s=timeout_s, end=end)
        except WorkerError as error:
            if not isinstance(error, StartError):
                self._missed(begun)
            return [TaskResult("unavailable", why=str(error))] * len(items)
        if any(outcome.status != "unavailable" for outcomes in found for outcome in outcomes):
            self._silent_since = None
        of_item: list[list[tuple[TaskResult, list[int]]]] = [[] for _ in items]
        for (members, rows), outcomes in zip(parts, found, strict=True):
            for number, outcome in zip(members, outcomes, strict=True):
                of_item[number].append((outcome, rows))
        return [together(one) for one in of_item]

    def _chunks(self, errands: Sequence[RewardCall]) -> list[list[int]]:
        carried = errands[0].carried
        judges = self._judges[self._set_of[errands[0].place][0]]
        alike = {name for errand in errands for name in self.rewards[errand.place].columns} if judges else set()
        return chunks_of(carried.given, carried.rows, sorted(alike))

    def _task(self, errands: Sequence[RewardCall], rows: list[int], *, own_seed: bool = False) -> Task:
        """Calls of rewards of one set, with some rows of the batch."""
        number = self._set_of[errands[0].place][0]
        given = errands[0].carried.given
        pickled: dict[str, bytes] = {}
        calls = []
        for errand in errands:
            for name in errand.names:
                if name not in pickled:
                    pickled[name] = pickle.dumps([given[name][row] for row in rows], protocol=5)
            # A part that is not the first draws other numbers than the first; a row draws its own.
            seed = (*errand.seed, rows[0]) if own_seed or rows[0] else errand.seed
            parts = {name: pickled[name] for name in errand.names}
            calls.append(item(self._set_of[errand.place][1], parts, errand.state, seed))
        return Task(number, calls, len(rows) if self._judges[number] else 1)

    def _asked(self, tasks: Sequence[Task], *, deadline_s: float, end: float) -> list[list[TaskResult]]:
        """The outcomes of each task's calls.

        Raises:
            WorkerError: there is no cluster.
        """
        message = {
            "what": "score", "sets": self._made_with, "folder": os.getcwd(), "deadline_s": deadline_s,
            "tasks": [(task.rewards, task.calls, task.widest) for task in tasks],
        }  # fmt: skip
        said = self._open().ask(message, end)
        return _outcomes(said["found"], [len(task.calls) for task in tasks])


def _outcomes(found: Sequence[Mapping[str, Any]], calls: Sequence[int]) -> list[list[TaskResult]]:
    return [
        [TaskResult(*one) for one in task["done"]] if "done" in task
        else [TaskResult("unavailable", why=task["lost"] or OUT_OF_TIME)] * count
        for task, count in zip(found, calls, strict=True)
    ]  # fmt: skip


def _there(reward: Reward) -> RewardSpec:
    assert reward.spec is not None
    return replace(reward.spec, where=None)  # on a node it is in its place
