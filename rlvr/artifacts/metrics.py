"""metrics.jsonl: one JSON object a logged step, with `step`, `time` (Unix seconds) and TRL's metric names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines; none if the file is missing.

    Left out are lines that are not a JSON object with a step: a killed run leaves half a line at the end.
    """
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def validation_metric(name: str) -> str:
    """The name that a validation has for a metric of metrics.jsonl: "math" for "rewards/math/mean"."""
    return re.sub(r"\Arewards/([^/]+)/mean\Z", r"\1", name)
