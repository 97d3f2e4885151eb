"""A program that tries to escape and prints which attempts escapes. The judge runs it when it starts.

Standard input is JSON: files that exist, a port that listens, the judge's process number.
"""

import ctypes
import functools
import json
import os
import sys
from collections.abc import Callable

targets = json.loads(sys.stdin.read())
escapes: list[str] = []


def attempt(name: str, action: Callable[[], object]) -> None:
    try:
        if action() not in (False, None, -1):
            escapes.append(name)
    except BaseException:  # refused, as it should be
        return


def connect() -> object:
    import _socket

    _socket.socket().connect(("127.0.0.1", targets["port"]))
    return True


def read(path: str) -> object:
    return os.read(os.open(path, os.O_RDONLY), 1)


def signal(process: int) -> object:
    os.kill(process, 0)
    return True


def fork() -> object:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


libc = ctypes.CDLL(None)
for path in targets["files"]:
    attempt(f"read {path}", functools.partial(read, path))
attempt("read the judge's environment", functools.partial(read, f"/proc/{targets['judge']}/environ"))
attempt("list a folder", lambda: os.listdir("/"))
attempt("write a file", lambda: os.open("/tmp/escape", os.O_CREAT | os.O_WRONLY, 0o600))
attempt("make a file in memory", lambda: os.memfd_create("escape"))
attempt("connect to a port", connect)
attempt("fork", fork)
attempt("execute a program", lambda: os.posix_spawn("/bin/true", ["true"], {}))
attempt("signal its parent", lambda: signal(os.getppid()))
attempt("signal the judge", lambda: signal(targets["judge"]))
attempt("trace its parent", lambda: libc.ptrace(16, os.getppid(), 0, 0) == 0)
attempt("raise its limits", lambda: libc.prlimit(os.getppid(), 7, 0, ctypes.create_string_buffer(16)) == 0)
attempt("make shared memory", lambda: libc.shmget(0, 4096, 0o1600) >= 0)
attempt("take 4 GB of memory", lambda: bytearray(4 << 30))
print(json.dumps(escapes))
