"""A process that has given up everything and waits, warm, to fork a program's process.

Started by the judge as `python -S -P … zygote.py CONFIGURATION` with the descriptors of protocol.py. It prepares what
its kind needs (imports modules, opens the launcher of compiled programs), confines itself for good, says so, and
serves: one request, one child, one reply, until the judge is gone. Every child inherits the confinement and adds the
narrow filter of its own. No program's code ever runs in this process.

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
)

_DESCRIPTOR = 4  # bytes of a descriptor's number in a control message


def main() -> None:
    configuration = json.loads(sys.argv[1])
    confinement.end_with_parent()
    if os.getppid() != configuration["judge"]:
        return  # it is gone already
    os.closerange(CHANNEL + 1 if configuration["kind"] == "launch" else CHANNEL, 1 << 16)
    kind = configuration["kind"]
    if kind == "python" and resource.getrlimit(resource.RLIMIT_STACK)[0] != resource.RLIM_INFINITY:
        # How far the main thread's stack may grow is laid out when a program is loaded, so this one is loaded again.
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        if resource.getrlimit(resource.RLIMIT_STACK)[0] != hard:
            resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
            os.execv(sys.executable, [sys.executable, *configuration["flags"], __file__, sys.argv[1]])
    filters = None
    if configuration["filters"]:
        first, second = configuration["filters"]
        code = os.pread(PROGRAM, first + second, 0)
        filters = (
            confinement.Filter(code[:first]),
            confinement.Filter(code[first:], own_pid=configuration["own_pid"]) if second else None,
        )
    if kind == "launch":
        os.dup2(CHANNEL, PROGRAM)
        os.close(CHANNEL)
        os.set_inheritable(PROGRAM, False)
    missing = _import(configuration["preload"], configuration["site"])
    del sys.path[0]
    confinement.limit(core=0, memlock=0, msgqueue=0, nofile=configuration["nofile"], stack=resource.RLIM_INFINITY)
    _confine(configuration, filters[0] if filters else None)
    if kind == "launch":
        _default_signals()
        os.execve(PROGRAM, ["launcher"], {})
    os.write(CONTROL, json.dumps({"ready": True, "missing": missing}).encode())
    sys.argv[:] = [program.NAME]
    _serve(kind, filters[1] if filters else None)


def _import(names: list[str], site: str | None) -> list[str]:
    """Imports what programs may want, since they can open no file; the names that are not to be had are returned."""
    missing = []
    if site:
        sys.path.append(site)
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    if site:
        sys.path.remove(site)
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")  # the C library loads it when a thread ends by pthread_exit, too late here
    return missing


def _confine(configuration: dict[str, Any], broad: Any) -> None:
    confinement.no_new_privileges()
    if configuration["landlock"]:
        confinement.restrict_paths(configuration["readable"], configuration["writable"])
    if configuration["root"]:
        confinement.change_root(configuration["root"])
    if configuration["user"]:
        confinement.change_user(configuration["user"])
    confinement.end_with_parent()  # a change of the user has undone it
    if broad is not None:
        broad.load()


def _serve(kind: str, narrow: Any) -> None:
    # Programs must not find these through sys.modules, nor their imports by chance.
    for name in ("confinement", "program", "protocol", "values", "line"):
        sys.modules.pop(name, None)
    control = _socket.socket(fileno=CONTROL)
    room = _socket.CMSG_LEN(_DESCRIPTOR)
    run = _compile if kind == "compile" else program.run
    program.furnish()
    print(end="", flush=True)  # sets up the stream, once for all
    gc.collect()
    gc.freeze()
    gc.disable()
    # After a fork each page that is written to, here or in the child, is copied first. So this loop does little, and
    # it is the judge that watches over the child and ends it.
    while True:
        message, attached, _, _ = control.recvmsg(REQUEST.size, room)
        if not message:
            return
        request = REQUEST.unpack(message)
        child = confinement.fork()
        if child < 0:
            control.send(REPLY.pack(-1, 0, 0))
            continue
        if child == 0:
            try:
                confinement.end_with_parent()
                os.close(CONTROL)
                _limit(request)
                if attached:
                    os.dup2(int.from_bytes(attached[0][2][:_DESCRIPTOR], sys.byteorder), CHANNEL)
                if narrow is not None:
                    narrow.load()
                run(request[1], request[-1])
            finally:
                os._exit(1)
        if attached:
            os.close(int.from_bytes(attached[0][2][:_DESCRIPTOR], sys.byteorder))
        _, status, usage = os.wait4(child, 0)
        if kind == "compile":
            _sweep(child)
        control.send(REPLY.pack(status, usage.ru_maxrss, int((usage.ru_utime + usage.ru_stime) * 1e9)))


def _limit(request: tuple[int, ...]) -> None:
    _, _, cpu_ns, space, size, processes, _ = request
    seconds = cpu_ns // 1_000_000_000 + 2  # the kernel counts whole seconds; the judge is more exact
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    if processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_AS, (space, space))


def _sweep(group: int) -> None:
    """Ends what a compiler may have left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _default_signals() -> None:
    """What Python ignores for itself would stay ignored in what is executed."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _compile(mode: int, form: int) -> None:
    """In the child: becomes the command that the exchange names."""
    order = json.loads(os.pread(EXCHANGE, 1 << 20, 0))
    os.setsid()
    os.chdir(order["folder"])
    _default_signals()
    soft = resource.getrlimit(resource.RLIMIT_CPU)[0]
    resource.setrlimit(resource.RLIMIT_CPU, (soft - 1, soft - 1))
    os.execve(order["command"][0], order["command"], order["environment"])


main()
