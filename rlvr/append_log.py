"""Append-only file of JSON lines that survives a kill at any byte.

The first line holds the settings that all entries depend on, for people. Every other line is one entry. A half-written
last line is ignored, and cut off before the next entry is written.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def read_append_log(path: Path) -> list[Entry]:
    """Read the entries of a file.

    Raises:
        ValueError: the file does not hold lines of JSON.
    """
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    # Not splitlines(), which would also cut at U+2028 and similar characters.
    return [json.loads(line) for line in whole.decode("utf-8").split("\n")[1:-1]]


class AppendLog:
    """An append log that is open for writing; created with `settings` if it is missing.

    Raises:
        BlockingIOError: another process has the log open.
        OSError: the file can't be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it when the process ends
        except BlockingIOError:
            self._file.close()
            raise
        except OSError:  # a file system without locks
            pass
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)
        if not whole:
            self.append([{"settings": settings}])

    def append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Write entries and sync them to disk."""
        # One write, so that a kill seldom leaves a part of them.
        self._file.write(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
