"""Tasks of a Ray cluster that this process has joined: submit them, collect their results, cancel them.

Ray places tasks, reserves a processor for each, and reruns those that were lost with a node. This module cancels tasks
when a batch times out.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlvr.scoring.backends import ray_node
from rlvr.scoring.backends.ray_cluster import Refused, Unreachable

MAX_RETRIES = 5  # of a task whose node, or whose process there, is lost
POLL_S = 0.5
MAX_HANDSHAKES = 64  # nodes that are asked before the first batch
HANDSHAKE_GRACE_S = 15.0  # for other nodes, after the first has replied
RESUBMIT_AFTER_S = 3.0  # after a node is gone, unfinished tasks are submitted again, wherever they were
NO_NODE = "the cluster has no node with a processor for tasks"


def handshake(message: Mapping[str, Any]) -> dict[str, Any]:
    """Ask nodes for what scores depend on there. Wait for the first reply, and a little for the others."""
    nodes = list(_nodes().items())[:MAX_HANDSHAKES]
    if not nodes:
        raise Unreachable(NO_NODE)
    pending = {}
    for node_id, found in nodes:
        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = ray.remote(ray_node.handshake).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
        pending[task.remote(message["specs"], message["folder"])] = found["NodeManagerAddress"]
    replies: list[dict[str, Any]] = []
    unsuitable: dict[str, str] = {}
    lost: Exception | None = None
    end = message["end"]
    while pending and (left_s := end - time.monotonic()) > 0:
        ready, _ = ray.wait(list(pending), timeout=min(left_s, POLL_S))
        for reference in ready:
            address = pending.pop(reference)
            try:
                replies.append({**ray.get(reference), "node": address})
                end = min(end, time.monotonic() + HANDSHAKE_GRACE_S)
            except Exception as error:
                if ray_node.is_unsuitable(error):
                    unsuitable[address] = ray_node.describe_error(error)
                else:
                    lost = error
    _cancel(list(pending), pending)
    if not replies and not unsuitable:
        raise lost or Unreachable("no node of the cluster answers")
    if not replies:
        address, cause = next(iter(unsuitable.items()))
        raise Refused(f"The rewards can't be called on the Ray node {address}: {cause}")
    return {"nodes": replies, "unsuitable": unsuitable}


def score(message: Mapping[str, Any]) -> dict[str, Any]:
    arguments = [
        (message["specs"][number], message["folder"], items, message["timeout_s"]) for number, items in message["tasks"]
    ]
    return _run(ray_node.score, arguments, message["end"])


def _nodes() -> dict[str, dict[str, Any]]:
    """Living nodes with a processor for tasks, by ID."""
    nodes = [found for found in ray.nodes() if found["Alive"] and found["Resources"].get("CPU", 0) >= 1]
    return {str(found["NodeID"]): found for found in nodes}


def _run(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], end: float) -> dict[str, Any]:
    """Run tasks; each outcome has the result as `done`, or the cause as `lost` ("": the batch timed out).

    Raises:
        Unreachable: no node is left.
    """
    task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES, retry_exceptions=[ray_node.NodeUnsuitable])(function)

    def submit(numbers: Iterable[int], strategy: str) -> dict[Any, int]:
        of_strategy = task.options(scheduling_strategy=strategy)
        return {of_strategy.remote(*arguments[number]): number for number in numbers}

    pending = submit(range(len(arguments)), "SPREAD")
    outcomes: list[dict[str, Any]] = [{"lost": ""} for _ in arguments]
    nodes, gone_at = _nodes().keys(), math.inf
    while pending and (left_s := end - time.monotonic()) > 0:
        ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=min(left_s, POLL_S))
        for reference in ready:
            number = pending.pop(reference)
            try:
                outcomes[number] = {"done": ray.get(reference)}
            except ray.exceptions.LocalRayletDiedError:
                raise  # nothing here places tasks any more
            except Exception as error:
                if number not in pending.values():
                    outcomes[number] = {"lost": ray_node.describe_error(error)}
        _cancel([reference for reference, number in pending.items() if "done" in outcomes[number]], pending)
        # Ray knows that a machine has lost its power, but waits for minutes for the tasks that it has sent there.
        current = _nodes().keys()
        if nodes - current:
            gone_at = min(gone_at, time.monotonic())
        nodes = current
        if time.monotonic() >= gone_at + RESUBMIT_AFTER_S:
            pending |= submit(sorted({*pending.values()}), "DEFAULT")  # SPREAD may wait for the machine that is gone
            gone_at = math.inf
    timed_out = bool(pending)
    _cancel(list(pending), pending)
    if timed_out and not _nodes():
        raise Unreachable(NO_NODE)
    return {"outcomes": outcomes}


def _cancel(references: Sequence[Any], pending: dict[Any, int]) -> None:
    for reference in references:
        del pending[reference]
        with contextlib.suppress(Exception):
            ray.cancel(reference, force=True)
