"""The fork server's program, and the workers that it forks (the caller's side: fork_server.py)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from rlvr.errors import InputError
from rlvr.workers.fork_server import INT32
from rlvr.workers.messages import MAX_MESSAGE, encode, receive, send

Function = Callable[[Any], Any]


def fork_workers(
    descriptor: int, function: str, memory_mb: int | None, inherit_env: bool
) -> tuple[socket.socket, Function, int | None]:
    """Import the function, then fork a worker for every socket that arrives. Only a worker returns from here."""
    channel = socket.socket(fileno=descriptor)
    _ignore_signals()
    # Processes that a worker starts must not inherit this: user code may end them by SIGTERM.
    os.register_at_fork(after_in_child=_restore_signals)
    init_payload = receive(channel, trusted=True)
    if inherit_env:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        serve_item = _load_function(function, init_payload)
    except Exception as error:
        known = isinstance(error, InputError)
        text = str(error) if known else "".join(traceback.format_exception(error)).rstrip()
        with contextlib.suppress(OSError):  # the caller has ended
            send(channel, {"failed": text})
        os._exit(1)
    try:
        send(channel, "ready")
    except OSError:
        os._exit(0)
    # Workers' garbage collection must not scan the imported modules: it would copy their pages.
    gc.freeze()
    workers: dict[int, int] = {}  # process ids, by number
    server = os.getpid()
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(channel, INT32.size, 1)
        except OSError:
            break
        if not data:
            break
        number = INT32.unpack(data)[0]
        status = _kill(workers.pop(number)) if number in workers else -1
        pid = os.fork()
        if pid == 0:
            channel.close()
            _end_with_parent(server)
            return socket.socket(fileno=descriptors[0]), serve_item, memory_mb
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        workers[number] = pid
        os.close(descriptors[0])
        with contextlib.suppress(OSError):
            channel.sendall(INT32.pack(status))
    for pid in workers.values():
        _kill(pid)
    os._exit(0)


def _load_function(name: str, init_payload: bytes | None) -> Function:
    module, _, function_name = name.partition(":")
    function: Function = getattr(importlib.import_module(module), function_name)
    return function if init_payload is None else function(init_payload)


def _kill(pid: int) -> int:
    """Kill a worker and what it has started; return its wait status. It may have ended before."""
    for kill in (os.killpg, os.kill):  # not waited for yet, so the process id is still its own
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return -1


def serve_items(channel: socket.socket, function: Function, memory_mb: int | None) -> None:
    """The worker's loop: receive an item, call the function, send the result, until the caller has ended."""
    try:
        _prepare_worker(memory_mb)
        worker = os.getpid()
        while (item := receive(channel, trusted=True)) is not None:
            try:
                reply = ("done", function(item), "")
            except MemoryError:
                reply = ("crashed", None, "it ran out of memory")
            except Exception as error:  # an exception of the function is a result
                reply = ("raised", None, f"{type(error).__name__}: {str(error)[:200]}")
            if os.getpid() != worker:
                break  # the function has forked, and its child has returned: the caller expects one reply
            parts = encode(reply)
            if sum(map(len, parts)) > MAX_MESSAGE:
                parts = encode(("raised", None, f"its result is longer than {MAX_MESSAGE >> 20} MB"))
            for part in parts:
                channel.sendall(part)
    finally:
        os._exit(0)


def _prepare_worker(memory_mb: int | None) -> None:
    _ignore_signals()
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # a process group of its own, so that all that it starts can be killed with it
    if memory_mb is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


_DEFAULTS: Mapping[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


def _ignore_signals() -> None:
    """Ignore SIGINT and SIGTERM: launchers send them to all processes, but the caller decides when workers end.

    A handler instead of SIG_IGN, because programs that a worker executes would inherit SIG_IGN.
    """
    for number in _DEFAULTS:
        signal.signal(number, _do_nothing)


def _restore_signals() -> None:
    for number, handler in _DEFAULTS.items():
        if signal.getsignal(number) is _do_nothing:
            signal.signal(number, handler)


def _do_nothing(number: int, frame: object) -> None:
    pass


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, even during a computation (Linux)."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # it ended before the line above
