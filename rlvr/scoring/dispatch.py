"""Who is asked for which rewards, and a batch as it goes to them: pickled for workers here, as JSON for servers.

What goes to a Ray cluster is pickled, too (rlvr/on_ray).
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from rlvr.config.reward_location import addresses, is_on_ray, is_remote
from rlvr.scoring.backends.http.pool import HttpRewardBackend
from rlvr.scoring.backends.ray_cluster.pool import RayRewardBackend
from rlvr.scoring.batch_encoding import EncodedBatch
from rlvr.scoring.call import plain_state
from rlvr.scoring.registry import runs_in_trainer, worker_group
from rlvr.scoring.reward import Reward
from rlvr.workers.pool import WorkerPool

MOST_WORKERS = 4  # a group, where rows are scored one at a time
Pool = WorkerPool | HttpRewardBackend | RayRewardBackend


@dataclass
class WorkerGroup:
    """Rewards that one pool of workers serves, or the same servers, or a Ray cluster; by their places in the recipe."""

    places: list[int]
    pool: Pool


def group_rewards(rewards: Sequence[Reward], start_s: float) -> tuple[list[int], list[WorkerGroup]]:
    """The rewards that must be called in the caller's own process, and the groups of the others.

    Args:
        start_s: seconds to wait for a worker's imports, or for a server to be there.
    """
    here: list[int] = []
    by_what: dict[str, list[int]] = {}
    for place, reward in enumerate(rewards):
        if _must_stay(reward):
            here.append(place)
        elif is_on_ray(reward.where):  # all of them in one batch: it is for the cluster to spread them
            by_what.setdefault(str(reward.where), []).append(place)
        else:
            where = f"{reward.where} " if is_remote(reward.where) else ""
            by_what.setdefault(f"{where}{worker_group(reward.function) or f'only {place}'}", []).append(place)
    pools = (_pool([rewards[place] for place in places], start_s) for places in by_what.values())
    return here, [WorkerGroup(places, pool) for places, pool in zip(by_what.values(), pools, strict=True)]


def _must_stay(reward: Reward) -> bool:
    """Whether a reward is called in the process that trains."""
    return reward.spec is None or reward.where == "trainer" or runs_in_trainer(reward.function)


def _pool(rewards: Sequence[Reward], start_s: float) -> Pool:
    where = rewards[0].where
    if where is not None and is_on_ray(where):
        return RayRewardBackend(where, rewards, start_s=start_s)
    if where is not None and is_remote(where):
        return HttpRewardBackend(addresses(where), rewards, start_s=start_s)
    cores = len(os.sched_getaffinity(0)) // max(int(os.environ.get("LOCAL_WORLD_SIZE") or 1), 1)
    return WorkerPool(
        "rlvr.scoring.call:prepare",
        processes=max(2, min(MOST_WORKERS, cores)),
        memory_mb=None,  # compilers and programs run below a worker
        init_payload=pickle.dumps([reward.spec for reward in rewards]),
        inherit_env=True,
        folder=os.getcwd(),
        start_s=start_s,
    )


@dataclass(frozen=True)
class Batch:
    """The arguments of a call.

    Attributes:
        given: by name.
        pickled: each that workers here need, or why it can't be.
        carried: all of them, for servers.
        trainer_state: for a function in this process.
        state: for one in another.
    """

    given: Mapping[str, Any]
    pickled: Mapping[str, bytes | Exception]
    carried: EncodedBatch
    trainer_state: object
    state: Mapping[str, Any]
    rows: int
    step: int

    @classmethod
    def of(cls, given: Mapping[str, Any], wanted: Iterable[str], trainer_state: object, step: int) -> Batch:
        """A batch of which workers here need what is wanted."""
        pickled: dict[str, bytes | Exception] = {}
        for name in wanted:
            try:
                pickled[name] = pickle.dumps(given[name], protocol=5)
            except Exception as error:  # pickle raises what it likes
                pickled[name] = error
        # Outside of training there is no trainer, but a function that was written for one may look at these.
        state = {"global_step": step, "max_steps": max(step, 1), "epoch": 0.0, **plain_state(trainer_state)}
        if trainer_state is None or isinstance(trainer_state, Mapping):
            trainer_state = SimpleNamespace(**{**state, **(trainer_state or {})})
        rows = len(given["completions"])
        return cls(given, pickled, EncodedBatch(given, rows), trainer_state, state, rows, step)

    def row(self, number: int) -> dict[str, Any]:
        return {
            name: value[number : number + 1] if isinstance(value, list) and len(value) == self.rows else value
            for name, value in self.given.items()
        }
