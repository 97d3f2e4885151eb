"""A file of JSON lines that is only ever appended to, so that whoever is killed goes on where it was.

Its first line holds the settings that everything in it was made with; every other line is one thing that was measured.
A line that a killed process left half-written says nothing, and is cut off before the next one is written.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class JournalError(ValueError):
    """The file is no journal, or can't be written: a few words for the end of a sentence."""


def read_journal(path: Path) -> tuple[Line | None, list[Line]]:
    """The settings and the lines of a journal; None and no lines where it is missing or breaks off in its first line.

    Raises:
        JournalError: it is something else.
    """
    if not path.is_file():
        return None, []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    try:
        lines = [json.loads(line) for line in whole.decode("utf-8").split("\n")[:-1]]
        settings = lines[0]["settings"] if lines else None
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(str(error)) from error
    if not all(isinstance(line, dict) for line in lines):
        raise JournalError("a line of it is no object")
    return settings, lines[1:]


class Journal:
    """A journal that is open for adding to; made with `settings` if it isn't there.

    Whether what is there was made with the same settings is for the caller to see (`read_journal`), before this.

    Raises:
        BlockingIOError: another process has it open.
        OSError: it can't be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go when the process ends, however it ends
        except BlockingIOError:
            self._file.close()
            raise
        except OSError:  # a file system without locks
            pass
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # The process was killed in the middle of a line, which says nothing then.
            self._file.truncate(whole)
        if not whole:
            self.add([{"settings": settings}])

    def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Writes lines down for good: after this, a power cut doesn't lose them."""
        # In one piece, so that a kill leaves all of them or none, and hardly ever half a line.
        self._file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
