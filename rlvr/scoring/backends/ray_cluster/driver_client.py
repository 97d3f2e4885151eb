"""The process that talks to Ray for this one, and what is said to it.

Ray ends a process whose cluster is gone, takes its signals and fills it with threads: none of that is for a process
that trains. So one of our own workers (rlvr/workers/pool.py) is connected to the cluster. It has nothing of this
process's environment but what Python and Ray need; what it starts inherits no more than that. When it dies, which is
how Ray tells that a cluster is gone, the next one connects anew.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import threading
import time
from collections.abc import Mapping
from typing import Any

from rlvr.errors import InputError
from rlvr.scoring import outage_notices
from rlvr.workers.pool import OUT_OF_TIME, StartError, WorkerError, WorkerPool

GRACE_S = 5.0  # beyond a batch's time, for what is to be cancelled, and to be told
REST_S = 0.5  # between two attempts to reach a cluster
LEAVE_S = 10.0  # to end a cluster that was started here
LONGEST_S = 86400.0
NO_CLUSTER = "no Ray cluster answers"
_FOR_RAY = ("HOME", "USER", "LOGNAME", "GRPO_RECIPES_CACHE")
_lines: dict[tuple[str, ...], RayDriverClient] = {}
_lock = threading.Lock()


def require_ray(who: str, where: str) -> None:
    """Whether Ray is there for what a recipe asks for.

    Raises:
        InputError: it is not installed.
    """
    wanted = ["ray", "grpc"] if "://" in where else ["ray"]
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        of_client = " (of which a client needs grpcio)" if missing == ["grpc"] else ""
        raise InputError(
            f"{who} should run on Ray (where: {where}), which is not installed here{of_client}: "
            "pip install 'grpo-recipes[ray]'."
        )


class RayDriverClient:
    """The line to one cluster, whoever uses it in this process; see `open_line`."""

    def __init__(self, where: str, environment: Mapping[str, str]) -> None:
        self.where = where
        self.users = 0
        self.fault = OUT_OF_TIME  # why there was last no answer
        told = {"where": where, "environment": dict(environment), "run": _this_run()}
        self._pool = WorkerPool(
            "rlvr.scoring.backends.ray_cluster.driver:prepare",
            processes=1,
            memory_mb=None,
            init_payload=pickle.dumps(told),
        )

    def launch(self) -> None:
        """Begins to start the process, and does not wait for it."""
        self._pool.launch()

    def ask(self, message: Mapping[str, Any], end: float) -> dict[str, Any]:
        """What the process answers, as soon as there is a cluster; asked again if it dies over it.

        Args:
            end: by `time.monotonic`, when nobody waits any more.

        Raises:
            StartError: there is a cluster, but it can't be used, and could not be the next time.
            WorkerError: there is none.
        """
        item = pickle.dumps({**message, "end": end}, protocol=5)
        waiting = outage_notices.Waiting("The Ray cluster", end)
        while (left := end - time.monotonic()) > 0:
            patience = min(left, LONGEST_S) + GRACE_S
            (outcome,) = self._pool.map([item], timeout_s=patience, batch_timeout_s=patience, count_waiting=True)
            if outcome.status == "done":
                said: dict[str, Any] = outcome.value
                if "refused" in said:
                    waiting.given_up()
                    raise StartError(said["refused"])
                if "unreachable" not in said:
                    self.fault = OUT_OF_TIME
                    waiting.over()
                    return said
                self.fault = said["unreachable"]
            elif outcome.status == "failed":
                raise RuntimeError(f"the process that talks to Ray failed: {outcome.why}")
            else:
                self.fault = outcome.why
            waiting.in_vain(f"the Ray cluster: {self.fault}")
            time.sleep(max(0.0, min(REST_S, end - time.monotonic())))
        waiting.given_up()
        raise WorkerError(f"{NO_CLUSTER} ({self.fault})")

    def close(self) -> None:
        with _lock:
            self.users -= 1
            if self.users > 0:
                return
            for key in [key for key, line in _lines.items() if line is self]:
                del _lines[key]
        if self._pool.started:
            with contextlib.suppress(WorkerError):
                self._pool.map(
                    [pickle.dumps({"what": "leave"})], timeout_s=LEAVE_S, batch_timeout_s=LEAVE_S, count_waiting=True
                )
        self._pool.close()


def open_line(where: str) -> RayDriverClient:
    """The line to a cluster; the same one for all that use it in this process at the same time. Close it once each."""
    environment = {name: value for name, value in os.environ.items() if name in _FOR_RAY or name.startswith("RAY_")}
    key = (where, *(f"{name}={value}" for name, value in sorted(environment.items())))
    with _lock:
        if key not in _lines:
            _lines[key] = RayDriverClient(where, environment)
        line = _lines[key]
        line.users += 1
        return line


def _this_run() -> str:
    """The same for processes of one launcher on this machine: they are one run, and use one cluster."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    if ranks.isdigit() and int(ranks) > 1:
        return f"{os.getppid()}-{os.environ.get('MASTER_PORT', '')}"
    return str(os.getpid())


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _lines.clear()


os.register_at_fork(after_in_child=_after_fork)
