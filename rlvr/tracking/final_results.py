"""Evaluation results and pages of a run, and sending them to its trackers: at the run's end or from a later script.

    messages = add_results(run_dir, Path("evaluations/gsm8k"))     # after scripts/evaluate.py

Each tracker gets the results from a process of its own, which is killed if the tracker does not answer. The addresses
are those of the environment; MLflow's default is the store next to the run.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from rlvr.artifacts.directory import read_status
from rlvr.artifacts.evaluation import Average, Evaluation, Interval, Measured, Sweep, read_evaluation, read_sweep
from rlvr.artifacts.evaluation_summary import table, verdict
from rlvr.artifacts.metrics import read_metrics
from rlvr.console import SlowStep
from rlvr.errors import InputError
from rlvr.formatting import hide_secrets, mapping
from rlvr.tracking.messages import describe_error, redact_uri
from rlvr.tracking.metrics_tail import metric_name
from rlvr.tracking.tracked_run import default_tracking_uri, process_environment, store_file, tracked_run

RESULTS = ("evaluation.json", "sweep.json", "sweep.svg", "sweep.png", "report.html", "comparison.html")
ANSWERS = ("evaluation_*.parquet", "samples_*.parquet")
RUN_FILES = ("versions.json", "metrics.jsonl", "result.json")
COPIED_FILES = ("recipe.yaml", "failure.txt")  # without secrets
TIMEOUT_S = 120.0
NAMES = {"mlflow": "MLflow", "wandb": "W&B", "trackio": "trackio"}

Content = TypeVar("Content")
Point = tuple[str, float, int]  # name, value, step


@dataclass(frozen=True)
class Results:
    """What a tracker gets.

    Attributes:
        points: metrics.
        files: path, and folder in the tracker.
        verdict, label: in a sentence, and short; "" if nothing is compared.
        table: before and after, the header first.
        place: "" for the run's own results, else the folder of the evaluation.
    """

    points: Sequence[Point] = ()
    files: Sequence[tuple[str, str]] = ()
    verdict: str = ""
    label: str = ""
    table: Sequence[Sequence[str]] = ()
    place: str = ""

    def lines(self) -> list[dict[str, float]]:
        """The metrics of each step with that step, as W&B and trackio log them."""
        lines: dict[tuple[str, int], dict[str, float]] = {}
        for name, value, step in self.points:
            axis = "shots" if "/by_shots/" in name else "train/global_step"
            lines.setdefault((axis, step), {axis: step})[name] = value
        return list(lines.values())


def metrics_of_results(folder: Path, step: int, prefix: str = "eval") -> list[Point]:
    """The metrics of evaluation.json, and those of sweep.json with the number of shots as their step."""
    evaluation, sweep = _read(read_evaluation, folder) or Evaluation(), _read(read_sweep, folder) or Sweep()
    points = _points(evaluation.overall, prefix, step)
    for label, part in evaluation.tasks.items():
        points += _points(part, f"{prefix}/{label}", step)
    for point in sweep.points:
        if point.shots is not None:
            points += _points(point, f"{prefix}/by_shots", point.shots)
    return points


def _read(read: Callable[[Path], Content], folder: Path) -> Content | None:
    """The content of a file; None if it is damaged, and there is nothing to send."""
    try:
        return read(folder)
    except InputError:
        return None


def _points(results: Measured | Average, prefix: str, step: int) -> list[Point]:
    values: dict[str, float] = {}
    if results.base is not None:
        values |= _with_interval("base_accuracy", results.base.accuracy, results.base.interval)
    if results.trained is not None:
        values |= _with_interval("accuracy", results.trained.accuracy, results.trained.interval)
    if results.difference is not None:
        values |= _with_interval("difference", results.difference.points, results.difference.interval)
    return [(metric_name(f"{prefix}/{name}"), float(value), step) for name, value in values.items()]


def _with_interval(name: str, value: float, interval: Interval) -> dict[str, float]:
    return {name: value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def results_of(folder: Path, step: int, prefix: str = "eval") -> Results:
    """The results in a folder."""
    evaluation = _read(read_evaluation, folder) or Evaluation()
    conclusion, rows = verdict(evaluation), table(evaluation)
    files = [(folder / name, "") for name in RESULTS if (folder / name).is_file()]
    files += [(path, "completions") for pattern in ANSWERS for path in sorted((folder / "completions").glob(pattern))]
    return Results(
        points=metrics_of_results(folder, step, prefix),
        files=[(str(path), place) for path, place in files],
        verdict="" if conclusion.kind == "unknown" else conclusion.sentence,
        label=conclusion.label,
        table=[("", *rows.header), *rows.rows] if rows is not None else (),
    )


def files_of_run(run_dir: Path, copies: Path) -> list[tuple[str, str]]:
    """The files of a run, with its results; the recipe and a traceback as copies without secrets."""
    files = [(str(run_dir / name), "") for name in RUN_FILES if (run_dir / name).is_file()]
    for name in COPIED_FILES:
        if (run_dir / name).is_file():
            text = (run_dir / name).read_text(encoding="utf-8", errors="replace")
            (copies / name).write_text(hide_secrets(text), encoding="utf-8")
            files.append((str(copies / name), ""))
    return [*files, *results_of(run_dir, 0).files]


def last_step(run_dir: Path) -> int:
    """The step of the last log line; 0 if there is none."""
    return max((line["step"] for line in read_metrics(run_dir / "metrics.jsonl")), default=0)


def find_run_dir(output: Path, adapter: Path | None = None) -> Path | None:
    """The run directory of an evaluation: its own folder, or that of the adapter; None if no tracker has either."""
    folders = [output, *([adapter.resolve().parent] if adapter is not None else [])]
    return next((folder for folder in folders if _trackers(folder)), None)


def _trackers(run_dir: Path) -> list[str]:
    return [name for name in NAMES if tracked_run(run_dir, name)]


def add_results(run_dir: Path, folder: Path, limit: int | None = None) -> list[str]:
    """Send the results in a folder to the run of a run directory in each of its trackers.

    Results of another folder than the run's own get that folder's name there, since they may be of other rows.

    Args:
        limit: evaluate.py's --limit, which becomes part of the metrics' names: an evaluation of fewer rows must not
            replace the newest value of a whole one.

    Returns:
        messages for the user.
    """
    is_own = folder.resolve() == run_dir.resolve()
    part = "/".join([*([] if is_own else [folder.resolve().name]), *([f"first_{limit}"] if limit else [])])
    return [_send(name, run_dir, folder, part) for name in _trackers(run_dir)]


def replace_pages(run_dir: Path) -> list[str]:
    """Replace the files of a run in the trackers by new versions, after a report or a comparison was written.

    Does nothing if the run still goes on: it sends its page at the end. MLflow is left out if there is no store, as for
    a run directory of another machine.
    """
    if mapping(read_status(run_dir)).get("status") in ("running", "interrupted"):
        return []
    store = store_file(default_tracking_uri(run_dir))
    names = [name for name in _trackers(run_dir) if name != "mlflow" or store is None or store.is_file()]
    return [_send(name, run_dir, run_dir, metrics=False) for name in names]


def finish_run(run_dir: Path) -> list[str]:
    """Send what a run has left to W&B and trackio, as mlflow_sender.py does to MLflow; returns as `add_results`."""
    return [_send(name, run_dir, run_dir) for name in _trackers(run_dir) if name != "mlflow"]


def _send(name: str, run_dir: Path, folder: Path, part: str = "", metrics: bool = True) -> str:
    """Call `main` in a process; return its message."""
    uri = default_tracking_uri(run_dir) if name == "mlflow" else ""
    where = f"{NAMES[name]} at {redact_uri(uri)}" if uri else NAMES[name]
    command = [sys.executable, "-c", "from rlvr.tracking.final_results import main; main()"]
    try:
        with SlowStep(f"Sending the results to {where}"):
            process = subprocess.run(
                [*command, name, where, str(run_dir), str(folder), part, "metrics" if metrics else ""],
                env=process_environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired):
        return f"{where} may lack some of this: it does not answer in time."
    return process.stdout.strip() or f"Not sent to {where}: its client failed to start."


def main() -> None:
    """Send the results that the arguments name to one tracker; print a message."""
    name, where, run_dir, folder, part, metrics = sys.argv[1:]
    output = os.dup(1)
    os.dup2(2, 1)  # the trackers print addresses of runs on standard output
    try:
        tracker = importlib.import_module(f"rlvr.tracking.{name}_run")
        with tempfile.TemporaryDirectory() as copies:
            results = _collect(Path(run_dir), Path(folder), part, Path(copies))
            place = tracker.send_results(Path(run_dir), results if metrics else Results(files=results.files))
        message = f"added to the run in {where}{place}"
    except InputError as error:
        message = f"Not sent to {where}: {error}."
    except Exception as error:
        message = f"Not sent to {where}: it {describe_error(error, os.environ.get('MLFLOW_TRACKING_URI', ''))}."
    os.write(output, f"{message}\n".encode())


def _collect(run_dir: Path, folder: Path, part: str, copies: Path) -> Results:
    """The results in a folder. With a run's own results go all its files: artifacts are versions of a whole."""
    results = results_of(folder, last_step(run_dir), "/".join(filter(None, ("eval", part))))
    if folder.resolve() == run_dir.resolve():
        return replace(results, files=files_of_run(run_dir, copies))
    below = f"evaluations/{part}"
    files = [(path, "/".join(filter(None, (below, at)))) for path, at in results.files]
    return replace(results, files=files, verdict="", place=below)
