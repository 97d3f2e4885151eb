"""Follow a growing metrics.jsonl, and read the numbers of its lines."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class MetricsTail:
    """Reads the new lines of metrics.jsonl at each call; all lines again if the file was replaced or truncated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inode: int | None = None
        self.offset = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield complete lines. A line that is being written is left for the next call."""
        try:
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            status = os.fstat(file.fileno())
            if status.st_ino != self.inode or status.st_size < self.offset:
                self.inode, self.offset = status.st_ino, 0
            file.seek(self.offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return
                self.offset += len(raw)
                try:
                    line = json.loads(raw)
                except ValueError:
                    continue
                if isinstance(line, dict) and isinstance(line.get("step"), int):
                    yield line


def metrics_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a log line under names that MLflow accepts."""
    numbers = {key: value for key, value in line.items() if key not in ("step", "time")}
    return {
        metric_name(key): float(value)
        for key, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def metric_name(key: str) -> str:
    """A name that MLflow accepts: letters, digits, _-. :/, as a normalized relative path."""
    cleaned = re.sub(r"[^\w.\-: /]", "_", key)
    return posixpath.normpath(cleaned).lstrip("/.")[:200] or "_"
