"""Where a run is tracked: its id in MLflow and in W&B, and the address of its MLflow store.

mlflow.json and wandb.json of a run directory hold no address: a run directory from elsewhere must not make this machine
call a server.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.artifacts.directory import read_json, write_json

# Defaults of the processes that talk to trackers; variables of the user win.
_ENVIRONMENT = {
    # mlflow_tracker.py retries as long as the run lasts; MLflow itself retries seven times within four minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Training does not wait, so a slow server has time. MLflow's default of 120 s would report a dead one late.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
}


def tracked_run(folder: Path, tracker: str) -> Mapping[str, Any]:
    """The run of a run directory in a tracker; empty if there is none, as in a copy of the directory."""
    run = read_json(folder / f"{tracker}.json")
    return run if run.get("folder") == str(folder.resolve()) else {}


def remember_run(folder: Path, tracker: str, **run: Any) -> None:
    """Note the run, so that the next session of the run directory and later scripts continue it."""
    with contextlib.suppress(OSError):  # on a full disk a resumed run becomes another one there
        write_json(folder / f"{tracker}.json", {**run, "folder": str(folder.resolve())})


def default_tracking_uri(output_dir: Path) -> str:
    """MLFLOW_TRACKING_URI, or else a SQLite store next to the runs (MLflow's default is in the working directory)."""
    parent = Path(os.path.abspath(output_dir)).parent.resolve()  # a link's own parent, but the real parent of "."
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{parent / 'mlflow.db'}"


def store_file(uri: str) -> Path | None:
    """The file of a SQLite store; None for other URIs."""
    match = re.fullmatch(r"sqlite:///(/.+)", uri)
    return Path(match[1]) if match else None


def process_environment() -> dict[str, str]:
    """The environment of a process that talks to a tracker. The process can import this project from any directory."""
    project = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([project, *(path for path in sys.path if path)])
    return {**_ENVIRONMENT, **os.environ, "PYTHONPATH": paths}
