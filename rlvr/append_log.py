"""Append-only file of JSON lines that survives a kill at any byte.

The first line holds the settings that all entries depend on; every other line is one entry. A half-written last line is
ignored, and cut off before the next entry is written.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class AppendLogError(ValueError):
    """The file is not an append log. The message is a phrase for the end of a sentence."""


def read_append_log(path: Path) -> tuple[Entry | None, list[Entry]]:
    """Read the settings and the entries; None and no entries if the file is missing or ends within its first line.

    Raises:
        AppendLogError: the file holds something else.
    """
    if not path.is_file():
        return None, []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    try:
        lines = [json.loads(line) for line in whole.decode("utf-8").split("\n")[:-1]]
        settings = lines[0]["settings"] if lines else None
    except (ValueError, KeyError, TypeError) as error:
        raise AppendLogError(str(error)) from error
    if not all(isinstance(line, dict) for line in lines):
        raise AppendLogError("a line is not a JSON object")
    return settings, lines[1:]


class AppendLog:
    """An append log that is open for writing; created with `settings` if it is missing.

    The caller compares the settings of an existing file with its own (`read_append_log`) before it opens the log.

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
        # One write, so that a kill leaves all of them or none, and hardly ever half a line.
        self._file.write(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
