"""One Ray cluster of all hosts of a job, for rewards that a recipe has run on Ray (`where: ray`).

    with RayNode(member, token) as node, Roll(node) as roll:
        roll.missing(["algo-1", "algo-2"])      # who has not joined yet, as the cluster itself says

The head is on the host that leads the training. A node that ends is started again for as long as the training goes on,
so that one that was lost comes back. A node gets nothing of the job's environment but what KEPT names: no token of the
hub, no credentials. Calls between nodes want a token, which hosts are handed over their own connection (presence.py),
and what Ray prints stays in a file of its host, but for the last lines of a node that has failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

HEAD_PORT = 6379
NODE_PORT = 6380
# All of them fixed, for who has to name them in a security group (docs/sagemaker.md).
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
OBJECT_STORE_BYTES = 2**30  # for completions and tests on their way; more than that goes to the disk
TOKEN = Path("/tmp/grpo-ray-token")
LOG = Path("/tmp/grpo-ray.log")
# Of the job's environment, what a node and so the rewards on it see. Not a list of what is secret: that has no end.
KEPT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_OFFLINE",
    "HF_DATASETS_OFFLINE", "GRPO_RECIPES_CACHE", "GRPO_JUDGE_SLOTS",
)  # fmt: skip
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0
_TRIES = 8  # of a node that has never been up: some two minutes
_SHOWN_LINES, _READ_LINES = 5, 200
_PATIENCE_S = 10.0  # for a node to end before it is killed


@dataclass(frozen=True)
class Member:
    """A host as a part of the cluster.

    Attributes:
        host: its name, which is its node's name as well.
        address: where the others reach it.
        head: address of the host that has the head.
        cpus: how many of its CPUs are for rewards.
    """

    host: str
    address: str
    head: str
    cpus: int

    @property
    def leads(self) -> bool:
        return self.address == self.head

    def command(self) -> list[str]:
        """What starts its node, and ends when the node does."""
        place = ["--head", "--port", str(HEAD_PORT)] if self.leads else ["--address", f"{self.head}:{HEAD_PORT}"]
        dashboard = ["--dashboard-host", "127.0.0.1", "--dashboard-port", str(DASHBOARD_PORT)] if self.leads else []
        return [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *place, *dashboard),
            *("--node-ip-address", self.address, "--node-name", self.host),
            *("--num-cpus", str(self.cpus), "--num-gpus", "0", "--object-store-memory", str(OBJECT_STORE_BYTES)),
            *(word for name, port in PORTS.items() for word in (f"--{name}-port", str(port))),
            *("--include-log-monitor", "false", "--disable-usage-stats", "--log-color", "false"),
        ]


def member_of(environment: Mapping[str, str], host: str) -> Member:
    """This host's part, by what topology.py says. Those that judge lend their CPUs; without them, those that train."""
    main = environment["GRPO_MAIN_HOST"]
    lends = environment.get("GRPO_ROLE") == "judge" or not environment.get("GRPO_JUDGE_HOSTS")
    head = socket.gethostbyname(main)
    address = head
    if host != main:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
            towards.connect((head, HEAD_PORT))  # sends nothing, but says which of our addresses leads there
            address = towards.getsockname()[0]
    return Member(host, address, head, len(os.sched_getaffinity(0)) if lends else 0)


def settings(token: Path = TOKEN) -> dict[str, str]:
    """What Ray has to be told in the environment of everything that uses it."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}


def bare(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node. The project is found in the folder that the job runs in, as it is by training."""
    kept = {name: given[name] for name in KEPT if name in given}
    return {**kept, "PYTHONPATH": os.getcwd(), "PYTHONUNBUFFERED": "1", **settings()}


class RayNode:
    """This host's node, from when it is entered until it is left.

    Args:
        word: the cluster's token.

    Attributes:
        failed: set when it could never be started, and isn't tried any more.
    """

    def __init__(self, member: Member, word: str, *, log: Path = LOG) -> None:
        self.member = member
        self.failed = threading.Event()
        self._word = word
        self._log = log
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._was_up = False
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> RayNode:
        TOKEN.unlink(missing_ok=True)
        with open(os.open(TOKEN, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(self._word)
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed.set()
            if self._process is not None:
                _end(self._process)
        self._keeper.join(_PATIENCE_S)
        TOKEN.unlink(missing_ok=True)

    @property
    def of_a_driver(self) -> dict[str, str]:
        """What a process of this host needs in its environment to use the cluster."""
        return {"RAY_ADDRESS": f"{self.member.head}:{HEAD_PORT}", **settings()}

    @property
    def fault(self) -> str:
        """What Ray has printed of an error on this host, in one line."""
        said = self._last_lines(_READ_LINES)
        errors = [line for line in said if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return (errors or said or ["it has printed nothing"])[-1]

    def _last_lines(self, count: int) -> list[str]:
        said = self._log.read_text(encoding="utf-8", errors="replace") if self._log.is_file() else ""
        return [line.strip() for line in said.splitlines() if line.strip()][-count:]

    def _keep(self) -> None:
        pause, tries = _FIRST_PAUSE_S, 0
        while self._until_the_head_is_there():
            with self._lock:
                if self._closed.is_set():
                    return
                process = self._process = self._start()
            code = self._wait(process)
            if self._closed.is_set():
                return
            print(f"The Ray node of {self.member.host} ended with exit code {code}:", flush=True)
            print("\n".join(self._last_lines(_SHOWN_LINES)), flush=True)
            _end(process)  # what it has left behind holds its ports
            tries += 1
            if tries >= _TRIES and not self._was_up:
                self.failed.set()
                return
            self._closed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _until_the_head_is_there(self) -> bool:
        """Waits for the head's port; whether to go on, and not to end."""
        while not self._closed.is_set():
            if self.member.leads or reaches(self.member.head, HEAD_PORT):
                return True
            self._closed.wait(_FIRST_PAUSE_S)
        return False

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Waits for the node's end, and sees whether it ever was up; its exit code."""
        while not self._was_up:
            try:
                return process.wait(_FIRST_PAUSE_S)
            except subprocess.TimeoutExpired:
                self._was_up = reaches(self.member.address, NODE_PORT)
        return process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                self.member.command(),
                env=bare(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


class ClusterMembership:
    """Who is in the cluster, looked up every second by a process of its own, since Ray takes a whole process.

    Args:
        node: of this host, through which it is asked.
    """

    def __init__(self, node: RayNode) -> None:
        self._node = node
        self._process: subprocess.Popen[str] | None = None
        self._here: set[str] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> ClusterMembership:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def missing(self, hosts: Iterable[str]) -> list[str]:
        """Those of the hosts that are not in the cluster."""
        member = self._node.member
        if (self._process is None or self._process.poll() is not None) and reaches(member.address, NODE_PORT):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rlvr.sagemaker.container.ray_cluster", f"{member.head}:{HEAD_PORT}"],
                env=bare(os.environ),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            threading.Thread(target=self._read, args=[self._process], daemon=True).start()
        with self._lock:
            return [host for host in hosts if host not in self._here]

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("["):
                with self._lock:
                    self._here = set(json.loads(line))


def reaches(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a node with all of its processes."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(words: Sequence[str]) -> int:
    """Prints the names of the nodes that are there, each time that they have changed."""
    import ray

    (address,) = words
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    said: list[str] = []
    while True:
        here = sorted(node["NodeName"] for node in ray.nodes() if node["Alive"])
        if here != said:
            print(json.dumps(here), flush=True)
            said = here
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
