"""Client of the process that talks to Ray (ray_driver.py).

Ray ends a process whose cluster is gone, takes over its signals and starts threads in it: a training process can't bear
that. So a worker (rlvr/workers/pool.py) is connected to the cluster. It gets only what Python and Ray need of the
environment. When the cluster is gone, Ray ends that worker, and the next one connects anew.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import time
from collections.abc import Mapping
from typing import Any

from rlvr.errors import InputError
from rlvr.scoring.outage_notices import OutageNotice
from rlvr.workers.pool import OUT_OF_TIME, StartError, WorkerError, WorkerPool

GRACE_S = 5.0  # after a batch's end, to cancel tasks and to reply
RETRY_S = 0.5  # between attempts to reach a cluster
MAX_WAIT_S = 86400.0
NO_CLUSTER = "no Ray cluster answers"
_ENVIRONMENT = ("HOME", "USER", "LOGNAME", "GRPO_RECIPES_CACHE")  # and RAY_*


def require_ray(subject: str, where: str) -> None:
    """Check that Ray is installed.

    Args:
        subject: what should run on Ray, for the message.

    Raises:
        InputError: it is not installed.
    """
    packages = ["ray", "grpc"] if "://" in where else ["ray"]
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        of_client = " (a client needs grpcio)" if missing == ["grpc"] else ""
        raise InputError(
            f"{subject} should run on Ray (where: {where}), which is not installed here{of_client}: "
            "pip install -e '.[ray]' -c constraints.txt.",
            kind="not-installed",
            key="where",
        )


class RayDriverClient:
    """Client of the driver of one cluster."""

    def __init__(self, where: str) -> None:
        self.closed = False
        kept = {name: value for name, value in os.environ.items() if name in _ENVIRONMENT or name.startswith("RAY_")}
        settings = {"where": where, "environment": kept}
        self.pool = WorkerPool(
            "rlvr.scoring.backends.ray_driver:prepare",
            processes=1,
            memory_mb=None,
            init_payload=pickle.dumps(settings),
        )

    def ask(self, message: Mapping[str, Any], end: float, *, waits: bool = True) -> dict[str, Any]:
        """Send a message until there is a cluster, and return the reply.

        Args:
            end: by `time.monotonic`.
            waits: whether to try again if there is no cluster.

        Raises:
            StartError: there is a cluster, but it can't be used, and waiting would not help.
            WorkerError: there is none.
        """
        item = pickle.dumps({**message, "end": end}, protocol=5)
        cause = OUT_OF_TIME  # of the last attempt's failure
        notice = OutageNotice("The Ray cluster", end)
        while (left_s := end - time.monotonic()) > 0:
            timeout_s = min(left_s, MAX_WAIT_S) + GRACE_S
            (result,) = self.pool.map([item], timeout_s=timeout_s, batch_timeout_s=timeout_s, count_waiting=True)
            if result.status == "done":
                reply: dict[str, Any] = result.value
                if "refused" in reply:
                    notice.cancel()
                    raise StartError(reply["refused"], "cluster-refused")
                if "unreachable" not in reply:
                    notice.recovered()
                    return reply
                cause = reply["unreachable"]
            elif result.status == "raised":
                raise RuntimeError(f"the process that talks to Ray failed: {result.why}")
            else:
                cause = result.why
            if not waits or self.closed:
                break
            notice.failed(f"the Ray cluster: {cause}")
            time.sleep(max(0.0, min(RETRY_S, end - time.monotonic())))
        notice.cancel()
        raise WorkerError(f"{NO_CLUSTER} ({cause})", "no-cluster")

    def close(self) -> None:
        """End the process."""
        self.closed = True
        self.pool.close()
