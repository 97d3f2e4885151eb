"""Send evaluation results and pages to the MLflow run of a run directory, at its end or from a later script.

    message = add_results(run_dir, Path("evaluations/gsm8k"))     # after scripts/evaluate.py

mlflow.json holds the run's id and no address: a run directory from elsewhere must not make this machine call a server.
The run is looked up at MLFLOW_TRACKING_URI, or in the store beside the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.artifacts.evaluation_summary import verdict
from rlvr.console import SlowStep
from rlvr.errors import InputError
from rlvr.formatting import is_number, mapping
from rlvr.tracking.mlflow_ledger import SentMetrics, metric_name
from rlvr.tracking.mlflow_messages import describe_error, redact_uri
from rlvr.tracking.mlflow_store import default_tracking_uri, process_environment, store_file

# Results, in addition to the files that a run itself sends.
RESULTS = ("evaluation.json", "sweep.json", "sweep.svg", "sweep.png", "report.html", "comparison.html")
ANSWERS = ("evaluation_*.parquet", "samples_*.parquet")
TIMEOUT_S = 120.0
NOTE, OUR_NOTE = "mlflow.note.content", "grpo-recipes.verdict"

Point = tuple[str, float, int]  # name, value, step


def metrics_of_results(folder: Path, step: int, prefix: str = "eval") -> list[Point]:
    """The metrics of evaluation.json, and those of sweep.json with the number of shots as their step."""
    points = _points(_read(folder / "evaluation.json"), prefix, step)
    sweep = _read(folder / "sweep.json").get("points")
    for point in map(mapping, sweep if isinstance(sweep, list) else []):
        if isinstance(shots := point.get("shots"), int):
            points += _points(point, f"{prefix}/by_shots", shots)
    return points


def _points(content: Mapping[str, Any], prefix: str, step: int) -> list[Point]:
    values: dict[str, Any] = {}
    for section, name, key in (
        ("base", "base_accuracy", "accuracy"),
        ("trained", "accuracy", "accuracy"),
        ("difference", "difference", "points"),
    ):
        part = mapping(content.get(section))
        interval = mapping(part.get("interval"))
        values |= {name: part.get(key), f"{name}_low": interval.get("low"), f"{name}_high": interval.get("high")}
    return [(metric_name(f"{prefix}/{name}"), float(value), step) for name, value in values.items() if is_number(value)]


def verdict_of(folder: Path) -> str:
    """The verdict on evaluation.json in a sentence; "" if it compares nothing."""
    conclusion = verdict(_read(folder / "evaluation.json"))
    return "" if conclusion.kind == "unknown" else conclusion.sentence


def files_of_results(folder: Path) -> list[tuple[str, str]]:
    """The existing files of an evaluation and its reports, each with its artifact folder in MLflow."""
    files = [(folder / name, "") for name in RESULTS if (folder / name).is_file()]
    files += [(path, "completions") for pattern in ANSWERS for path in sorted((folder / "completions").glob(pattern))]
    return [(str(path), place) for path, place in files]


def find_run_dir(output: Path, adapter: Path | None = None) -> Path | None:
    """The run directory of an evaluation: its own folder, or that of the adapter; None if neither is in MLflow."""
    folders = [output, *([adapter.resolve().parent] if adapter is not None else [])]
    return next((folder for folder in folders if SentMetrics(folder).run_id is not None), None)


def add_results(run_dir: Path, results: Path, limit: int | None = None) -> str | None:
    """Send the results in a folder to the MLflow run of a run directory.

    Results of another folder than the run's own get that folder's name in MLflow, since they may be of other rows.

    Args:
        limit: evaluate.py's --limit, which becomes part of the metrics' names: an evaluation of fewer rows must not
            replace the newest value of a whole one.

    Returns:
        a message for the user; None if there is no MLflow run.
    """
    own = results.resolve() == run_dir.resolve()
    part = "/".join([*([] if own else [results.resolve().name]), *([f"first_{limit}"] if limit else [])])
    points = metrics_of_results(results, max(SentMetrics(run_dir).step, 0), "/".join(filter(None, ("eval", part))))
    below = "" if own else f"evaluations/{part}"
    files = [(path, "/".join(filter(None, (below, at)))) for path, at in files_of_results(results)]
    return _send(run_dir, points, files, verdict_of(results) if own else "")


def replace_page(run_dir: Path, page: Path) -> str | None:
    """Replace a page in MLflow by a new version; returns as `add_results`.

    Does nothing if there is no store, as for a run directory of another machine, or if the run still goes on: it sends
    its page at the end.
    """
    from rlvr.artifacts.directory import read_status

    is_running = mapping(read_status(run_dir)).get("status") in ("running", "interrupted")
    is_known = os.environ.get("MLFLOW_TRACKING_URI") or _store_exists(default_tracking_uri(run_dir))
    return None if is_running or not is_known else _send(run_dir, [], [(str(page), "")])


def _store_exists(uri: str) -> bool:
    file = store_file(uri)
    return file is None or file.is_file()


def _send(run_dir: Path, points: Sequence[Point], files: Sequence[tuple[str, str]], sentence: str = "") -> str | None:
    run_id = SentMetrics(run_dir).run_id
    if run_id is None:
        return None
    uri = default_tracking_uri(run_dir)
    if not _store_exists(uri):  # MLflow would create an empty one
        return f"Not sent to MLflow: no store {redact_uri(uri)}. Set MLFLOW_TRACKING_URI to its value in training."
    command = json.dumps({"uri": uri, "run_id": run_id, "points": points, "files": files, "verdict": sentence})
    try:
        with SlowStep("Sending the results to MLflow"):
            process = subprocess.run(
                [sys.executable, "-c", "from rlvr.tracking.mlflow_results import main; main()"],
                input=command,
                env=process_environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired):
        return f"MLflow at {redact_uri(uri)} may lack some of this: it does not answer in time."
    return process.stdout.strip() or f"Not sent to MLflow at {redact_uri(uri)}: its client failed to start."


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return {}


def main() -> None:
    """Run one command from standard input; print a message."""
    command = json.load(sys.stdin)
    output = os.dup(1)
    os.dup2(2, 1)  # MLflow prints addresses of runs on standard output
    uri = command["uri"]
    where = f"MLflow at {redact_uri(uri)}"
    try:
        send_results(uri, command["run_id"], command["points"], command["files"], command["verdict"])
        message = f"added to the run in {where}"
    except InputError as error:
        message = f"Not sent to {where}: {error}."
    except Exception as error:
        message = f"Not sent to {where}: it {describe_error(error, uri)}."
    os.write(output, f"{message}\n".encode())


def send_results(
    uri: str, run_id: str, points: Sequence[Point], files: Sequence[tuple[str, str]], sentence: str
) -> None:
    """Send metrics, files and the verdict to an existing run.

    Raises:
        InputError: there is no such run.
        Exception: any error of MLflow.
    """
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    if find_run(client, run_id) is None:
        raise InputError(f"it has no run {run_id}", kind="run-not-found")
    log_points(client, run_id, points)
    set_description(client, run_id, sentence)
    for path, place in files:
        client.log_artifact(run_id, path, place or None)


def find_run(client: Any, run_id: str) -> Any:
    """The run; None if it does not exist or was deleted."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None


def log_points(client: Any, run_id: str, points: Sequence[Point]) -> None:
    from mlflow.entities import Metric

    now = int(1000 * time.time())
    metrics = [Metric(name, value, now, step) for name, value, step in points]
    if metrics:
        client.log_batch(run_id, metrics=metrics, synchronous=True)


def set_description(client: Any, run_id: str, sentence: str) -> None:
    """Set the description on top of MLflow's page to the verdict, unless a user has written another one."""
    if not sentence:
        return
    tags = client.get_run(run_id).data.tags
    if tags.get(NOTE) in (None, "", tags.get(OUR_NOTE)):
        client.set_tag(run_id, OUR_NOTE, sentence)
        client.set_tag(run_id, NOTE, sentence)
