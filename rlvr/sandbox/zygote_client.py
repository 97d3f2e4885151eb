"""Start a zygote process and run programs in it: the judge's side of guest/protocol.py.

A zygote confines itself once and forks one child per run. The memory files for input and output stay open on this side
and are emptied after every run.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import math
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.sandbox import directories, python_modules, seccomp
from rlvr.sandbox.guest import protocol
from rlvr.sandbox.guest.protocol import EXCHANGE, PROGRAM, STDERR, STDIN, STDOUT
from rlvr.sandbox.limits import Limits
from rlvr.sandbox.memory_files import clear, executable_copy, replace_content, take_content

GUEST = Path(__file__).resolve().parent / "guest"
START_TIMEOUT_S = 60.0
STDERR_TAIL = 4096
_SPARE_MB = 512  # of address space beyond the memory limit: code, libraries, reserved but unused arrays and stacks
_FLAGS = ["-S", "-s", "-P", "-B", "-X", "utf8"]
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


USERS = range(0x6B00_0000, 0x6B00_0000 + 4096)
SMALL_USERS = range(60_000, 64_096)  # for containers that map only the first 65,536 users


@functools.cache
def _host_paths() -> re.Pattern[bytes]:
    """Return a pattern for what an output says about this machine: frames of its files, and their folders.

    The first line may begin in the middle of a frame.
    """
    folders = {
        os.path.dirname(os.__file__),
        str(GUEST),
        *filter(None, map(python_modules.site, python_modules.PACKAGES)),
    }
    host = b"(?:" + b"|".join(re.escape(os.fsencode(f"{folder}/")) for folder in sorted(folders, reverse=True)) + b")"
    frame = rb'(?:\A[^"\n]*|^[ |+-]*File "' + host + rb'[^"\n]*)", line \d+.*\n([ |+-]*\[Previous line repeated.*\n)?'
    return re.compile(frame + b"|" + host, re.MULTILINE)


def without_host_paths(output: bytes) -> bytes:
    """An output from its begin on, without what Python says in it about this machine."""
    return _host_paths().sub(b"", b"\n" + output)[1:]  # after a line break, no frame is cut


class ZygoteError(Exception):
    """The zygote failed or is gone. Nothing is known about the program.

    Attributes:
        kind: "not-started", "zygote-ended" (during a run), or "work-folder".
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class ExecutionResult:
    """Facts about one execution, no verdict."""

    status: int  # as of os.waitpid
    stopped: str  # "memory", "cpu" or "idle" if the watchdog killed it for exceeding that limit, else empty
    cpu_s: float
    wall_s: float
    memory_mb: float  # largest resident memory
    output: bytes  # cut at the limit
    output_exceeded: bool  # whether standard output or standard error was larger than the limit
    stderr: bytes  # its end
    exchange: bytes  # what the execution wrote back: a note of one byte, and for calls the encoded result

    @property
    def signal(self) -> int | None:
        """The signal that ended it, or None."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it without the watchdog: sent by itself, or by the kernel when memory ran out."""
        return not self.stopped and self.signal == signal.SIGKILL


@dataclass(frozen=True)
class Confinement:
    """The mechanisms that a zygote uses; see capabilities.py."""

    seccomp: bool
    landlock: bool
    chroot: bool
    user: bool
    small_users: bool = False  # whether the container maps only user numbers below 65,536


@dataclass(frozen=True)
class ZygoteSpec:
    """What a zygote is prepared for."""

    kind: str  # "python", "launch" (compiled programs) or "compile" (compilers)
    preload: tuple[str, ...] = ()  # modules to import before the confinement, since programs can open no file
    site: str | None = None  # folder to import them from, besides the standard library
    readable: tuple[str, ...] = ()  # paths that compilers need. Programs have none
    writable: tuple[str, ...] = ()
    root: str | None = None  # folder to use as `/`, for compilers without Landlock
    launcher: str | None = None  # path of the compiled launcher, for "launch"


class Zygote:
    """One zygote process and its watchdog. Use it from one thread at a time.

    Raises:
        ZygoteError: it does not start; the message quotes what it printed.
    """

    def __init__(self, spec: ZygoteSpec, confinement: Confinement) -> None:
        self.spec = spec
        self.confinement = confinement
        self.process = self._watchdog = 0
        self.owner = os.getpid()
        self.user = 0
        self.loaded: object = None  # for the caller: the compiled program that the launcher holds
        self._user_lease: socket.socket | None = None
        self._files: list[int] = []
        self._read_only: list[int] = []
        self._limits = Limits()
        self._program_format = protocol.SOURCE
        self.control, guest_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._poller = select.poll()
        self._poller.register(self.control, select.POLLIN)
        empty_root: directories.Scratch | None = None
        try:
            with guest_end:
                if confinement.user:
                    self.user, self._user_lease = lease_user(confinement.small_users)
                self._open_files()
                if confinement.chroot and spec.kind != "compile":
                    empty_root = directories.Scratch("root")
                    empty_root.path.chmod(0o555)
                self._spawn(guest_end, str(empty_root.path) if empty_root else spec.root)
            self._await_ready()
        except BaseException:
            self.close()
            raise
        finally:
            if empty_root is not None:
                empty_root.discard()  # a process keeps a root that has been removed

    def _open_files(self) -> None:
        for name in ("stdin", "stdout", "stderr", "exchange", "program"):
            self._files.append(os.memfd_create(f"judge-{name}", os.MFD_CLOEXEC))
        # The guest gets read-only descriptors of these two. Otherwise a program could change its input or its own text
        # for the next run.
        for file in (STDIN, PROGRAM):
            self._read_only.append(os.open(f"/proc/self/fd/{self._files[file]}", os.O_RDONLY | os.O_CLOEXEC))

    def _spawn(self, guest_end: socket.socket, root: str | None) -> None:
        spec, confinement = self.spec, self.confinement
        filter_sizes = None
        if confinement.seccomp:
            broad = seccomp.compiler_filter() if spec.kind == "compile" else seccomp.zygote_filter()
            narrow = b"" if spec.kind == "compile" else seccomp.program_filter()
            replace_content(self._files[PROGRAM], broad + narrow)
            replace_content(self._files[EXCHANGE], narrow)
            filter_sizes = [len(broad), len(narrow)]
        configuration = {
            "kind": spec.kind,
            "flags": _FLAGS,
            "filters": filter_sizes,
            "own_pid": seccomp.OWN_PID,
            "landlock": confinement.landlock,
            "readable": spec.readable,
            "writable": spec.writable,
            "root": root,
            "user": self.user,
            "judge": os.getpid(),
            "preload": spec.preload,
            "site": spec.site,
            "nofile": 64,
        }
        stdin, program = self._read_only
        zygote_end, watchdog_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors = [stdin, *self._files[STDOUT:PROGRAM], program, guest_end.fileno(), zygote_end.fileno()]
        # A copy in memory, since a confined process can execute no file that has a path.
        launcher = executable_copy(Path(spec.launcher)) if spec.launcher else None
        if launcher is not None:
            descriptors.append(launcher)
        try:
            with zygote_end, watchdog_end:
                self.process = _start("zygote.py", [json.dumps(configuration)], descriptors)
                self._watchdog = _start("watchdog.py", [spec.kind, str(self.process)], [watchdog_end.fileno()])
        finally:
            if launcher is not None:
                os.close(launcher)

    def _await_ready(self) -> None:
        """Wait until the zygote is confined."""
        self.control.settimeout(START_TIMEOUT_S)
        ready, failure = b"", "it ended"
        try:
            ready = self.control.recv(1 << 16)
        except OSError as error:
            failure = str(error)
        self.control.settimeout(None)
        printed = os.pread(self._files[STDERR], 1 << 16, 0).decode(errors="replace").strip()
        if not ready:
            raise ZygoteError(f"the zygote does not start ({failure}): {printed[-1500:]}", kind="not-started")
        for file in (STDOUT, STDERR, EXCHANGE, PROGRAM):
            clear(self._files[file])

    def load(self, program: bytes, program_format: int = protocol.SOURCE) -> None:
        """Set the source, bytecode or asserts for the following runs."""
        self._program_format = program_format
        replace_content(self._files[PROGRAM], program)

    def run(self, limits: Limits, **arguments: Any) -> ExecutionResult:
        """Run the loaded program once, with the arguments of `start_run`.

        Raises:
            ZygoteError: the zygote ended or does not answer.
        """
        self.start_run(limits, **arguments)
        return self.finish_run()

    def start_run(
        self,
        limits: Limits,
        *,
        mode: int = protocol.SCRIPT,
        stdin: bytes = b"",
        exchange: bytes = b"",
        descriptor: int | None = None,
        spare_mb: int = _SPARE_MB,
    ) -> None:
        """Start a run without waiting for its result.

        Args:
            mode: one of the modes in guest/protocol.py.
            exchange: further input, such as the arguments of a function call.
            descriptor: to hand over: a connection to the assert runner, or a compiled program.
            spare_mb: address space beyond the memory limit. The kernel refuses more, the watchdog what is used of it.
        """
        self._limits = limits
        replace_content(self._files[STDIN], stdin)
        os.lseek(self._read_only[0], 0, os.SEEK_SET)
        if exchange or mode != protocol.SCRIPT:
            replace_content(self._files[EXCHANGE], exchange)
        memory_bytes = int(limits.memory_mb * (1 << 20))
        first_look_s = min(protocol.next_look_s(memory_bytes, resident_bytes=0), limits.time_s, limits.idle_s)
        request = protocol.REQUEST.pack(
            protocol.RUN,
            mode,
            int(limits.time_s * 1e9),
            (int(limits.memory_mb) + spare_mb) << 20,
            (limits.output_kb << 10) + 1,
            limits.processes + 1 if self.user else 0,
            self._program_format,
            memory_bytes,
            int(limits.idle_s * 1e9),
            int(limits.max_wall_s * 1e9),
            math.ceil(first_look_s * 1000),
            0,
        )
        self._started = time.monotonic()
        try:
            if descriptor is None:
                self.control.send(request)
            else:
                socket.send_fds(self.control, [request], [descriptor])
        except OSError as error:
            raise ZygoteError(f"the zygote is gone ({error})", kind="zygote-ended") from error

    def finish_run(self) -> ExecutionResult:
        """Wait for a started run and return its result."""
        if not self._poller.poll((self._limits.max_wall_s + START_TIMEOUT_S) * 1000):
            raise ZygoteError("the zygote does not answer", kind="zygote-ended")
        try:
            message = self.control.recv(protocol.REPLY.size)
        except OSError as error:
            raise ZygoteError(f"the zygote is gone ({error})", kind="zygote-ended") from error
        if len(message) != protocol.REPLY.size:
            raise ZygoteError("the zygote ended", kind="zygote-ended")
        status, resident_kib, cpu_ns, reason = protocol.REPLY.unpack(message)
        if status == -1:
            raise ZygoteError("no process can be started for the program", kind="zygote-ended")
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        stopped = protocol.STOPPED[reason] if killed else ""  # it may have ended by itself before the kill arrived
        limit = self._limits.output_kb << 10
        output, output_size = take_content(self._files[STDOUT], limit)
        stderr, stderr_size = take_content(self._files[STDERR], limit, tail=STDERR_TAIL)
        stderr = _host_paths().sub(b"", stderr)
        exchange, _ = take_content(self._files[EXCHANGE], limit)
        # Reset descriptor flags: a program could leave a message for the next one in them.
        for descriptor in (*self._files[STDOUT : EXCHANGE + 1], *self._read_only):
            fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
        exceeded = max(output_size, stderr_size) > limit
        wall_s, memory_mb = time.monotonic() - self._started, resident_kib / 1024
        return ExecutionResult(status, stopped, cpu_ns / 1e9, wall_s, memory_mb, output, exceeded, stderr, exchange)

    def interrupt(self) -> None:
        """Kill the running program; call it from another thread."""
        with contextlib.suppress(OSError):  # it has ended
            self.control.send(protocol.REQUEST.pack(protocol.INTERRUPT, *[0] * 11))

    def alive(self) -> bool:
        return self.process > 0 and self.owner == os.getpid() and _wait(self.process, os.WNOHANG) == 0

    def close(self) -> None:
        """Kill the zygote. The kernel then kills its child, and the watchdog ends after the processes of a compiler."""
        self.control.close()
        if self.owner == os.getpid():
            if self.process > 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.process, signal.SIGKILL)
                _wait(self.process)
            if self._watchdog > 0:
                _wait(self._watchdog)
        self.process = self._watchdog = 0
        for descriptor in (*self._files, *self._read_only):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._files, self._read_only = [], []
        if self._user_lease is not None:
            self._user_lease.close()


def lease_user(small: bool) -> tuple[int, socket.socket]:
    """Lease a user number that no other judge on this machine uses.

    An abstract socket's name is the lease: the kernel releases it with the process, and it needs no file.
    """
    for user in SMALL_USERS if small else USERS:
        lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lease.bind(f"\0grpo-recipes-judge-user-{user}")
            return user, lease
        except OSError:
            lease.close()
    raise ZygoteError("all user numbers for programs are taken", kind="not-started")


def _start(script: str, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
    """Start a script of the guest folder with these descriptors, numbered from 0; return its process number."""
    # Moved to high numbers first, so that no dup2 below overwrites one that is still needed.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for descriptor in descriptors]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, *_FLAGS, str(GUEST / script), *arguments],
            _ENVIRONMENT,
            file_actions=[(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(high)],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM],
        )
    except OSError as error:
        raise ZygoteError(f"no process can be started ({error})", kind="not-started") from error
    finally:
        for descriptor in high:
            os.close(descriptor)


def _wait(process: int, options: int = 0) -> int:
    """Return the number of a child that has ended, or 0. A child that is already reaped has ended."""
    try:
        return os.waitpid(process, options)[0]
    except ChildProcessError:
        return process
