"""The address of a run's MLflow store, and the environment of the processes that use it. Imports no slow library."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import sys
from pathlib import Path

# Defaults of the processes that talk to MLflow; variables of the user win.
_ENVIRONMENT = {
    # mlflow_process.py retries as long as the run lasts; MLflow itself retries seven times within four minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Training does not wait, so a slow server has time. MLflow's default of 120 s would report a dead one late.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
}


def default_tracking_uri(output_dir: Path) -> str:
    """MLFLOW_TRACKING_URI, or else a SQLite store beside the runs (MLflow's default is in the working directory)."""
    parent = Path(os.path.abspath(output_dir)).parent.resolve()  # a link's own parent, but the real parent of "."
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{parent / 'mlflow.db'}"


def store_file(uri: str) -> Path | None:
    """The file of a SQLite store; None for other URIs."""
    match = re.fullmatch(r"sqlite:///(/.+)", uri)
    return Path(match[1]) if match else None


def process_environment() -> dict[str, str]:
    """The environment of a process that talks to MLflow; it can import this project from any directory."""
    project = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([project, *(path for path in sys.path if path)])
    return {**_ENVIRONMENT, **os.environ, "PYTHONPATH": paths}


def make_store(uri: str) -> None:
    """Create a missing SQLite store atomically.

    MLflow creates its tables in a hundred steps. A process that is killed between two of them, such as by Ctrl-C in a
    run's first seconds, leaves a store that MLflow can't use. So a child process creates it under a temporary name
    (its open files end with it), and then it is renamed. If that fails, MLflow reports the cause later.
    """
    file = store_file(uri)
    if file is None or file.exists() or not file.parent.is_dir():
        return
    for abandoned in file.parent.glob(f".{file.name}.*.new*"):
        if not Path("/proc", abandoned.name.split(".")[-2]).exists():  # its process was killed
            abandoned.unlink(missing_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.new")
    child = multiprocessing.get_context("fork").Process(target=_create_store, args=(temporary,))
    child.start()
    child.join()
    try:
        if child.exitcode == 0:
            with contextlib.suppress(FileExistsError):  # another run was first
                os.link(temporary, file)
    except OSError:  # a file system without hard links
        with contextlib.suppress(OSError):
            if not file.exists():
                temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _create_store(file: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments(max_results=1)
