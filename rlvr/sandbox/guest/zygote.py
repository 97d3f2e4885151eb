"""A warm, confined process that forks one child per program.

The judge starts it as `python -S -P … zygote.py CONFIGURATION` with the descriptors of protocol.py. It imports modules
or opens the launcher of compiled programs, confines itself for good, and reports ready. Then it serves: one request,
one child, one reply, until the judge is gone. Each child inherits the confinement and adds the narrow seccomp filter.
No program's code runs in this process itself. Programs that do not end soon are reported to the watchdog.

Kinds: `python` runs Python programs in forked copies of this interpreter; `launch` becomes the launcher of compiled
programs; `compile` starts compilers.
"""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import confinement  # type: ignore[import-not-found]
import program  # type: ignore[import-not-found]
from protocol import (  # type: ignore[import-not-found]
    CHANNEL,
    CONTROL,
    EXCHANGE,
    PROGRAM,
    REPLY,
    REQUEST,
    RUN,
    STOPPED,
    WATCHDOG,
)

_DESCRIPTOR = 4  # bytes of a descriptor's number in a control message


def main() -> None:
    configuration = json.loads(sys.argv[1])
    confinement.end_with_parent(configuration["judge"])
    kind = configuration["kind"]
    os.closerange(CHANNEL + 1 if kind == "launch" else CHANNEL, 1 << 16)
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if kind == "python" and soft != hard:
        # The main thread's stack limit is fixed at exec, so raise the limit and execute this program again.
        resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
        os.execv(sys.executable, [sys.executable, *configuration["flags"], __file__, sys.argv[1]])
    broad = narrow = None
    if configuration["filters"]:
        broad_size, narrow_size = configuration["filters"]
        code = os.pread(PROGRAM, broad_size + narrow_size, 0)
        broad = confinement.Filter(code[:broad_size])
        narrow = confinement.Filter(code[broad_size:], own_pid=configuration["own_pid"]) if narrow_size else None
    if kind == "launch":
        os.dup2(CHANNEL, PROGRAM)
        os.close(CHANNEL)
        os.set_inheritable(PROGRAM, False)
    _import(configuration["preload"], configuration["site"])
    if not os.read(WATCHDOG, 16):
        sys.exit("the watchdog does not start")
    del sys.path[0]
    confinement.limit(core=0, memlock=0, msgqueue=0, nofile=configuration["nofile"], stack=resource.RLIM_INFINITY)
    _confine(configuration, broad)
    if kind == "launch":
        _default_signals()
        os.execve(PROGRAM, ["launcher"], {})
    os.write(CONTROL, b"ready")
    sys.argv[:] = [program.NAME]
    _serve(kind, narrow)


def _import(names: list[str], site: str | None) -> None:
    """Import modules for programs, which can open no file. Those that are not installed are left out."""
    if site:
        sys.path.append(site)
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if site:
        sys.path.remove(site)
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")  # loaded now, since pthread_exit would load it after the confinement


def _confine(configuration: dict[str, Any], broad: Any) -> None:
    confinement.no_new_privileges()
    confinement.disable_huge_pages()
    if configuration["landlock"]:
        confinement.restrict_paths(configuration["readable"], configuration["writable"])
    if configuration["root"]:
        confinement.change_root(configuration["root"])
    if configuration["user"]:
        confinement.change_user(configuration["user"])
    confinement.end_with_parent(configuration["judge"])  # again, since a change of user resets it
    if broad is not None:
        broad.load()


def _serve(kind: str, narrow: Any) -> None:
    # Hide these modules from programs.
    for name in ("confinement", "program", "protocol", "values", "rpc"):
        sys.modules.pop(name, None)
    control = _socket.socket(fileno=CONTROL)
    ancillary_size = _socket.CMSG_LEN(_DESCRIPTOR)
    run = _compile if kind == "compile" else program.run
    program.add_builtins()
    if "mmap" in sys.modules:
        program.make_maps_private()
    print(end="", flush=True)  # initialises the stream before the fork
    gc.collect()
    gc.freeze()
    gc.disable()
    poller = select.poll()
    zygote = os.getpid()
    # After a fork, each page that either process writes to is copied first. So this loop does little until it ends.
    while True:
        message, attached, _, _ = control.recvmsg(REQUEST.size, ancillary_size)
        if not message:
            return
        request = REQUEST.unpack(message)
        if request[0] != RUN:
            continue  # an interrupt after the run
        child = confinement.fork()
        if child < 0:
            control.send(REPLY.pack(-1, 0, 0, 0))
            continue
        if child == 0:
            try:
                confinement.end_with_parent(zygote)
                os.closerange(CONTROL, WATCHDOG + 1)
                _limit(request)
                if attached:
                    os.dup2(int.from_bytes(attached[0][2][:_DESCRIPTOR], sys.byteorder), CHANNEL)
                if narrow is not None:
                    narrow.load()
                run(request[1], request[6])
            finally:
                os._exit(1)
        if attached:
            os.close(int.from_bytes(attached[0][2][:_DESCRIPTOR], sys.byteorder))
        # Not reaped until the watchdog has let go of it: until then its number can't belong to another process.
        poller.register(process := os.pidfd_open(child), select.POLLIN)
        stopped = 0 if poller.poll(request[-2]) else _await_end(child, process, message)
        _, status, usage = os.wait4(child, 0)
        poller.unregister(process)
        os.close(process)
        if kind == "compile":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # processes that a compiler left running
        control.send(REPLY.pack(status, usage.ru_maxrss, int((usage.ru_utime + usage.ru_stime) * 1e9), stopped))


def _await_end(child: int, process: int, message: bytes) -> int:
    """Report a child to the watchdog and wait until it has ended.

    Returns:
        the index in STOPPED of the limit for which it was killed.
    """
    stopped = 0
    os.write(WATCHDOG, message[:-4] + child.to_bytes(4, sys.byteorder))
    poller = select.poll()
    for descriptor in (process, CONTROL, WATCHDOG):
        poller.register(descriptor, select.POLLIN)
    while process not in (ready := dict(poller.poll())):
        if WATCHDOG in ready or not os.read(CONTROL, REQUEST.size):
            os._exit(1)  # the watchdog or the judge is gone
        os.kill(child, signal.SIGKILL)  # the judge interrupts it
        stopped = STOPPED.index("idle")
    os.write(WATCHDOG, b"ended")
    return os.read(WATCHDOG, 1)[0] or stopped


def _limit(request: tuple[int, ...]) -> None:
    _, _, cpu_ns, space, size, processes, *_ = request
    seconds = cpu_ns // 1_000_000_000 + 2  # a backstop in whole seconds; the judge enforces the exact limit
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    if processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_AS, (space, space))


def _default_signals() -> None:
    """Restore signals that Python ignores: an executed program would inherit that."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _compile(mode: int, program_format: int) -> None:
    """Execute the command in the exchange file, in the child."""
    job = json.loads(os.pread(EXCHANGE, 1 << 20, 0))
    os.setsid()
    os.chdir(job["folder"])
    _default_signals()
    soft = resource.getrlimit(resource.RLIMIT_CPU)[0]
    resource.setrlimit(resource.RLIMIT_CPU, (soft - 1, soft - 1))
    os.execve(job["command"][0], job["command"], job["environment"])


main()
