"""Linux namespaces: system calls that Python 3.11 lacks, and a container's file system.

Standard library only, because it runs as process 1 of a container.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18
PARENT_DEATH_SIGNAL = 1

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def enter(descriptor: int) -> None:
    """Enter a namespace of another process. A process namespace applies to children only."""
    _checked(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(0)), "setns")


def mount(source: str | None, target: str | Path, kind: str | None = None, flags: int = 0, data: str = "") -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(data) or None), f"mount on {target}")


def die_with_parent() -> None:
    _checked(_libc.prctl(PARENT_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGKILL)), "prctl")


def own_view(hidden: Sequence[str], kept: Sequence[str], bound: Sequence[tuple[str, str]]) -> None:
    """Give this process, which has its own mount namespace, the file system of a container.

    The machine's files are read-only, and changes are invisible outside.

    Args:
        hidden: folders that are empty and writable in the container.
        kept: paths below them that stay visible, read-only.
        bound: folders and files of the machine and their paths in the container, writable.
    """
    mount(None, "/", flags=RECURSIVE | PRIVATE)
    mount("proc", "/proc", "proc")
    # Opened before they are hidden, because afterwards only the descriptors reach them.
    opened = {path: os.open(path, os.O_PATH) for path in [*kept, *(source for source, _ in bound)]}
    for folder in hidden:
        mount("none", folder, "tmpfs")
    for path in kept:
        _bind(opened[path], path, flags=READ_ONLY)
    for source, target in bound:
        _bind(opened[source], target)
    for descriptor in opened.values():
        os.close(descriptor)
    mount(None, "/", flags=REMOUNT | BIND | READ_ONLY)


def name_host(name: str) -> None:
    socket.sethostname(name)


def _bind(descriptor: int, target: str, flags: int = 0) -> None:
    source = f"/proc/self/fd/{descriptor}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Path(target).touch()
    mount(source, target, flags=BIND | RECURSIVE)
    if flags:
        mount(None, target, flags=REMOUNT | BIND | flags)


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
