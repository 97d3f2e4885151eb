"""What a Ray task does where Ray has sent it: rewards are called in workers of the node's own, that can be killed.

A task has one process of Ray's to itself, which keeps its workers for the next task. So a reward function that hangs,
dies or eats all memory is found out here, by the rules and in the words of a worker beside the trainer; to Ray is left
what befalls nodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.scoring.call import ABOUT
from rlvr.workers.pool import TaskResult, WorkerError, WorkerPool

START_S = 300.0  # for a worker's imports, which may be torch on a busy file system
MEET_S = 60.0
MOST_POOLS = 8  # sets of rewards of one run; each keeps two processes
_pools: dict[tuple[bytes, str], tuple[int, WorkerPool]] = {}


class NodeUnsuitable(Exception):
    """This node can't do it, and another one may."""


def meet(sets: Sequence[bytes], folder: str) -> dict[str, Any]:
    """What the node says of itself: what scores depend on here, and the digests of the rewards' files, by set.

    Raises:
        Unfit: rewards can't be loaded here.
    """
    environment: dict[str, str] = {}
    digests = []
    for init_payload in sets:
        (outcome,) = _pool(init_payload, folder, 1).map([ABOUT], timeout_s=MEET_S)
        if outcome.status != "done":
            raise NodeUnsuitable(outcome.why)
        environment |= outcome.value["environment_info"]
        digests.append(outcome.value["digests"])
    return {"environment_info": environment, "digests": digests}


def score(init_payload: bytes, folder: str, calls: Sequence[bytes], deadline_s: float, cpus: int) -> list[Any]:
    """The outcomes of calls, one after the other, as plain data.

    Args:
        made_with: the rewards' specs, pickled.
        cpus: that the task has for itself, and so how many programs it judges at once.

    Raises:
        Unfit: rewards can't be loaded here, or all workers are gone.
    """
    pool = _pool(init_payload, folder, cpus)
    found = [_outcome(pool, call, deadline_s) for call in calls]
    return [(outcome.status, outcome.value, outcome.why) for outcome in found]


def judge(submissions: Sequence[Mapping[str, Any]], cpus: int) -> list[dict[str, Any]] | str:
    """The judgements of submissions, as plain data; or what is wrong with one of them.

    Raises:
        Unfit: programs can't be confined here.
    """
    from rlvr.verifiers.code import SandboxUnavailable, close, judge_many

    if os.environ.get("GRPO_JUDGE_SLOTS") != str(cpus):
        close()  # a judge that was started for more processors, or for fewer
    os.environ["GRPO_JUDGE_SLOTS"] = str(cpus)
    try:
        return [vars(judgement) for judgement in judge_many(submissions)]
    except SandboxUnavailable as error:
        raise NodeUnsuitable(str(error)) from error
    except InputError as error:
        return str(error)


def _outcome(pool: WorkerPool, call: bytes, deadline_s: float) -> TaskResult:
    for _ in range(2):  # somebody may have killed the fork server
        (outcome,) = pool.map([call], timeout_s=deadline_s)
        if outcome.status != "unavailable":
            return outcome
    raise NodeUnsuitable(outcome.why)


def _pool(init_payload: bytes, folder: str, cpus: int) -> WorkerPool:
    """The workers of this process for some rewards; others where they are to judge more or fewer programs at once."""
    key = (init_payload, folder)
    known = _pools.get(key)
    if known is not None and known[0] == cpus:
        return known[1]
    if known is not None:
        known[1].close()
    os.environ["GRPO_JUDGE_SLOTS"] = str(cpus)
    pool = WorkerPool(
        "rlvr.scoring.call:prepare",
        processes=1,
        memory_mb=None,  # compilers and programs run below a worker
        init_payload=init_payload,
        inherit_env=True,
        folder=folder if Path(folder).is_dir() else os.getcwd(),
        start_s=START_S,
    )
    _pools[key] = (cpus, pool)
    while len(_pools) > MOST_POOLS:
        _pools.pop(next(iter(_pools)))[1].close()
    try:
        pool.start(1)
    except WorkerError as error:
        raise NodeUnsuitable(str(error)) from error
    return pool
