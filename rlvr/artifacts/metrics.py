"""metrics.jsonl, the figures of a run: one JSON object a line, with `step`, `time` (Unix seconds) and TRL's names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; none if it isn't there.

    A run that was killed while writing leaves half a line at the end: reading stops at the first line that is no JSON
    object with a step.
    """
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            break
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            break
        lines.append(line)
    return lines
