"""What was measured of a run, as MLflow is told of it: at the end of the run, and by the scripts that measure later.

    notes = add_to_run(run_dir, Path("evaluations/gsm8k"))     # after scripts/evaluate.py

A run directory names no server (mlflow.json holds the run's id alone): what came from elsewhere must not make us call
an address that it gives. So a run is looked for where MLFLOW_TRACKING_URI says, or in the store beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.artifacts.evaluation_summary import verdict
from rlvr.errors import InputError
from rlvr.formatting import is_number, mapping
from rlvr.tracking.mlflow_ledger import SentMetrics, metric_name, reason, shown_uri
from rlvr.tracking.mlflow_store import default_tracking_uri, process_environment, store_file

# Beside metrics.jsonl and the completions of training, which are the run's own.
RESULTS = ("evaluation.json", "sweep.json", "sweep.svg", "sweep.png", "report.html", "comparison.html")
ANSWERS = ("evaluation_*.parquet", "samples_*.parquet")
TIMEOUT_S = 120.0
NOTE, OUR_NOTE = "mlflow.note.content", "grpo-recipes.verdict"

Point = tuple[str, float, int]  # name, value, step


def metrics_of_results(folder: Path, step: int, prefix: str = "eval") -> list[Point]:
    """The figures of an evaluation.json, and those of a sweep.json with the number of shots as their step."""
    content = _read(folder / "evaluation.json")
    found = [(name, value, step) for name, value in _accuracies(content, prefix)]
    points = _read(folder / "sweep.json").get("points")
    for point in map(mapping, points if isinstance(points, list) else []):
        shots = point.get("shots")
        if isinstance(shots, int) and not isinstance(shots, bool):
            found += [(name, value, shots) for name, value in _accuracies(point, f"{prefix}/by_shots")]
    return [(metric_name(name), float(value), at) for name, value, at in found if is_number(value)]


def _accuracies(content: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for model, name in (("base", "base_accuracy"), ("trained", "accuracy")):
        yield from _with_interval(f"{prefix}/{name}", mapping(content.get(model)), "accuracy")
    yield from _with_interval(f"{prefix}/difference", mapping(content.get("difference")), "points")


def _with_interval(name: str, content: Mapping[str, Any], key: str) -> Iterable[tuple[str, Any]]:
    interval = mapping(content.get("interval"))
    return (name, content.get(key)), (f"{name}_low", interval.get("low")), (f"{name}_high", interval.get("high"))


def verdict_of(folder: Path) -> str:
    """The sentence of the report on an evaluation.json; nothing where it compares nothing."""
    found = verdict(_read(folder / "evaluation.json"))
    return "" if found.kind == "unknown" else found.sentence


def files_of_results(folder: Path) -> list[tuple[str, str]]:
    """The files of an evaluation and of its reports that are there, each with the folder that MLflow keeps it in."""
    found = [(folder / name, "") for name in RESULTS if (folder / name).is_file()]
    found += [(path, "completions") for pattern in ANSWERS for path in sorted((folder / "completions").glob(pattern))]
    return [(str(path), place) for path, place in found]


def run_of(output: Path, adapter: Path | None = None) -> Path | None:
    """The run directory that an evaluation belongs to: where it is written, or where its adapter comes from."""
    folders = [output, *([adapter.resolve().parent] if adapter is not None else [])]
    return next((folder for folder in folders if SentMetrics(folder).run_id is not None), None)


def add_to_run(run_dir: Path, results: Path) -> str | None:
    """Adds what was measured into a folder to the MLflow run of a run directory, where it has one.

    What lies in another folder than the run's own is kept apart in MLflow, by that folder's name: it may be of other
    rows than what the run itself has measured.

    Returns:
        A sentence for the user; None where there is no MLflow run.
    """
    own = results.resolve() == run_dir.resolve()
    name = results.resolve().name
    points = metrics_of_results(results, max(SentMetrics(run_dir).step, 0), "eval" if own else f"eval/{name}")
    below = "" if own else f"evaluations/{name}"
    files = [(path, "/".join(filter(None, (below, at)))) for path, at in files_of_results(results)]
    return _add(run_dir, points, files, verdict_of(results) if own else "")


def add_page(run_dir: Path, page: Path) -> str | None:
    """Puts a page that was made again in the place of the one that MLflow has; what it returns is as of `add_to_run`.

    Nothing is said, nor done, where MLflow is nowhere to be found: who makes a page of a run that came in the mail
    has no such store. A run that is still going sends its own at the end.
    """
    from rlvr.artifacts.directory import read_status

    going = mapping(read_status(run_dir)).get("status") in ("running", "interrupted")
    if going or (not os.environ.get("MLFLOW_TRACKING_URI") and not _store_is_there(default_tracking_uri(run_dir))):
        return None
    return _add(run_dir, [], [(str(page), "")])


def _store_is_there(uri: str) -> bool:
    file = store_file(uri)
    return file is None or file.is_file()


def _add(run_dir: Path, points: Sequence[Point], files: Sequence[tuple[str, str]], sentence: str = "") -> str | None:
    run_id = SentMetrics(run_dir).run_id
    if run_id is None:
        return None
    uri = default_tracking_uri(run_dir)
    if not _store_is_there(uri):  # MLflow would make an empty one
        return (
            f"MLflow was not told: there is no store {shown_uri(uri)}. Set MLFLOW_TRACKING_URI as it was in training."
        )
    order = json.dumps({"uri": uri, "run_id": run_id, "points": points, "files": files, "verdict": sentence})
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from rlvr.tracking.mlflow_results import main; main()"],
            input=order,
            env=process_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"MLflow at {shown_uri(uri)} has not got all of this: it does not answer in time."
    return done.stdout.strip() or f"MLflow at {shown_uri(uri)} has not got this: its client failed to start."


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return {}


# ----------------------------------------------------------------------------------------------------------------------
# The process


def main() -> None:
    """Carries out one order from standard input; prints one sentence."""
    order = json.load(sys.stdin)
    sentences = os.dup(1)
    os.dup2(2, 1)  # MLflow prints the addresses of runs
    where = f"MLflow at {shown_uri(order['uri'])}"
    try:
        send_results(order["uri"], order["run_id"], order["points"], order["files"], order["verdict"])
        said = f"added to the run in {where}"
    except InputError as error:
        said = f"{where} has not got this: {error}."
    except Exception as error:
        said = f"{where} has not got this: it {reason(error, order['uri'])}."
    os.write(sentences, f"{said}\n".encode())


def send_results(
    uri: str, run_id: str, points: Sequence[Point], files: Sequence[tuple[str, str]], sentence: str
) -> None:
    """Sends figures, files and the verdict to a run that is there.

    Raises:
        InputError: there is no such run (any more).
        Exception: whatever MLflow raises.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(tracking_uri=uri)
    try:
        lost = client.get_run(run_id).info.lifecycle_stage != "active"
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        lost = True
    if lost:
        raise InputError(f"it has no run {run_id} (any more)")
    log_points(client, run_id, points)
    describe(client, run_id, sentence)
    for path, place in files:
        client.log_artifact(run_id, path, place or None)


def log_points(client: Any, run_id: str, points: Sequence[Point]) -> None:
    from mlflow.entities import Metric

    now = int(1000 * time.time())
    if points:
        client.log_batch(
            run_id, metrics=[Metric(name, value, now, step) for name, value, step in points], synchronous=True
        )


def describe(client: Any, run_id: str, sentence: str) -> None:
    """Makes the verdict the description that MLflow's page shows on top, unless somebody has written another there."""
    if not sentence:
        return
    tags = client.get_run(run_id).data.tags
    if tags.get(NOTE) in (None, "", tags.get(OUR_NOTE)):
        client.set_tag(run_id, OUR_NOTE, sentence)
        client.set_tag(run_id, NOTE, sentence)
