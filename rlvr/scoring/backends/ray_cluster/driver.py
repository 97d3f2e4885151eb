"""The process that talks to Ray (rlvr/scoring/backends/ray_cluster/driver_client.py): it hands tasks to the cluster and
collects what they come to.

Ray places tasks, gives those that were lost with their node to another one, and keeps as many processors for each as it
is told. Here is decided how many that are, and what is given up when a batch has no time left.
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

RETRIES = 5  # of a task whose node, or whose process there, is lost
WAIT_S = 0.5
MOST_MET = 64  # nodes that are asked before the first batch
NO_NODE = "the cluster has no node with a processor for tasks"
GONE_S = 3.0  # after a node is gone: what is unfinished is then asked for once more, wherever it was
MEET_S = 15.0  # for the others, once the first node has answered


def prepare(init_payload: bytes) -> Callable[[bytes], dict[str, Any]]:
    """The function of this process's items, which come from `rlvr.scoring.backends.ray_cluster.driver_client`."""
    told = pickle.loads(init_payload)
    os.environ.update({**told["environment"], "RAY_USAGE_STATS_ENABLED": "0"})
    cluster = Cluster(told["where"], told["run"])

    unheard = False

    def serve(item: bytes) -> dict[str, Any]:
        nonlocal unheard
        message = pickle.loads(item)
        if message["what"] == "leave":
            if cluster.joined:
                cluster.leave()
            return {}
        if unheard:
            # There may be another cluster at the same address by now, which Ray would never notice.
            os._exit(1)
        try:
            _quiet()
            cluster.join(message["end"])
            said = _ACTIONS[message["what"]](message)
            found = said.get("found", [])
            unheard = bool(found) and not cluster.is_own and not any("done" in task for task in found)
            return said
        except Unreachable as error:
            return {"unreachable": str(error)}
        except Refused as error:
            return {"refused": str(error)}
        except Exception as error:  # of Ray, which has lost the cluster
            unheard = cluster.joined
            return {"unreachable": _words(error)}

    return serve


def _quiet() -> None:
    """What Ray prints is for nobody: what matters is told as outcomes."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _meet(message: Mapping[str, Any]) -> dict[str, Any]:
    """What the nodes say of themselves, and why others can't be used; once one of them has answered."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from rlvr.scoring.backends.ray_cluster.node import meet

    nodes = _nodes()[:MOST_MET]
    if not nodes:
        raise Unreachable(NO_NODE)
    asked = {
        ray.remote(meet).options(
            num_cpus=0, max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(message["sets"], message["folder"]): node["NodeManagerAddress"]
        for node in nodes
    }  # fmt: skip
    met: list[dict[str, Any]] = []
    unfit: dict[str, str] = {}
    lost: Exception | None = None
    end = message["end"]
    while asked and (left := end - time.monotonic()) > 0:
        done, _ = ray.wait(list(asked), timeout=min(left, WAIT_S))
        for reference in done:
            address = asked.pop(reference)
            try:
                met.append({**ray.get(reference), "node": address})
                end = min(end, time.monotonic() + MEET_S)
            except Exception as error:
                if _is_unfit(error):
                    unfit[address] = _words(error)
                else:
                    lost = error
    for reference in asked:
        with contextlib.suppress(Exception):
            ray.cancel(reference, force=True)
    if not met and not unfit:
        raise lost or Unreachable("no node of the cluster answers")
    if not met:
        address, why = next(iter(unfit.items()))
        raise Refused(f"The rewards can't be called on the Ray node {address}: {why}")
    return {"nodes": met, "unfit": unfit}


def _score(message: Mapping[str, Any]) -> dict[str, Any]:
    from rlvr.scoring.backends.ray_cluster.node import score

    tasks = message["tasks"]
    cpus = _cpus([widest for _, _, widest in tasks])
    calls = [
        (message["sets"][number], message["folder"], items, message["deadline_s"], own)
        for (number, items, _), own in zip(tasks, cpus, strict=True)
    ]
    return _run(score, calls, cpus, message["end"])


def _judge(message: Mapping[str, Any]) -> dict[str, Any]:
    from rlvr.scoring.backends.ray_cluster.node import judge

    cpus = _cpus([len(submissions) for submissions in message["tasks"]])
    return _run(judge, list(zip(message["tasks"], cpus, strict=True)), cpus, message["end"])


_ACTIONS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "meet": _meet, "score": _score, "judge": _judge,
}  # fmt: skip


def _nodes() -> list[dict[str, Any]]:
    """The nodes that live and have a processor for tasks."""
    import ray

    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def _cpus(widest: Sequence[int]) -> list[int]:
    """How many processors each task is given: one, or more where there are fewer tasks than processors.

    Args:
        widest: how many a task could use at the same time.
    """
    counts = [int(node["Resources"]["CPU"]) for node in _nodes()] or [1]
    spare = max(1, min(max(counts), sum(counts) // max(len(widest), 1)))
    return [max(1, min(wide, spare)) for wide in widest]


def _run(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], cpus: Sequence[int], end: float
) -> dict[str, Any]:
    """What each call came to, `done`, or why it was `lost` ("": the time ran out).

    Raises:
        Unreachable: there is nobody left to answer.
    """
    import ray

    from rlvr.scoring.backends.ray_cluster.node import NodeUnsuitable

    task = ray.remote(max_retries=RETRIES, retry_exceptions=[NodeUnsuitable])(function)

    def ask(numbers: Iterable[int], strategy: str) -> dict[Any, int]:
        return {
            task.options(num_cpus=cpus[number], scheduling_strategy=strategy).remote(*calls[number]): number
            for number in numbers
        }

    asked = ask(range(len(calls)), "SPREAD")
    found: list[dict[str, Any]] = [{"lost": ""} for _ in calls]
    there, gone_at = _identities(), math.inf
    while asked and (left := end - time.monotonic()) > 0:
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=min(left, WAIT_S))
        for reference in done:
            number = asked.pop(reference)
            try:
                found[number] = {"done": ray.get(reference)}
            except ray.exceptions.LocalRayletDiedError:
                raise  # nobody is left here who would place tasks
            except Exception as error:
                if number not in asked.values():
                    found[number] = {"lost": _words(error)}
        _cancel([reference for reference, number in asked.items() if "done" in found[number]], asked)
        # Ray waits for minutes for what it has handed to a machine that has lost its power, though it knows of that.
        now = _identities()
        if there - now:
            gone_at = min(gone_at, time.monotonic())
        there = now
        if time.monotonic() >= gone_at + GONE_S:
            asked |= ask(sorted({*asked.values()}), "DEFAULT")  # SPREAD may wait for that machine's word
            gone_at = math.inf
    left_over = bool(asked)
    _cancel(list(asked), asked)
    if left_over and not _nodes():
        raise Unreachable(NO_NODE)
    return {"found": found}


def _cancel(references: Sequence[Any], asked: dict[Any, int]) -> None:
    import ray

    for reference in references:
        del asked[reference]
        with contextlib.suppress(Exception):
            ray.cancel(reference, force=True)


def _identities() -> set[str]:
    return {str(node["NodeID"]) for node in _nodes()}


_NOT_INSTALLED = "No module named 'rlvr'"


def _is_unfit(error: Exception) -> bool:
    """Whether a task has failed for what a node is like, and not since it was lost."""
    from rlvr.scoring.backends.ray_cluster.node import NodeUnsuitable

    return isinstance(getattr(error, "cause", error), NodeUnsuitable) or _NOT_INSTALLED in str(error)


def _words(error: Exception) -> str:
    """What has become of a task, in one line."""
    cause = getattr(error, "cause", error)
    said = str(error)
    if _NOT_INSTALLED in said:
        return "grpo-recipes is not installed there"
    if _is_unfit(error):
        return str(cause)
    lines = [line for line in said.splitlines() if line.strip()]
    name = type(cause).__name__
    return f"{name}: {(lines[-1] if 'Traceback' in said else lines[0]) if lines else ''}"[:400]
