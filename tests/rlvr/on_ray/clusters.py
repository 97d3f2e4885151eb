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
from ray.cluster_utils import Cluster

head = {"num_cpus": 0, "include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
if sys.argv[2] != "0":
    head["ray_client_server_port"] = int(sys.argv[2])
cluster = Cluster(initialize_head=True, head_node_args=head)

def processes(node):
    return [process.process.pid for kind in node.all_processes.values() for process in kind]

pids = {"head": processes(cluster.head_node)}
for number in range(int(sys.argv[1])):
    pids[str(number)] = processes(cluster.add_node(num_cpus=1, resources={f"node{number}": 1}))
print(json.dumps({"address": cluster.address, "pids": pids}), flush=True)
sys.stdin.read()
cluster.shutdown()
"""


class RayCluster:
    """A cluster whose head has no processors for tasks, and nodes with one each.

    Attributes:
        env: by which a process finds it.
        client_port: where the head listens for clients; 0: nowhere.
        pids: of what Ray has started for "head", "0", "1" …
    """

    def __init__(self, nodes: int, client_port: int = 0) -> None:
        self.client_port = client_port
        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets have short names only
        self.env = {
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": self.folder, "RAY_gcs_rpc_server_reconnect_timeout_s": "3",
        }  # fmt: skip
        self.keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, str(nodes), str(client_port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **self.env},
        )  # fmt: skip
        assert self.keeper.stdout is not None
        told: dict[str, Any] = json.loads(self.keeper.stdout.readline())
        self.pids: dict[str, list[int]] = told["pids"]
        self.env["RAY_ADDRESS"] = told["address"]

    def kill(self, node: str) -> None:
        """As when a machine loses its power: all that runs there is gone at once."""
        for pid in _with_descendants(self.pids[node]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.keeper.communicate(timeout=30)
        self.keeper.kill()
        self.keeper.wait()
        for node in self.pids:
            self.kill(node)
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
