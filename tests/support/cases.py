"""Tables of cases: JSON lines next to the module that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def cases(module: str, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table. The file has the module's name, and each of its lines starts with the table's name."""
    lines = Path(module).with_suffix(".jsonl").read_text(encoding="utf-8").split("\n")
    start = f'{{"table": "{table}", '
    return [tuple(json.loads(line).values())[1:] for line in lines if line.startswith(start)]
