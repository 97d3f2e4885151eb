"""The process that talks to Ray: it sends tasks to the cluster, and collects their results (see driver_client.py).

Ray places tasks, reserves processors for them, and reruns those that were lost with a node. This process decides how
many processors a task gets, and cancels tasks when a batch times out.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rlvr.scoring.backends.ray_cluster.cluster import Cluster, Refused, Unreachable

MAX_RETRIES = 5  # of a task whose node, or whose process there, is lost
POLL_S = 0.5
MAX_HANDSHAKES = 64  # nodes that are asked before the first batch
HANDSHAKE_GRACE_S = 15.0  # for other nodes, after the first has replied
RESUBMIT_AFTER_S = 3.0  # after a node is gone, unfinished tasks are submitted again, wherever they were
NO_NODE = "the cluster has no node with a processor for tasks"
_NOT_INSTALLED = "No module named 'rlvr'"


def prepare(init_payload: bytes) -> Callable[[bytes], dict[str, Any]]:
    """Return the function of this process's items, which come from driver_client.py."""
    settings = pickle.loads(init_payload)
    os.environ.update({**settings["environment"], "RAY_USAGE_STATS_ENABLED": "0"})
    cluster = Cluster(settings["where"], settings["run"])
    cluster_may_be_gone = False

    def serve(item: bytes) -> dict[str, Any]:
        nonlocal cluster_may_be_gone
        message = pickle.loads(item)
        if message["action"] == "leave":
            if cluster.joined:
                cluster.leave()
            return {}
        if cluster_may_be_gone:
            os._exit(1)  # another cluster may be at the same address by now, which Ray would never notice
        try:
            _silence_ray()
            cluster.join(message["end"])
            reply = _ACTIONS[message["action"]](message)
            outcomes = reply.get("outcomes", [])
            cluster_may_be_gone = bool(outcomes) and not cluster.is_own and not any("done" in one for one in outcomes)
            return reply
        except Unreachable as error:
            return {"unreachable": str(error)}
        except Refused as error:
            return {"refused": str(error)}
        except Exception as error:  # of Ray, which has lost the cluster
            cluster_may_be_gone = cluster.joined
            return {"unreachable": _describe(error)}

    return serve


def _silence_ray() -> None:
    """Discard what Ray prints: errors that matter are in replies."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(devnull, descriptor)
    os.close(devnull)


def _handshake(message: Mapping[str, Any]) -> dict[str, Any]:
    """Ask nodes for what scores depend on there. Wait for the first reply, and a little for the others."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from rlvr.scoring.backends.ray_cluster.node import handshake

    nodes = list(_nodes().items())[:MAX_HANDSHAKES]
    if not nodes:
        raise Unreachable(NO_NODE)
    pending = {
        ray.remote(handshake)
        .options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        .remote(message["specs"], message["folder"]): node["NodeManagerAddress"]
        for node_id, node in nodes
    }
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
                if _is_unsuitable(error):
                    unsuitable[address] = _describe(error)
                else:
                    lost = error
    for reference in pending:
        with contextlib.suppress(Exception):
            ray.cancel(reference, force=True)
    if not replies and not unsuitable:
        raise lost or Unreachable("no node of the cluster answers")
    if not replies:
        address, cause = next(iter(unsuitable.items()))
        raise Refused(f"The rewards can't be called on the Ray node {address}: {cause}")
    return {"nodes": replies, "unsuitable": unsuitable}


def _score(message: Mapping[str, Any]) -> dict[str, Any]:
    from rlvr.scoring.backends.ray_cluster.node import score

    tasks = message["tasks"]
    cpus = _cpus_per_task([max_cpus for _, _, max_cpus in tasks])
    arguments = [
        (message["specs"][number], message["folder"], items, message["timeout_s"], task_cpus)
        for (number, items, _), task_cpus in zip(tasks, cpus, strict=True)
    ]
    return _run(score, arguments, cpus, message["end"])


def _judge(message: Mapping[str, Any]) -> dict[str, Any]:
    from rlvr.scoring.backends.ray_cluster.node import judge

    cpus = _cpus_per_task([len(submissions) for submissions in message["tasks"]])
    return _run(judge, list(zip(message["tasks"], cpus, strict=True)), cpus, message["end"])


_ACTIONS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "handshake": _handshake,
    "score": _score,
    "judge": _judge,
}


def _nodes() -> dict[str, dict[str, Any]]:
    """Living nodes with a processor for tasks, by ID."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    return {str(node["NodeID"]): node for node in nodes}


def _cpus_per_task(max_cpus: Sequence[int]) -> list[int]:
    """Processors of each task: one, or more if there are fewer tasks than processors.

    Args:
        max_cpus: processors that each task could use.
    """
    node_cpus = [int(node["Resources"]["CPU"]) for node in _nodes().values()] or [1]
    share = max(1, min(max(node_cpus), sum(node_cpus) // max(len(max_cpus), 1)))
    return [max(1, min(wanted, share)) for wanted in max_cpus]


def _run(
    function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], cpus: Sequence[int], end: float
) -> dict[str, Any]:
    """Run tasks; each outcome has the result as `done`, or the cause as `lost` ("": the batch timed out).

    Raises:
        Unreachable: no node is left.
    """
    import ray

    from rlvr.scoring.backends.ray_cluster.node import NodeUnsuitable

    task = ray.remote(max_retries=MAX_RETRIES, retry_exceptions=[NodeUnsuitable])(function)

    def submit(numbers: Iterable[int], strategy: str) -> dict[Any, int]:
        return {
            task.options(num_cpus=cpus[number], scheduling_strategy=strategy).remote(*arguments[number]): number
            for number in numbers
        }

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
                    outcomes[number] = {"lost": _describe(error)}
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
    import ray

    for reference in references:
        del pending[reference]
        with contextlib.suppress(Exception):
            ray.cancel(reference, force=True)


def _is_unsuitable(error: Exception) -> bool:
    """Whether a task has failed because of its node's state, and was not lost with the node."""
    from rlvr.scoring.backends.ray_cluster.node import NodeUnsuitable

    return isinstance(getattr(error, "cause", error), NodeUnsuitable) or _NOT_INSTALLED in str(error)


def _describe(error: Exception) -> str:
    """The error of a task, in one line."""
    cause = getattr(error, "cause", error)
    text = str(error)
    if _NOT_INSTALLED in text:
        return "grpo-recipes is not installed there"
    if _is_unsuitable(error):
        return str(cause)
    lines = [line for line in text.splitlines() if line.strip()]
    line = (lines[-1] if "Traceback" in text else lines[0]) if lines else ""
    return f"{type(cause).__name__}: {line}"[:400]
