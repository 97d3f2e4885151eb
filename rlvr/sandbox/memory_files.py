"""Files in memory (memfd): fill, read, empty, and copy an executable into one."""

from __future__ import annotations

import os
from pathlib import Path


def replace_content(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, content[written:] if written else content, written)


def clear(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)


def take_content(descriptor: int, limit: int, tail: int | None = None) -> tuple[bytes, int]:
    """Return at most `limit` bytes (of the last `tail` bytes, if given) and the size; empty the file."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        os.lseek(descriptor, 0, os.SEEK_SET)  # a program may have moved the position and written nothing
        return b"", 0
    start = max(0, size - tail) if tail is not None else 0
    content = os.pread(descriptor, min(size - start, limit), start)
    clear(descriptor)
    return content, size


def executable_copy(path: Path) -> int:
    """Return a read-only descriptor of a copy of a file in memory. A file open for writing can't be executed.

    Raises:
        OSError: the file can't be read, or is a link.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        content = file.read()
    writable = os.memfd_create("judge-compiled", os.MFD_CLOEXEC)
    try:
        replace_content(writable, content)
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)
