"""Run one Ray cluster of all hosts of a job, for rewards with `where: ray`.

    with RayNode(find_member(os.environ, "algo-1"), token) as node:
        …      # is_reachable(host, NODE_PORT) once a host has joined

The head is on the leading host. A node that ends is restarted while the training lasts. A node gets only the variables
of NODE_VARIABLES from the job's environment: no hub token, no credentials. Calls between nodes need a token, which the
hosts get over their own connection (leader_watch.py). Ray's output stays in a file of its host, except for the last
lines of a node that has failed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HEAD_PORT = 6379
NODE_PORT = 6380
# All ports are fixed, so that a security group can name them (docs/sagemaker.md).
PORTS = {
    "node-manager": NODE_PORT,
    "object-manager": 6381,
    "dashboard-agent-listen": 6382,
    "dashboard-agent-grpc": 6383,
    "runtime-env-agent": 6384,
    "metrics-export": 6385,
    "min-worker": 10002,
    "max-worker": 10999,
}
DASHBOARD_PORT = 8265
OBJECT_STORE_BYTES = 2**30  # for completions and tests in transit; more goes to the disk
TOKEN = Path("/tmp/grpo-ray-token")
LOG = Path("/tmp/grpo-ray.log")
# The variables that a node, and so the rewards on it, gets from the job's environment. An allowlist, because a list of
# secrets is never complete.
NODE_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "HF_DATASETS_OFFLINE",
    "GRPO_RECIPES_CACHE",
    "GRPO_JUDGE_SLOTS",
    "RAY_PROMETHEUS_HOST",
    "RAY_GRAFANA_HOST",
    "RAY_GRAFANA_IFRAME_HOST",
    "RAY_PROMETHEUS_NAME",
    "RAY_GRAFANA_ORG_ID",
)
_POLL_S = 1.0
_MIN_BACKOFF_S, _MAX_BACKOFF_S = 1.0, 15.0
_MAX_STARTS = 8  # of a node that was never up: about two minutes
_SHOWN_LINES, _READ_LINES = 5, 200
_SHUTDOWN_TIMEOUT_S = 10.0  # then a node is killed


@dataclass(frozen=True)
class RayMember:
    """A host of the cluster: its name, its address for the others, the head's address, and its CPUs for rewards."""

    host: str
    address: str
    head: str
    cpus: int

    @property
    def leads(self) -> bool:
        return self.address == self.head

    def command(self) -> list[str]:
        """The command that starts the node and ends with it."""
        role = ["--head", "--port", str(HEAD_PORT)] if self.leads else ["--address", f"{self.head}:{HEAD_PORT}"]
        dashboard = ["--dashboard-host", "127.0.0.1", "--dashboard-port", str(DASHBOARD_PORT)] if self.leads else []
        return [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *role, *dashboard),
            *("--node-ip-address", self.address, "--node-name", self.host),
            *("--num-cpus", str(self.cpus), "--num-gpus", "0", "--object-store-memory", str(OBJECT_STORE_BYTES)),
            *(word for name, port in PORTS.items() for word in (f"--{name}-port", str(port))),
            *("--include-log-monitor", "false", "--disable-usage-stats", "--log-color", "false"),
        ]


def find_member(environment: Mapping[str, str], host: str) -> RayMember:
    """This host's membership, from topology.py's variables. Rewards use the judge hosts' CPUs, else the trainers'."""
    main = environment["GRPO_MAIN_HOST"]
    lends = environment.get("GRPO_ROLE") == "judge" or not environment.get("GRPO_JUDGE_HOSTS")
    head = socket.gethostbyname(main)
    address = head
    if host != main:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((head, HEAD_PORT))  # sends nothing, but selects the local address of this route
            address = probe.getsockname()[0]
    return RayMember(host, address, head, len(os.sched_getaffinity(0)) if lends else 0)


def ray_environment(token: Path = TOKEN) -> dict[str, str]:
    """The variables of every process that uses Ray."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}


def node_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node. Like training, it finds the project in the working folder."""
    allowed = {name: environment[name] for name in NODE_VARIABLES if name in environment}
    return {**allowed, "PYTHONPATH": os.getcwd(), "PYTHONUNBUFFERED": "1", **ray_environment()}


class RayNode:
    """This host's Ray node, running while the context is open.

    Args:
        token: of the cluster.

    Attributes:
        failed: set when the node never started and is not tried again.
    """

    def __init__(self, member: RayMember, token: str, *, log: Path = LOG) -> None:
        self.member = member
        self.failed = threading.Event()
        self._token = token
        self._log = log
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._was_up = False
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    def __enter__(self) -> RayNode:
        TOKEN.unlink(missing_ok=True)
        with open(os.open(TOKEN, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(self._token)
        self._supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed.set()
            if self._process is not None:
                _end(self._process)
        self._supervisor.join(_SHUTDOWN_TIMEOUT_S)
        TOKEN.unlink(missing_ok=True)

    @property
    def driver_environment(self) -> dict[str, str]:
        """The variables of a process of this host that uses the cluster."""
        return {"RAY_ADDRESS": f"{self.member.head}:{HEAD_PORT}", **ray_environment()}

    @property
    def error_line(self) -> str:
        """The last error that Ray printed on this host, in one line."""
        lines = self._last_lines(_READ_LINES)
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return (errors or lines or ["it printed nothing"])[-1]

    def _last_lines(self, count: int) -> list[str]:
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.is_file() else ""
        return [line.strip() for line in text.splitlines() if line.strip()][-count:]

    def _supervise(self) -> None:
        """Start the node, and restart it until the context closes."""
        backoff, starts = _MIN_BACKOFF_S, 0
        while self._wait_for_head():
            with self._lock:
                if self._closed.is_set():
                    return
                process = self._process = self._start()
            code = self._wait(process)
            if self._closed.is_set():
                return
            print(f"The Ray node of {self.member.host} ended with exit code {code}:", flush=True)
            print("\n".join(self._last_lines(_SHOWN_LINES)), flush=True)
            _end(process)  # its child processes hold the ports
            starts += 1
            if starts >= _MAX_STARTS and not self._was_up:
                self.failed.set()
                return
            self._closed.wait(backoff)
            backoff = min(2 * backoff, _MAX_BACKOFF_S)

    def _wait_for_head(self) -> bool:
        """Wait for the head's port; return False if the context closed first."""
        while not self._closed.is_set():
            if self.member.leads or is_reachable(self.member.head, HEAD_PORT):
                return True
            self._closed.wait(_POLL_S)
        return False

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the node's exit code, and note whether it was ever up."""
        while not self._was_up:
            try:
                return process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                self._was_up = is_reachable(self.member.address, NODE_PORT)
        return process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self.member.command(),
                env=node_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def is_reachable(address: str, port: int) -> bool:
    """Whether a port accepts connections."""
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a node and all of its child processes."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_SHUTDOWN_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
