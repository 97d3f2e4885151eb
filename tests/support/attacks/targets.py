"""Targets for hostile programs (secrets, listening sockets), and a search for what they left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlvr.sandbox.directories import NAME

REPOSITORY = Path(__file__).resolve().parents[3]
# The keys of System V objects that the programs make begin so.
_KEYS = range(0x68780000, 0x68790000)
_SHARED_FOLDERS = sorted({tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"})


@dataclass(frozen=True)
class Targets:
    """What programs can attack.

    Attributes:
        locations: placeholders of paths, ports and processes, for programs.
        secrets: placeholders of secrets, for tests only.
        listeners: sockets that no program may reach.
        created_at: time of creation.
    """

    locations: dict[str, str]
    secrets: dict[str, str]
    listeners: dict[str, socket.socket]
    created_at: float

    def contacted(self) -> list[str]:
        """Return the listeners that a program has reached."""
        contacted = []
        for name, listener in self.listeners.items():
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                _ = listener.accept() if listener.type == socket.SOCK_STREAM else listener.recv(100)
                contacted.append(name)
        return contacted


@contextlib.contextmanager
def create_targets() -> Iterator[Targets]:
    """Put secrets into files, the environment and a neighbouring process, and open listening sockets."""
    # Not pytest's own folder, which only its user may enter. This one is readable, like a data set.
    public = Path(tempfile.mkdtemp(prefix="public-", dir="/tmp"))
    secret_values = {
        name.upper() + "_SECRET": f"canary-{name}-{secrets.token_hex(16)}" for name in ("env", "file", "home")
    }
    home = Path.home() / f".canary-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, public, ignore_errors=True)
        public.chmod(0o777)
        (public / "data").mkdir(mode=0o755)
        # A C string, so that a compiler that includes it makes it part of the program.
        (public / "data" / "canary.txt").write_text(f'"{secret_values["FILE_SECRET"]}"\n')
        stack.callback(home.unlink, missing_ok=True)
        home.write_text(secret_values["HOME_SECRET"] + "\n")
        home.chmod(0o600)
        os.environ["SUITE_CANARY"] = secret_values["ENV_SECRET"]
        stack.callback(os.environ.pop, "SUITE_CANARY", None)
        # /proc does not show changes of os.environ, so a neighbour of the same user gets it as its environment.
        neighbour = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
        stack.callback(neighbour.wait)
        stack.callback(neighbour.kill)
        listeners = {
            "tcp": socket.create_server(("127.0.0.1", 0)),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "unix": socket.socket(socket.AF_UNIX),
            "unix datagram": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
            "abstract": socket.socket(socket.AF_UNIX),
        }
        for listener in listeners.values():
            stack.callback(listener.close)
        abstract = f"canary-{secrets.token_hex(8)}"
        listeners["udp"].bind(("127.0.0.1", 0))
        listeners["unix"].bind(str(public / "door"))
        listeners["unix datagram"].bind(str(public / "letterbox"))
        listeners["abstract"].bind("\0" + abstract)
        for name in ("unix", "abstract"):
            listeners[name].listen()
        for name in ("door", "letterbox"):
            (public / name).chmod(0o777)
        locations = {
            "CANARY_FILE": str(public / "data" / "canary.txt"),
            "HOME_CANARY": str(home),
            "PUBLIC": str(public),
            "HOME": str(Path.home()),
            "REPOSITORY": str(REPOSITORY),
            "SITE_PACKAGES": sysconfig.get_paths()["purelib"],
            "USER_SITE": site.getusersitepackages(),
            "RUNNER_PID": str(os.getpid()),
            "NEIGHBOUR_PID": str(neighbour.pid),
            "PORT": str(listeners["tcp"].getsockname()[1]),
            "UDP_PORT": str(listeners["udp"].getsockname()[1]),
            "UNIX_PATH": str(public / "door"),
            "UNIX_DATAGRAM_PATH": str(public / "letterbox"),
            "ABSTRACT": abstract,
        }
        yield Targets(locations, secret_values, listeners, created_at=time.time())


def find_traces(targets: Targets) -> set[str]:
    """Find everything that hostile programs left on this machine; return one line for each."""
    return _files(targets) | _kernel_objects() | _processes()


def remove_traces(lines: set[str]) -> None:
    """Remove files and kernel objects, so that one failure does not cause others."""
    for line in lines:
        kind, _, path = line.partition(" ")
        if kind == "file":
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else Path(path).unlink(missing_ok=True)
        elif kind in ("shm", "sem", "msg"):
            number = int(path.split()[-1])
            getattr(ctypes.CDLL(None), f"{kind}ctl")(number, *((0, 0) if kind == "sem" else (0, None)))


def _files(targets: Targets) -> set[str]:
    paths = targets.locations
    folders = [*_SHARED_FOLDERS, paths["PUBLIC"], paths["HOME"], paths["REPOSITORY"], paths["SITE_PACKAGES"]]
    folders += [paths["USER_SITE"], "/etc/cron.d", os.getcwd()]
    traces = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                name = entry.name.lstrip(".")
                if name.startswith("hostile") or name == "core" or name.startswith("core."):
                    traces.add(f"file {entry.path}")
    # Search the folders that the judge made here. Older ones are skipped: they may hold a million files.
    for folder in _SHARED_FOLDERS:
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.name.startswith(NAME) or entry.stat(follow_symlinks=False).st_mtime >= targets.created_at - 1:
                    for path, folders, names in os.walk(entry.path):
                        traces |= {f"file {path}/{name}" for name in names + folders if name.startswith("hostile")}
    return traces


def _kernel_objects() -> set[str]:
    traces = set()
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
            traces |= {f"{kind} of System V, {row.split()[1]}" for row in rows if int(row.split()[0]) in _KEYS}
    with contextlib.suppress(OSError):
        traces |= {f"key {row}" for row in Path("/proc/keys").read_text().splitlines() if "hostile" in row}
    with contextlib.suppress(OSError):
        traces |= {
            f"socket {row.split()[-1]}" for row in Path("/proc/net/unix").read_text().splitlines() if "@hostile" in row
        }
    # Other tests mount small disks below /tmp meanwhile; hostile programs mount over /tmp itself.
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    traces |= {f"mount {row}" for row in mounts if not row.split()[1].startswith("/tmp/")}
    if ctypes.CDLL(None).mq_unlink(b"/hostile-queue") == 0:
        traces.add("message queue /hostile-queue")
    return traces


def _processes() -> set[str]:
    """Find processes by the name or the argument that hostile programs give them."""
    traces = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            if name.startswith("hostile") or b"\x0020.7183" in arguments:
                traces.add(f"process {pid} {name}")
    return traces


def descendants(pid: int) -> dict[int, int]:
    """Return the descendants of a process, each with its CPU time in clock ticks."""
    parents, ticks = {}, {}
    for child in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            parents[int(child)] = int(fields[1])
            ticks[int(child)] = int(fields[11]) + int(fields[12])
    below, servers = {pid}, set[int]()
    while more := {child for child, parent in parents.items() if parent in below} - below - servers:
        servers |= {child for child in more if _is_prefork_server(child)}
        below |= more - servers
    return {child: ticks[child] for child in below - {pid}}


def _is_prefork_server(process: int) -> bool:
    """Whether it forks what other tests launch (tests/support/prefork.py), which is busy whenever they are."""
    try:
        return b"support/prefork.py" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def busy_descendants(pid: int, seconds: float = 0.5) -> set[int]:
    """Return the descendants that use more than a tenth of a core: none, after the last verdict."""
    before = descendants(pid)
    time.sleep(seconds)
    limit = seconds * 0.1 * os.sysconf("SC_CLK_TCK")
    return {child for child, ticks in descendants(pid).items() if ticks - before.get(child, 0) > limit}
