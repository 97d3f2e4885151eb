"""Where a run's MLflow store is, and what our processes that talk to it are given. Imports nothing that is slow."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

# For the processes that talk to MLflow only; what the user has set wins.
_ENVIRONMENT = {
    # Our own loop tries again, for as long as the run lasts, instead of MLflow's seven times within four minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Nobody waits for an answer, so a slow server is given time; at MLflow's 120 s a dead one would be noticed late.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
}


def default_tracking_uri(output_dir: Path) -> str:
    """A SQLite store beside the runs, unless MLFLOW_TRACKING_URI names another.

    MLflow's own default is a store in whatever directory the command was started from.
    """
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{_beside(output_dir) / 'mlflow.db'}"


def _beside(folder: Path) -> Path:
    return Path(os.path.abspath(folder)).parent.resolve()  # of a link, where the link is; of ".", its real parent


def store_file(uri: str) -> Path | None:
    """The file of a SQLite store; None where the URI is of another kind."""
    found = re.fullmatch(r"sqlite:///(/.+)", uri)
    return Path(found[1]) if found else None


def process_environment() -> dict[str, str]:
    """The environment of a process that talks to MLflow, in which it finds this project wherever it is started."""
    project = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([project, *(path for path in sys.path if path)])
    return {**_ENVIRONMENT, **os.environ, "PYTHONPATH": paths}


def make_store(uri: str) -> None:
    """Makes a SQLite store that isn't there yet: whole, or not at all.

    MLflow makes its tables in a hundred steps. Whoever is killed between two of them, as by a Ctrl-C in a run's first
    seconds, leaves a store that no MLflow can use any more. So it is made beside its place, in a process of its own
    (whose open files end with it), and put there when it is done. What can't be made is left to MLflow, which says why.
    """
    file = store_file(uri)
    if file is None or file.exists() or not file.parent.is_dir():
        return
    for left in file.parent.glob(f".{file.name}.*.new*"):
        if not Path("/proc", left.name.split(".")[-2]).exists():  # by a process that was killed over it
            left.unlink(missing_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}.new")
    maker = os.fork()
    if maker == 0:
        code = 1
        try:
            from mlflow import MlflowClient

            MlflowClient(tracking_uri=f"sqlite:///{beside}").search_experiments(max_results=1)
            code = 0
        finally:
            os._exit(code)
    try:
        if os.waitpid(maker, 0)[1] == 0:
            with contextlib.suppress(FileExistsError):  # another run was first
                os.link(beside, file)
    except OSError:  # a file system without hard links
        with contextlib.suppress(OSError):
            if not file.exists():
                beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
