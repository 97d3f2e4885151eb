"""Where the hostile programs are let loose: secrets to steal, doors to knock at, and a look around afterwards."""

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
class Grounds:
    """What programs may be told (`places`), what only tests may say (`hidden`), the doors, and when it was planted."""

    places: dict[str, str]
    hidden: dict[str, str]
    doors: dict[str, socket.socket]
    since: float

    def visitors(self) -> list[str]:
        """The doors at which somebody has been."""
        found = []
        for name, door in self.doors.items():
            door.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                _ = door.accept() if door.type == socket.SOCK_STREAM else door.recv(100)
                found.append(name)
        return found


@contextlib.contextmanager
def planted() -> Iterator[Grounds]:
    """Secrets in files, in the environment and in a neighbouring process; listening sockets; all gone at the end."""
    # Not pytest's own folder, which only its user may enter: this one is like a data set's.
    public = Path(tempfile.mkdtemp(prefix="public-", dir="/tmp"))
    hidden = {name.upper() + "_SECRET": f"canary-{name}-{secrets.token_hex(16)}" for name in ("env", "file", "home")}
    home = Path.home() / f".canary-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, public, ignore_errors=True)
        public.chmod(0o777)
        (public / "data").mkdir(mode=0o755)
        # A C string, so that a compiler that can be made to read it makes it part of the program.
        (public / "data" / "canary.txt").write_text(f'"{hidden["FILE_SECRET"]}"\n')
        stack.callback(home.unlink, missing_ok=True)
        home.write_text(hidden["HOME_SECRET"] + "\n")
        home.chmod(0o600)
        os.environ["SUITE_CANARY"] = hidden["ENV_SECRET"]
        stack.callback(os.environ.pop, "SUITE_CANARY", None)
        # os.environ is not what /proc shows of this process; that of a neighbour of the same user is.
        neighbour = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
        stack.callback(neighbour.wait)
        stack.callback(neighbour.kill)
        doors = {
            "tcp": socket.create_server(("127.0.0.1", 0)),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "unix": socket.socket(socket.AF_UNIX),
            "unix datagram": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
            "abstract": socket.socket(socket.AF_UNIX),
        }
        for door in doors.values():
            stack.callback(door.close)
        abstract = f"canary-{secrets.token_hex(8)}"
        doors["udp"].bind(("127.0.0.1", 0))
        doors["unix"].bind(str(public / "door"))
        doors["unix datagram"].bind(str(public / "letterbox"))
        doors["abstract"].bind("\0" + abstract)
        for name in ("unix", "abstract"):
            doors[name].listen()
        for name in ("door", "letterbox"):
            (public / name).chmod(0o777)
        places = {
            "CANARY_FILE": str(public / "data" / "canary.txt"),
            "HOME_CANARY": str(home),
            "PUBLIC": str(public),
            "HOME": str(Path.home()),
            "REPOSITORY": str(REPOSITORY),
            "SITE_PACKAGES": sysconfig.get_paths()["purelib"],
            "USER_SITE": site.getusersitepackages(),
            "RUNNER_PID": str(os.getpid()),
            "NEIGHBOUR_PID": str(neighbour.pid),
            "PORT": str(doors["tcp"].getsockname()[1]),
            "UDP_PORT": str(doors["udp"].getsockname()[1]),
            "UNIX_PATH": str(public / "door"),
            "UNIX_DATAGRAM_PATH": str(public / "letterbox"),
            "ABSTRACT": abstract,
        }
        yield Grounds(places, hidden, doors, since=time.time())


def traces(grounds: Grounds) -> set[str]:
    """Everything that programs of the suite have left on this machine, each as a line that says what and where."""
    return _files(grounds) | _kernel_objects() | _processes()


def remove(lines: set[str]) -> None:
    """Files and objects that were left go, so that one failure does not become two."""
    for line in lines:
        kind, _, path = line.partition(" ")
        if kind == "file":
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else Path(path).unlink(missing_ok=True)
        elif kind in ("shm", "sem", "msg"):
            number = int(path.split()[-1])
            getattr(ctypes.CDLL(None), f"{kind}ctl")(number, *((0, 0) if kind == "sem" else (0, None)))


def _files(grounds: Grounds) -> set[str]:
    places = grounds.places
    folders = [*_SHARED_FOLDERS, places["PUBLIC"], places["HOME"], places["REPOSITORY"], places["SITE_PACKAGES"]]
    folders += [places["USER_SITE"], "/etc/cron.d", os.getcwd()]
    found = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                name = entry.name.lstrip(".")
                if name.startswith("hostile") or name == "core" or name.startswith("core."):
                    found.add(f"file {entry.path}")
    # What the judge itself makes in these folders may not hold a program's files either, once it is done. What was in
    # them before is left alone: it may be a million files.
    for folder in _SHARED_FOLDERS:
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.name.startswith(NAME) or entry.stat(follow_symlinks=False).st_mtime >= grounds.since - 1:
                    for path, folders, names in os.walk(entry.path):
                        found |= {f"file {path}/{name}" for name in names + folders if name.startswith("hostile")}
    return found


def _kernel_objects() -> set[str]:
    found = set()
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
            found |= {f"{kind} of System V, {row.split()[1]}" for row in rows if int(row.split()[0]) in _KEYS}
    with contextlib.suppress(OSError):
        found |= {f"key {row}" for row in Path("/proc/keys").read_text().splitlines() if "hostile" in row}
    with contextlib.suppress(OSError):
        found |= {
            f"socket {row.split()[-1]}" for row in Path("/proc/net/unix").read_text().splitlines() if "@hostile" in row
        }
    found |= {f"mount {row}" for row in Path("/proc/self/mounts").read_text().splitlines()}
    if ctypes.CDLL(None).mq_unlink(b"/hostile-queue") == 0:
        found.add("message queue /hostile-queue")
    return found


def _processes() -> set[str]:
    """Processes that bear the name which the programs give themselves, or the odd argument of those they start."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if name.startswith("hostile") or b"\x0020.7183" in words:
                found.add(f"process {pid} {name}")
    return found


def descendants(pid: int) -> dict[int, int]:
    """The processes below this one, each with the CPU time it has used, in clock ticks."""
    parents, ticks = {}, {}
    for child in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            parents[int(child)] = int(words[1])
            ticks[int(child)] = int(words[11]) + int(words[12])
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
    """Processes below this one that use more than a tenth of a core: after the last verdict there should be none."""
    before = descendants(pid)
    time.sleep(seconds)
    limit = seconds * 0.1 * os.sysconf("SC_CLK_TCK")
    return {child for child, ticks in descendants(pid).items() if ticks - before.get(child, 0) > limit}
