"""The process that talks to Ray: it joins the cluster, and runs what ray_driver_client.py sends (ray_tasks.py)."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

from rlvr.scoring.backends.ray_cluster import Refused, Unreachable, join
from rlvr.scoring.backends.ray_node import describe_error


def prepare(init_payload: bytes) -> Callable[[bytes], dict[str, Any]]:
    """Return the function of this process's items, which come from ray_driver_client.py."""
    settings = pickle.loads(init_payload)
    os.environ.update({**settings["environment"], "RAY_USAGE_STATS_ENABLED": "0"})
    joined = cluster_may_be_gone = False

    def serve(item: bytes) -> dict[str, Any]:
        nonlocal joined, cluster_may_be_gone
        message = pickle.loads(item)
        if cluster_may_be_gone:
            os._exit(1)  # another cluster may be at the same address by now, which Ray would never notice
        try:
            _silence_ray()
            if not joined:
                join(settings["where"])
                joined = True
            # Ray reads its settings from the environment when it is imported: `join` has set them.
            from rlvr.scoring.backends import ray_tasks

            reply = (ray_tasks.handshake if message["action"] == "handshake" else ray_tasks.score)(message)
            outcomes = reply.get("outcomes", [])
            cluster_may_be_gone = bool(outcomes) and not any("done" in one for one in outcomes)
            return reply
        except Unreachable as error:
            return {"unreachable": str(error)}
        except Refused as error:
            return {"refused": str(error)}
        except Exception as error:  # of Ray, which has lost the cluster
            cluster_may_be_gone = joined
            return {"unreachable": describe_error(error)}

    return serve


def _silence_ray() -> None:
    """Discard what Ray prints: errors that matter are in replies."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(devnull, descriptor)
    os.close(devnull)
