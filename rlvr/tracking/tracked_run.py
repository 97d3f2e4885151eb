"""wandb.json and trackio.json of a run directory: which run of the tracker it is. They hold no address."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.formatting import mapping


def tracked_run(folder: Path, tracker: str) -> Mapping[str, Any]:
    """The run of a run directory in a tracker; empty if there is none."""
    return read_json(folder / f"{tracker}.json")


def remember_run(folder: Path, tracker: str, **run: Any) -> None:
    """Note the run, so that the next session of the run directory and later scripts continue it."""
    with contextlib.suppress(OSError):  # on a full disk a resumed run becomes another one there
        (folder / f"{tracker}.json").write_text(json.dumps(run) + "\n", encoding="utf-8")


def read_json(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return {}
