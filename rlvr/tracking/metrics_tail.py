"""Follow a growing metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class MetricsTail:
    """Reads the lines of metrics.jsonl after `offset`, which the caller moves on when a line is processed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def lines(self, max_bytes: int = 1 << 20) -> Iterator[tuple[int, dict[str, Any]]]:
        """Complete lines, each with the offset of its end. A line that is being written is left for the next call."""
        try:
            if self.path.stat().st_size < self.offset:
                self.offset = 0  # the file was rewritten
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read(max_bytes)
        except OSError:
            return
        end = self.offset
        for raw in data.split(b"\n")[:-1]:
            end += len(raw) + 1
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("step"), int):
                yield end, line
