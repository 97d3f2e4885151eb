"""What a Ray task does on its node: call rewards in worker processes of the node.

A task has one process of Ray's to itself, which keeps its workers for the next task. A reward function that hangs, dies
or takes all memory is handled here, as by a worker beside the trainer. Ray handles the loss of nodes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.scoring.backends.local import DESCRIBE
from rlvr.workers.pool import TaskResult, WorkerError, WorkerPool

START_TIMEOUT_S = 300.0  # for a worker's imports, which may be torch on a busy file system
DESCRIBE_TIMEOUT_S = 60.0
_pools: dict[tuple[bytes, str], WorkerPool] = {}

_NOT_INSTALLED = "No module named 'rlvr'"


class NodeUnsuitable(Exception):
    """This node can't run the task; another node may."""


def is_unsuitable(error: Exception) -> bool:
    """Whether a task has failed because of its node's state, and was not lost with the node."""
    return isinstance(getattr(error, "cause", error), NodeUnsuitable) or _NOT_INSTALLED in str(error)


def describe_error(error: Exception) -> str:
    """The error of a task, in one line."""
    cause = getattr(error, "cause", error)
    text = str(error)
    if _NOT_INSTALLED in text:
        return "grpo-recipes is not installed there"
    if is_unsuitable(error):
        return str(cause)
    lines = [line for line in text.splitlines() if line.strip()]
    line = (lines[-1] if "Traceback" in text else lines[0]) if lines else ""
    return f"{type(cause).__name__}: {line}"[:400]


def handshake(specs: Sequence[bytes], folder: str) -> dict[str, Any]:
    """Load each set of rewards, and return what scores depend on here, and hashes of the rewards' files.

    Raises:
        NodeUnsuitable: rewards can't be loaded here.
    """
    environment: dict[str, str] = {}
    digests = []
    for of_set in specs:
        (result,) = _pool(of_set, folder).map([DESCRIBE], timeout_s=DESCRIBE_TIMEOUT_S)
        if result.status != "done":
            raise NodeUnsuitable(result.why)
        environment |= result.value["environment_info"]
        digests.append(result.value["digests"])
    return {"environment_info": environment, "digests": digests}


def score(specs: bytes, folder: str, items: Sequence[bytes], timeout_s: float) -> list[Any]:
    """Run a worker's items one after the other; return `TaskResult` fields.

    Args:
        specs: of the rewards, pickled.

    Raises:
        NodeUnsuitable: rewards can't be loaded here, or all workers are gone.
    """
    pool = _pool(specs, folder)
    results = [_run(pool, data, timeout_s) for data in items]
    return [(result.status, result.value, result.why) for result in results]


def _run(pool: WorkerPool, data: bytes, timeout_s: float) -> TaskResult:
    for _ in range(2):  # the fork server may have been killed
        (result,) = pool.map([data], timeout_s=timeout_s)
        if result.status != "unavailable":
            return result
    raise NodeUnsuitable(result.why)


def _pool(specs: bytes, folder: str) -> WorkerPool:
    """The worker of this process for a set of rewards."""
    if pool := _pools.get((specs, folder)):
        return pool
    os.environ["GRPO_JUDGE_SLOTS"] = "1"  # a task has one processor
    pool = _pools[specs, folder] = WorkerPool(
        "rlvr.scoring.backends.local:prepare",
        processes=1,
        init_payload=specs,
        inherit_env=True,
        folder=folder if Path(folder).is_dir() else None,
        start_s=START_TIMEOUT_S,
    )
    try:
        pool.start(1)
    except WorkerError as error:
        raise NodeUnsuitable(str(error)) from error
    return pool
