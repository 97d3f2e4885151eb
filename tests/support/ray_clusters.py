"""Real Ray clusters for the tests: several nodes on this machine, each of which can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Who has started a cluster must be a process of its own: Ray fills it with threads, and ends it with the cluster.
KEEPER = """
import json, sys
import ray._common.usage.usage_lib as usage
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster

head = {"num_cpus": 0, "include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
if sys.argv[2] != "0":
    head["ray_client_server_port"] = int(sys.argv[2])
if sys.argv[3] != "0":
    head["gcs_server_port"] = int(sys.argv[3])
cluster = Cluster(initialize_head=True, head_node_args=head)

def processes(node):
    return [process.process.pid for kind in node.all_processes.values() for process in kind]

pids = {"head": processes(cluster.head_node)}
for number in range(int(sys.argv[1])):
    pids[str(number)] = processes(cluster.add_node(num_cpus=1, resources={f"node{number}": 1}))
print(json.dumps({"address": cluster.address, "pids": pids}), flush=True)
for line in sys.stdin:
    gcs = GcsClient(address=cluster.address)
    said = json.dumps({**usage.get_cluster_metadata(gcs), **json.loads(line)})
    gcs.internal_kv_put(b"CLUSTER_METADATA", said.encode(), overwrite=True, namespace=b"cluster")
    print("done", flush=True)
cluster.shutdown()
"""


class RayCluster:
    """A cluster whose head has no processors for tasks, and nodes with one each.

    Args:
        port: of the head; 0: any.
        token: that it wants; None: one of its own.

    Attributes:
        env: by which a process finds it.
        client_port: where the head listens for clients; 0: nowhere.
        pids: of what Ray has started for "head", "0", "1" …
    """

    def __init__(self, nodes: int, client_port: int = 0, port: int = 0, token: str | None = None) -> None:
        self.client_port = client_port
        self.stopped: list[int] = []
        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets have short names only
        self.env = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token or secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": self.folder,
            "RAY_gcs_rpc_server_reconnect_timeout_s": "3",
            # That a node is gone is noticed sooner than elsewhere, and still not of a machine that is only busy.
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "3000",
            "RAY_health_check_failure_threshold": "3",
            "RAY_health_check_initial_delay_ms": "1000",
        }
        self.keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(nodes), str(client_port), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **self.env},
        )
        assert self.keeper.stdout is not None
        told: dict[str, Any] = json.loads(self.keeper.stdout.readline())
        self.pids: dict[str, list[int]] = told["pids"]
        self.env["RAY_ADDRESS"] = told["address"]

    def says(self, **versions: str) -> None:
        """Has the cluster say that it was started by another Ray, or another Python, which clients go by."""
        assert self.keeper.stdin is not None and self.keeper.stdout is not None
        self.keeper.stdin.write(json.dumps(versions) + "\n")
        self.keeper.stdin.flush()
        assert self.keeper.stdout.readline() == "done\n"

    def kill(self, node: str, number: int = signal.SIGKILL) -> None:
        """All that runs there is gone at once; or stands still, and is gone when the cluster is closed."""
        pids = _with_descendants(self.pids[node])
        self.stopped += pids if number == signal.SIGSTOP else []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.keeper.communicate(timeout=300)
        self.keeper.kill()
        self.keeper.wait()
        for node in self.pids:
            self.kill(node)
        for pid in self.stopped:  # some of which are nobody's children by now
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def _with_descendants(pids: list[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            stat = Path(f"/proc/{int(entry)}/stat").read_text(encoding="utf-8", errors="replace")
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found = list(pids)
    for pid in found:
        found += children.get(pid, [])
    return found
