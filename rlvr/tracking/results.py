"""Send evaluation results and pages to the trackers that have a run directory, at its end or from a later script.

    messages = add_results(run_dir, Path("evaluations/gsm8k"))     # after scripts/evaluate.py

mlflow.json, wandb.json and trackio.json hold the run's names there and no address: a run directory from elsewhere must
not make this machine call a server. Addresses are those of the environment; MLflow's default is the store beside the
run. Each tracker gets the results from a process of its own, which is killed if the tracker does not answer.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from rlvr.artifacts.evaluation import Average, Evaluation, Interval, Measured, Sweep, read_evaluation, read_sweep
from rlvr.artifacts.evaluation_summary import table, verdict
from rlvr.artifacts.metrics import read_metrics
from rlvr.console import SlowStep
from rlvr.errors import InputError
from rlvr.formatting import hide_secrets, mapping
from rlvr.tracking.mlflow_ledger import SentMetrics, metric_name
from rlvr.tracking.mlflow_messages import describe_error, redact_uri
from rlvr.tracking.mlflow_store import default_tracking_uri, process_environment, store_file
from rlvr.tracking.tracked_run import tracked_run

# Results, in addition to the files that a run itself sends.
RESULTS = ("evaluation.json", "sweep.json", "sweep.svg", "sweep.png", "report.html", "comparison.html")
ANSWERS = ("evaluation_*.parquet", "samples_*.parquet")
RUN_FILES = ("versions.json", "metrics.jsonl", "result.json")
TIMEOUT_S = 120.0
NAMES = {"wandb": "W&B", "trackio": "trackio"}

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


def find_run_dir(output: Path, adapter: Path | None = None) -> Path | None:
    """The run directory of an evaluation: its own folder, or that of the adapter; None if no tracker has either."""
    folders = [output, *([adapter.resolve().parent] if adapter is not None else [])]
    return next((folder for folder in folders if _trackers(folder)), None)


def _trackers(run_dir: Path) -> list[str]:
    mlflow = ["mlflow"] if SentMetrics(run_dir).run_id is not None else []
    return mlflow + [name for name in NAMES if tracked_run(run_dir, name)]


def add_results(run_dir: Path, folder: Path, limit: int | None = None) -> list[str]:
    """Send the results in a folder to the run of a run directory in each of its trackers.

    Results of another folder than the run's own get that folder's name there, since they may be of other rows.

    Args:
        limit: evaluate.py's --limit, which becomes part of the metrics' names: an evaluation of fewer rows must not
            replace the newest value of a whole one.

    Returns:
        messages for the user.
    """
    own = folder.resolve() == run_dir.resolve()
    part = "/".join([*([] if own else [folder.resolve().name]), *([f"first_{limit}"] if limit else [])])
    results = results_of(folder, _last_step(run_dir), "/".join(filter(None, ("eval", part))))
    if not own:
        below = f"evaluations/{part}"
        files = [(path, "/".join(filter(None, (below, at)))) for path, at in results.files]
        results = replace(results, files=files, verdict="", place=below)
    return _send(run_dir, _trackers(run_dir), results)


def replace_page(run_dir: Path, page: Path) -> list[str]:
    """Replace a page in the trackers by a new version; returns as `add_results`.

    Does nothing if the run still goes on: it sends its page at the end. MLflow is left out if there is no store, as for
    a run directory of another machine.
    """
    from rlvr.artifacts.directory import read_status

    if mapping(read_status(run_dir)).get("status") in ("running", "interrupted"):
        return []
    has_store = os.environ.get("MLFLOW_TRACKING_URI") or _store_exists(default_tracking_uri(run_dir))
    names = [name for name in _trackers(run_dir) if has_store or name != "mlflow"]
    return _send(run_dir, names, Results(files=[(str(page), "")]))


def finish_run(run_dir: Path, environment: Mapping[str, str]) -> list[str]:
    """Send what a run has left to W&B and trackio, as mlflow_process.py does to MLflow; returns as `add_results`.

    Args:
        environment: added to that of the processes which send.
    """
    names = [name for name in _trackers(run_dir) if name in NAMES]
    return _send(run_dir, names, results_of(run_dir, _last_step(run_dir)), environment)


def _last_step(run_dir: Path) -> int:
    return max([SentMetrics(run_dir).step, *(line["step"] for line in read_metrics(run_dir / "metrics.jsonl")), 0])


def _store_exists(uri: str) -> bool:
    file = store_file(uri)
    return file is None or file.is_file()


def _send(
    run_dir: Path, names: Sequence[str], results: Results, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Send results to trackers, one after another; return a message for each."""
    messages = []
    for name in names:
        uri = default_tracking_uri(run_dir) if name == "mlflow" else ""
        where = f"MLflow at {redact_uri(uri)}" if uri else NAMES[name]
        if uri and not _store_exists(uri):  # MLflow would create an empty one
            hint = "Set MLFLOW_TRACKING_URI to its value in training."
            messages.append(f"Not sent to MLflow: no store {redact_uri(uri)}. {hint}")
            continue
        with tempfile.TemporaryDirectory() as copies:
            command = {
                **asdict(results),
                "tracker": name,
                "where": where,
                "uri": uri,
                "run": {"run_id": SentMetrics(run_dir).run_id} if uri else tracked_run(run_dir, name),
            }
            if not uri and not results.place:  # artifacts of W&B and trackio are versions of a whole
                command["files"] = _files_of_run(run_dir, Path(copies))
            messages.append(_send_command(command, environment or {}))
    return messages


def _files_of_run(run_dir: Path, copies: Path) -> list[tuple[str, str]]:
    """The files of a run; the recipe and a traceback as copies without secrets."""
    files = [(str(run_dir / name), "") for name in RUN_FILES if (run_dir / name).is_file()]
    for name in ("recipe.yaml", "failure.txt"):
        if (run_dir / name).is_file():
            text = (run_dir / name).read_text(encoding="utf-8", errors="replace")
            (copies / name).write_text(hide_secrets(text), encoding="utf-8")
            files.append((str(copies / name), ""))
    return [*files, *results_of(run_dir, 0).files]


def _send_command(command: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    where = command["where"]
    try:
        with SlowStep(f"Sending the results to {where}"):
            process = subprocess.run(
                [sys.executable, "-c", "from rlvr.tracking.results import main; main()"],
                input=json.dumps(command),
                env={**process_environment(), **environment},
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
    """Run one command from standard input; print a message."""
    command = json.load(sys.stdin)
    output = os.dup(1)
    os.dup2(2, 1)  # the trackers print addresses of runs on standard output
    where, uri = command["where"], command["uri"]
    results = Results(**{one.name: command[one.name] for one in fields(Results)})
    try:
        sender = importlib.import_module(f"rlvr.tracking.{command['tracker']}_results")
        place = sender.send_results(uri, command["run"], results) or ""
        message = f"added to the run in {where}{place}"
    except InputError as error:
        message = f"Not sent to {where}: {error}."
    except Exception as error:
        message = f"Not sent to {where}: it {describe_error(error, uri)}."
    os.write(output, f"{message}\n".encode())
