"""Start, stop and await the hosts of one attempt of a job, each in a container.

A container shares the interpreter and its libraries with this machine, read-only, in place of an image. It has its own
network, process ids, /tmp, /opt/ml and host name, and does not see this repository.

With a prefork server, only launchers and trainers are forked from a process that has imported the libraries, into the
container whose python3 was called (prefork_client.py, container_process.py). pip then runs once for the same
requirements, however many hosts install them. Process 1 and all other processes are unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("cluster.py")
GATEWAY = "10.77.0.1"  # address of AWS in containers; each attempt has its own network, so all use the same
PORT = 80
IMAGE = "/opt/image"  # folder of the prefork server's files in a container


@dataclass(frozen=True)
class Host:
    """A host to start.

    Attributes:
        name: algo-1, algo-2 …
        ml: the folder that it sees as /opt/ml.
        command: its process 1.
        environment: its whole environment.
        log: file of its output.
    """

    name: str
    ml: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path


@dataclass
class Attempt:
    """The running hosts of an attempt. `codes` fills as they end.

    Attributes:
        listener: an open port on the attempt's network, at `GATEWAY`, for AWS; None without AWS.
    """

    process: subprocess.Popen[str]
    codes: dict[str, int] = field(default_factory=dict)
    ended_at: dict[str, float] = field(default_factory=dict)
    listener: socket.socket | None = None
    _reader: threading.Thread | None = None

    def signal(self, verb: str, *names: str) -> None:
        """Send hosts a signal: `term` or `kill`."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.write("".join(f"{verb} {name}\n" for name in names))
            self.process.stdin.flush()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for all hosts to end; return whether they have."""
        assert self._reader is not None
        self._reader.join(seconds)
        return not self._reader.is_alive()

    def end(self) -> None:
        """End all hosts that still run."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.listener is not None:
            self.listener.close()

    def _read(self, started: threading.Event) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            verb, *words = line.split()
            if verb == "started":
                started.set()
            elif verb == "ended":
                self.codes[words[0]] = int(words[1])
                self.ended_at[words[0]] = time.monotonic()
        started.set()


def start(hosts: Sequence[Host], folder: Path, *, with_aws: bool = False, prefork: Path | None = None) -> Attempt:
    """Start containers.

    Args:
        folder: for the attempt's files.
        with_aws: whether to open a port for AWS at `GATEWAY`.
        prefork: the socket of tests/support/prefork.py; None to start every Python process normally.
    """
    image = _image(prefork, folder) if prefork is not None else []
    addresses = {host.name: f"10.77.0.{number + 11}" for number, host in enumerate(hosts)}
    names = "".join(f"{address} {name}\n" for name, address in addresses.items())
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}", encoding="ascii")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        specification = {
            "gateway": GATEWAY,
            "port": PORT,
            "hand_out": theirs.fileno() if with_aws else None,
            "hosts": [
                {
                    "name": host.name,
                    "address": addresses[host.name],
                    "hidden": _hidden(),
                    "kept": _kept(),
                    "bound": [(str(host.ml), "/opt/ml"), (str(folder / "hosts"), "/etc/hosts"), *image],
                    "command": list(host.command),
                    "environment": dict(host.environment),
                    "log": str(host.log),
                }
                for host in hosts
            ],
        }
        file = folder / "cluster.json"
        file.write_text(json.dumps(specification), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(PROGRAM), str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C ends the tests, which end this
        )
        attempt = Attempt(process)
        started = threading.Event()
        attempt._reader = threading.Thread(target=attempt._read, args=[started], daemon=True)
        attempt._reader.start()
        if with_aws:
            _, descriptors, *_ = socket.recv_fds(ours, 1, 1)
            attempt.listener = socket.socket(fileno=descriptors[0])
        started.wait()
    return attempt


def environment_of_the_image() -> dict[str, str]:
    """The variables that an image sets."""
    machine = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "PATH": f"{IMAGE}/bin:{Path(sys.executable).parent}:{machine}",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }


def _image(prefork: Path, folder: Path) -> list[tuple[str, str]]:
    """Files of the prefork server and their paths in the container: a python3 that forks from it, and pip's results."""
    python = folder / "python3"
    container_process = PROGRAM.with_name("container_process.py")
    python.write_text(
        _PYTHON.format(image=IMAGE, python=sys.executable, container_process=container_process), encoding="utf-8"
    )
    python.chmod(0o755)
    prefork_client = Path(__file__).with_name("prefork_client.py")
    installed = prefork.with_name("installed")
    installed.mkdir(exist_ok=True)
    places = {python: "bin/python3", prefork_client: "prefork_client.py", prefork: "prefork", installed: "installed"}
    return [(str(source), f"{IMAGE}/{name}") for source, name in places.items()]


_PYTHON = """#!/bin/bash
case "$*" in
"-m rlvr.sagemaker.container.rank "* | "-u -m rlvr.sagemaker.container.rank "* | "-m accelerate.commands.launch "*)
    exec {python} -S -E {image}/prefork_client.py {container_process} "$@" ;;
"-m pip install "*)
    digest=$(cat requirements.txt *constraints.txt | sha256sum)
    note={image}/installed/${{digest%% *}}
    exec 9> "$note.lock"
    flock 9
    [[ -e $note ]] || {{ {python} "$@" && touch "$note"; }} ;;
*) exec {python} "$@" ;;
esac
"""


@functools.cache
def why_not() -> str | None:
    """Why this machine can't start containers; None if it can."""
    if sys.platform != "linux":
        return "containers are made of Linux namespaces"
    if os.geteuid() != 0:
        return "making namespaces needs root"
    if shutil.which("ip") is None:
        return "there is no `ip` command (iproute2)"
    try:
        import tempfile

        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "ml").mkdir()
            host = Host("algo-1", folder / "ml", ["/bin/true"], environment_of_the_image(), folder / "log")
            attempt = start([host], folder)
            ended = attempt.wait(20)
            attempt.end()
            if ended and attempt.codes == {"algo-1": 0}:
                return None
            log = (folder / "log").read_text() if (folder / "log").is_file() else ""
            return f"a container can't be started here: {log.strip() or 'no namespaces'}"
    except OSError as error:
        return f"a container can't be started here: {error}"


def _hidden() -> list[str]:
    """Folders that a container does not see: this repository, and those that it has for itself."""
    roots = ["/tmp", "/opt", "/dev/shm"]
    if not any(REPOSITORY.is_relative_to(root) for root in roots):
        roots.append(str(REPOSITORY))
    return roots


@functools.cache
def _kept() -> list[str]:
    """Parts of the hidden folders that replace the image: the interpreter, its libraries, and the machine's /opt."""
    needed = {Path(sys.prefix), Path(sys.base_prefix), *(Path(entry) for entry in sys.path if "-packages" in entry)}
    needed |= {entry for entry in Path("/opt").iterdir() if entry.name != "ml"}
    hidden = [Path(folder) for folder in _hidden()]
    visible = {path for path in needed if path.exists() and any(path.is_relative_to(folder) for folder in hidden)}
    return sorted(
        str(path) for path in visible if not any(path != other and path.is_relative_to(other) for other in visible)
    )
