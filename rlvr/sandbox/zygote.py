"""The judge's end of a zygote: starting it, having it run a program, reading what came of it.

See inside/protocol.py for how the two talk. The files in memory stay open here and are emptied after every run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rlvr.sandbox import directories, seccomp
from rlvr.sandbox.guest.protocol import (
    EXCHANGE,
    PROGRAM,
    REPLY,
    REQUEST,
    RUN,
    SCRIPT,
    SOURCE,
    STDERR,
    STDIN,
    STDOUT,
)

GUEST = Path(__file__).resolve().parent / "guest"
START_S = 60.0
STDERR_TAIL = 4096
# A program that is not stopped for being idle, because the kernel says that it waits for a processor, is stopped after
# so many times its wall time, come what may.
_LONGEST = 12
_SHORTEST_LOOK_S = 0.02
_COMPILER_LOOK_S = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED: makes a process number into that of its CPU-time clock
_ROOM_BYTES = 512 << 20  # address space beyond the memory limit: code, libraries, stacks that are reserved but not used
_FLAGS = ["-S", "-s", "-P", "-B", "-X", "utf8"]
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
}  # fmt: skip
_USERS = range(0x6B00_0000, 0x6B00_0000 + 4096)
_SMALL_USERS = range(60_000, 64_096)  # where a container maps only the first 65,536


class ZygoteError(Exception):
    """The zygote is at fault, or gone: nothing is known about the program."""


@dataclass(frozen=True)
class Confinement:
    """Which means a zygote uses; see rungs.py."""

    seccomp: bool
    landlock: bool
    chroot: bool
    user: bool
    small_users: bool = False


@dataclass(frozen=True)
class ZygoteSpec:
    """What a zygote is prepared for.

    Attributes:
        name: "python", "launch" or "compile".
        preload: modules that are imported before the door closes.
        site: a folder to import them from, besides the standard library.
        readable, writable: paths that compilers need; programs have none.
        launcher: the compiled launcher, for "launch".
    """

    name: str
    preload: tuple[str, ...] = ()
    site: str | None = None
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    root: str | None = None
    launcher: str | None = None


@dataclass(frozen=True)
class ResourceLimits:
    """What one run may use; see verdicts.Limits."""

    time_s: float
    idle_s: float
    memory_mb: float
    output_bytes: int
    processes: int


@dataclass(frozen=True)
class ExecutionResult:
    """What came of one run: raw facts, no verdict."""

    status: int
    stopped: str
    cpu_s: float
    wall_s: float
    memory_mb: float
    output: bytes
    too_much: bool
    stderr: bytes
    exchange: bytes

    @property
    def killed(self) -> bool:
        """Whether SIGKILL has ended it, and not from here: by itself, or by the kernel when memory ran out."""
        return not self.stopped and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL


class Zygote:
    """One zygote process; used by one thread at a time.

    Raises:
        ZygoteError: it does not start; with what it printed.
    """

    def __init__(self, kind: ZygoteSpec, confinement: Confinement) -> None:
        self.kind = kind
        self.confinement = confinement
        self.process = 0
        self.owner = os.getpid()
        self._lease: socket.socket | None = None
        self._files: list[int] = []
        self._readers: list[int] = []
        self.user = 0
        self._interrupted = False
        self._began = 0.0
        self._waits: dict[tuple[int, str], int] = {}  # by process and thread, in nanoseconds, as last seen
        self._form = SOURCE
        self.loaded: object = None  # what a launcher was given last, for its user to note
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._poller = select.poll()
        self._poller.register(self.control, select.POLLIN)
        folder: directories.Scratch | None = None
        try:
            with theirs:
                if confinement.user:
                    self.user, self._lease = lease_user(confinement.small_users)
                self._open_files()
                if confinement.chroot and kind.name != "compile":
                    folder = directories.Scratch("root")
                    folder.path.chmod(0o555)
                self._spawn(theirs, str(folder.path) if folder else kind.root)
            self.missing = self._greeting()
        except BaseException:
            self.close()
            raise
        finally:
            if folder is not None:
                folder.discard()  # a process may well have a root that is no more

    def _open_files(self) -> None:
        for name in ("stdin", "stdout", "stderr", "exchange", "program"):
            self._files.append(os.memfd_create(f"judge-{name}", os.MFD_CLOEXEC))
        # The program gets descriptions of its own that can't be written to: it could else leave its input, or its own
        # text, changed for the next run.
        for file in (STDIN, PROGRAM):
            self._readers.append(os.open(f"/proc/self/fd/{self._files[file]}", os.O_RDONLY | os.O_CLOEXEC))

    def _spawn(self, theirs: socket.socket, root: str | None) -> None:
        kind, confinement = self.kind, self.confinement
        filters = None
        if confinement.seccomp:
            broad = seccomp.compiler_filter() if kind.name == "compile" else seccomp.starter_filter()
            narrow = b"" if kind.name == "compile" else seccomp.program_filter()
            _fill(self._files[PROGRAM], broad + narrow)
            _fill(self._files[EXCHANGE], narrow)
            filters = [len(broad), len(narrow)]
        configuration = {
            "kind": kind.name, "flags": _FLAGS, "filters": filters, "own_pid": seccomp.OWN_PID,
            "landlock": confinement.landlock, "readable": kind.readable, "writable": kind.writable,
            "root": root, "user": self.user, "judge": os.getpid(), "preload": kind.preload,
            "site": kind.site, "nofile": 64,
        }  # fmt: skip
        given = [self._readers[0], self._files[STDOUT], self._files[STDERR], self._files[EXCHANGE], self._readers[1]]
        given.append(theirs.fileno())
        # A copy in memory, since a confined process may execute no file that has a path.
        launcher = in_memory(Path(kind.launcher)) if kind.launcher else None
        if launcher is not None:
            given.append(launcher)
        # Out of the way of the numbers that they are to have.
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for descriptor in given]
        try:
            self.process = os.posix_spawn(
                sys.executable,
                [sys.executable, *_FLAGS, str(GUEST / "zygote.py"), json.dumps(configuration)],
                _ENVIRONMENT,
                file_actions=[(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(high)],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM],
            )
        except OSError as error:
            raise ZygoteError(f"no process can be started ({error})") from error
        finally:
            for descriptor in high:
                os.close(descriptor)
            if launcher is not None:
                os.close(launcher)

    def _greeting(self) -> list[str]:
        self.control.settimeout(START_S)
        try:
            greeting = self.control.recv(1 << 16)
        except OSError as error:
            greeting = b""
            failure = str(error)
        else:
            failure = "it ended"
        self.control.settimeout(None)
        printed = os.pread(self._files[STDERR], 1 << 16, 0).decode(errors="replace").strip()
        if not greeting:
            raise ZygoteError(f"the process that starts programs does not start ({failure}): {printed[-1500:]}")
        for file in (STDOUT, STDERR, EXCHANGE, PROGRAM):
            _empty(self._files[file])
        return list(json.loads(greeting).get("missing", []))

    def load(self, program: bytes, form: int = SOURCE) -> None:
        """The source (or code, or the test) that the following runs are about."""
        self._form = form
        _fill(self._files[PROGRAM], program)

    def run(
        self,
        allowance: ResourceLimits,
        *,
        mode: int = SCRIPT,
        given: bytes = b"",
        exchange: bytes = b"",
        attached: int | None = None,
    ) -> ExecutionResult:
        """Has the loaded program run once.

        Args:
            given: its standard input.
            exchange: what else it is told: the arguments of a function call.
            attached: a descriptor to hand over with it: the line to a tester, or a compiled program.

        Raises:
            ZygoteError: the zygote ended or says nothing sensible.
        """
        self.begin(allowance, mode=mode, given=given, exchange=exchange, attached=attached)
        return self.finish(allowance)

    def begin(
        self,
        allowance: ResourceLimits,
        *,
        mode: int,
        given: bytes = b"",
        exchange: bytes = b"",
        attached: int | None = None,
    ) -> None:
        """The first half of `run`."""
        _fill(self._files[STDIN], given)
        os.lseek(self._readers[0], 0, os.SEEK_SET)
        if exchange or mode != SCRIPT:
            _fill(self._files[EXCHANGE], exchange)
        request = REQUEST.pack(
            RUN,
            mode,
            int(allowance.time_s * 1e9),
            (int(allowance.memory_mb) << 20) + _ROOM_BYTES,
            allowance.output_bytes + 1,
            allowance.processes + 1 if self.user else 0,
            self._form,
        )
        self._interrupted = False
        self._began = time.monotonic()
        self._waits.clear()
        try:
            if attached is None:
                self.control.send(request)
            else:
                socket.send_fds(self.control, [request], [attached])
        except OSError as error:
            raise ZygoteError(f"the process that starts programs is gone ({error})") from error

    def finish(self, allowance: ResourceLimits) -> ExecutionResult:
        """The second half of `run`."""
        stopped = self._await(allowance)
        try:
            message = self.control.recv(REPLY.size)
        except OSError as error:
            raise ZygoteError(f"the process that starts programs is gone ({error})") from error
        if len(message) != REPLY.size:
            raise ZygoteError("the process that starts programs ended")
        wall_s = time.monotonic() - self._began
        status, resident, cpu_ns = REPLY.unpack(message)
        if status == -1:
            raise ZygoteError("no process can be started for the program")
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            stopped = ""  # it ended by itself while its end was decided
        elif self._interrupted:
            stopped = stopped or "idle"
        most = allowance.output_bytes
        output, size = self._take(STDOUT, most)
        stderr, stderr_size = self._take(STDERR, most, tail=STDERR_TAIL)
        exchange, _ = self._take(EXCHANGE, most)
        # Flags of the descriptors, which a program may have changed, would tell the next one that it was there.
        for descriptor in (*self._files[STDOUT : EXCHANGE + 1], *self._readers):
            fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
        too_much = max(size, stderr_size) > most
        return ExecutionResult(
            status, stopped, cpu_ns / 1e9, wall_s, resident / 1024, output, too_much, stderr, exchange
        )

    def _await(self, allowance: ResourceLimits) -> str:
        """Until there is a reply; ends a program that has used up its time, and says which time that was."""
        poller = self._poller
        stopped = ""
        # How long a compiler's parts waited for a processor is gone with them: they are asked while they are there.
        often = _COMPILER_LOOK_S if self.kind.name == "compile" else math.inf
        patience = min(allowance.time_s, allowance.idle_s, often)
        longest = _LONGEST * (allowance.idle_s + allowance.time_s)
        while not poller.poll(patience * 1000 + 1):
            wall = time.monotonic() - self._began
            computed, waited, threads = self._times()
            idle = wall - computed - waited
            if self._interrupted:
                stopped = "idle"
            elif computed >= allowance.time_s:
                stopped = "cpu"
            elif idle >= allowance.idle_s or wall >= longest:
                stopped = "idle"
            if not stopped:
                soonest = (allowance.time_s - computed) / threads
                patience = min(max(soonest, _SHORTEST_LOOK_S), max(allowance.idle_s - idle, _SHORTEST_LOOK_S), often)
                continue
            if wall > longest + START_S:
                raise ZygoteError("the process that starts programs does not answer")
            self._end_children()
            patience = 0.2
        return stopped

    def interrupt(self) -> None:
        """From another thread: the program that runs is to end."""
        self._interrupted = True
        self._end_children()

    def _times(self) -> tuple[float, float, int]:
        """Seconds in which the program computed and in which it waited for a processor, and how many threads it has.

        Where the kernel does not say, it has done neither.
        """
        computed = 0
        threads = 0
        processes = self._children()
        for process in processes:  # a compiler's grow while they are looked at
            try:
                if self.kind.name == "compile":
                    processes += _children_by_list(process)
                for thread in os.listdir(f"/proc/{process}/task"):
                    threads += 1
                    with open(f"/proc/{process}/task/{thread}/schedstat") as file:
                        self._waits[process, thread] = int(file.read().split()[1])
                computed += time.clock_gettime_ns((~process << 3) | _PROCESS_CLOCK)
                with open(f"/proc/{process}/stat") as file:  # what it has waited for has computed as well
                    ended = file.read().rpartition(")")[2].split()[13:15]
                computed += sum(map(int, ended)) * (1_000_000_000 // _TICKS)
            except (OSError, ValueError, IndexError):
                continue
        waited = sum(self._waits.values())
        return computed / 1e9, waited / 1e9, min(max(threads, 1), os.cpu_count() or 1)

    def _children(self) -> list[int]:
        try:
            return _children_by_list(self.process)
        except FileNotFoundError:
            return _children_by_search(self.process)  # not every kernel is built with that file
        except (OSError, ValueError):
            return []

    def _end_children(self) -> None:
        for child in self._children():
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(child)
                try:
                    # Only if it is still there: its number might by now be another process's.
                    if child in self._children():
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                        if self.kind.name == "compile":
                            os.killpg(child, signal.SIGKILL)
                finally:
                    os.close(descriptor)

    def _take(self, file: int, most: int, tail: int | None = None) -> tuple[bytes, int]:
        descriptor = self._files[file]
        size = os.fstat(descriptor).st_size
        if size == 0:
            os.lseek(descriptor, 0, os.SEEK_SET)  # a program may have moved the position and written nothing
            return b"", 0
        start = max(0, size - tail) if tail is not None else 0
        content = os.pread(descriptor, min(size - start, most), start)
        _empty(descriptor)
        return content, size

    def alive(self) -> bool:
        return self.process > 0 and self.owner == os.getpid() and _waited(self.process, os.WNOHANG) is None

    def close(self) -> None:
        """Ends the zygote; its child goes with it."""
        self.control.close()
        if self.process > 0 and self.owner == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                self._end_children()
                os.kill(self.process, signal.SIGKILL)
            _waited(self.process, 0)
        self.process = 0
        for descriptor in (*self._files, *self._readers):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._files, self._readers = [], []
        if self._lease is not None:
            self._lease.close()


def _children_by_list(parent: int) -> list[int]:
    with open(f"/proc/{parent}/task/{parent}/children") as file:
        return [int(child) for child in file.read().split()]


def _children_by_search(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if name.isdigit():
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == parent:
                        found.append(int(name))
    return found


def _waited(process: int, options: int) -> int | None:
    """The status of a process that has ended, or None; one that somebody else waited for has ended too."""
    try:
        ended, status = os.waitpid(process, options)
    except ChildProcessError:
        return 0
    return status if ended else None


def _fill(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    at = 0
    while at < len(content):
        at += os.pwrite(descriptor, content[at:] if at else content, at)


def _empty(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)


def in_memory(path: Path) -> int:
    """A descriptor of a copy of the file in memory, open for reading only (else it could not be executed).

    Raises:
        OSError: it is no file that can be read.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        content = file.read()
    writable = os.memfd_create("judge-compiled", os.MFD_CLOEXEC)
    try:
        at = 0
        while at < len(content):
            at += os.write(writable, content[at:] if at else content)
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)


def lease_user(small: bool) -> tuple[int, socket.socket]:
    """A user number that no other judge on this machine uses at present, and what holds it.

    It is held by the name of a socket, which goes with its process and needs no file.
    """
    users = _SMALL_USERS if small else _USERS
    for user in users:
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            holder.bind(f"\0grpo-recipes-judge-user-{user}")
        except OSError:
            holder.close()
            continue
        return user, holder
    raise ZygoteError(f"all {len(users)} users for programs are taken")
