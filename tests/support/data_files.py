"""Data files for the tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    """Write rows in the format of the file's ending, and return the path as a recipe has it."""
    if path.suffix == ".parquet":
        from datasets import Dataset

        Dataset.from_list(list(rows)).to_parquet(path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
