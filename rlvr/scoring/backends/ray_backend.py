"""Call rewards on a Ray cluster (`where: ray`, or `where: ray://head:10001`).

A batch travels in tasks of whole groups (`split_batch`). Ray gives each task to a node with a free processor. Rewards
of one worker group travel in one task, so that a program that two of them judge is judged once. Calls for single rows
are a task each. A task that is lost with its node runs on another one, with the same random numbers.
"""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlvr.errors import Problem
from rlvr.scoring.backends.base import RewardBackend, differing_file, merge_environments
from rlvr.scoring.backends.local import call_item
from rlvr.scoring.backends.ray_driver_client import RayDriverClient, require_ray
from rlvr.scoring.batch import Encoding, RewardCall
from rlvr.scoring.call_result import CallResult, merge_shards
from rlvr.scoring.registry import worker_group
from rlvr.scoring.reward import Reward
from rlvr.scoring.source_files import digest_of
from rlvr.workers.pool import OUT_OF_TIME, StartError, TaskResult, WorkerError

MAX_NAMED_NODES = 5
MIN_ROWS = 8  # per task: sending fewer costs more than they are worth


RayTask = tuple[int, list[bytes]]  # index of a reward set, items for its worker


class RayRewardBackend(RewardBackend):
    """Sends calls to a Ray cluster.

    Raises:
        InputError: Ray is not installed.
    """

    service = "Ray cluster"
    encoding: Encoding = "pickle"
    calls_together = True

    def __init__(self, where: str, rewards: Sequence[Reward], *, start_timeout_s: float) -> None:
        require_ray(f"The reward {rewards[0].name}", where)
        self.where = where
        self.rewards = list(rewards)
        self.start_timeout_s = start_timeout_s
        self._lock = threading.Lock()
        self._driver: RayDriverClient | None = None
        self._environment: dict[str, str] | None = None  # None before the handshake
        self._warnings: list[Problem] = []
        groups: dict[str, list[int]] = {}
        for index, reward in enumerate(self.rewards):
            groups.setdefault(worker_group(reward.function) or f"only {index}", []).append(index)
        # On a node, a reward is local.
        specs = [replace(reward.spec, where=None) for reward in self.rewards if reward.spec is not None]
        self._sets = list(groups.values())  # rewards that a worker on a node loads together
        self._specs = [pickle.dumps([specs[index] for index in indices]) for indices in self._sets]
        self._set_of = {index: number for number, indices in enumerate(self._sets) for index in indices}

    def launch(self) -> None:
        self._open().pool.launch()

    def start(self) -> None:
        driver = self._open()
        if self._environment is not None:
            return
        started = time.monotonic()
        message = {"action": "handshake", "specs": self._specs, "folder": os.getcwd()}
        try:
            reply = driver.ask(message, started + self.start_timeout_s, waits=self.waits_for_service)
        except StartError:
            raise  # the cluster has answered
        except WorkerError:
            self.mark_outage(started)
            raise
        self._warnings = [
            Problem(f"The Ray node {node} can't score and is not used: {cause}", "unsuitable-node", level="warning")
            for node, cause in reply["unsuitable"].items()
        ]
        self._warnings += self._compare(reply["nodes"])
        self._environment = merge_environments([node["environment_info"] for node in reply["nodes"]], "Ray nodes")

    def environment_info(self) -> dict[str, str]:
        return self._environment or {}

    def warnings(self) -> list[Problem]:
        warnings, self._warnings = self._warnings, []
        return warnings

    def close(self) -> None:
        with self._lock:
            driver, self._driver, self._environment = self._driver, None, None
        if driver is not None:
            driver.close()

    def _open(self) -> RayDriverClient:
        with self._lock:
            if self._driver is None:
                self._driver = RayDriverClient(self.where)
            return self._driver

    def _compare(self, nodes: Sequence[Mapping[str, Any]]) -> list[Problem]:
        warnings = []
        for number, indices in enumerate(self._sets):
            for place, index in enumerate(indices):
                digest = digest_of(self.rewards[index])
                others = sorted(node["node"] for node in nodes if node["digests"][number][place] != digest)
                if others:
                    warnings.append(differing_file(self.rewards[index], others[:MAX_NAMED_NODES]))
        return warnings

    def call(self, calls: Sequence[RewardCall], *, timeout_s: float, end: float) -> list[CallResult]:
        started = time.monotonic()
        tasks: list[RayTask] = []
        parts: list[tuple[list[int], list[int]]] = []  # of each task: indices of its calls, and rows
        by_set: dict[int, list[int]] = {}
        for number, call in enumerate(calls):
            if call.row is not None:
                tasks.append(self._task([call], [call.row]))
                parts.append(([number], [call.row]))
            else:
                by_set.setdefault(self._set_of[call.reward], []).append(number)
        for numbers in by_set.values():
            for rows in split_batch(calls[0].batch.columns["prompts"]):
                tasks.append(self._task([calls[number] for number in numbers], rows))
                parts.append((numbers, rows))
        try:
            results = self._run(tasks, timeout_s=timeout_s, end=end)
        except WorkerError as error:
            if not isinstance(error, StartError):
                self.mark_outage(started)
            return [CallResult(status="unavailable", why=str(error))] * len(calls)
        if any(result.status != "unavailable" for of_task in results for result in of_task):
            self._outage_since = None
        of_call: list[list[tuple[CallResult, list[int]]]] = [[] for _ in calls]
        for (numbers, rows), of_task in zip(parts, results, strict=True):
            for number, result in zip(numbers, of_task, strict=True):
                of_call[number].append((CallResult.of_worker(result), rows))
        return [merge_shards(shards) for shards in of_call]

    def _task(self, calls: Sequence[RewardCall], rows: list[int]) -> RayTask:
        """Calls of rewards of one set, for some rows of the batch."""
        number = self._set_of[calls[0].reward]
        pickled: dict[str, bytes] = {}
        return number, [call_item(call, self._sets[number].index(call.reward), rows, pickled) for call in calls]

    def _run(self, tasks: Sequence[RayTask], *, timeout_s: float, end: float) -> list[list[TaskResult]]:
        """Run tasks, and return the results of each one's items.

        Raises:
            WorkerError: there is no cluster.
        """
        message = {
            "action": "score",
            "specs": self._specs,
            "folder": os.getcwd(),
            "timeout_s": timeout_s,
            "tasks": list(tasks),
        }
        reply = self._open().ask(message, end)
        return [
            [TaskResult(*result) for result in outcome["done"]]
            if "done" in outcome
            else [TaskResult("unavailable", why=outcome["lost"] or OUT_OF_TIME)] * len(items)
            for (_, items), outcome in zip(tasks, reply["outcomes"], strict=True)
        ]


def split_batch(prompts: Sequence[Any]) -> list[list[int]]:
    """Split the rows of a batch into Ray tasks; the rows of each are ascending.

    The completions of one prompt stay together. The split depends on the batch alone and not on the cluster. So a
    reward that draws random numbers draws the same ones with any number of nodes, and whichever of them are lost.
    """
    groups: dict[str, list[int]] = {}
    for row, prompt in enumerate(prompts):
        groups.setdefault(json.dumps(prompt, default=repr, sort_keys=True), []).append(row)
    shards: list[list[int]] = []
    for rows in groups.values():
        if not shards or len(shards[-1]) >= MIN_ROWS:
            shards.append([])
        shards[-1] += rows
    return [sorted(shard) for shard in shards]
