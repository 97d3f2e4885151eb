"""Send evaluation results of a run to MLflow and W&B: at the run's end, or after a later evaluation.

    messages = add_results(run_dir, Path("evaluations/gsm8k"))     # after scripts/evaluate.py

Each tracker gets the results from a process of its own, which is killed if the tracker does not answer. The addresses
are those of the environment; MLflow's default is the store next to the run.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlvr.artifacts.directory import read_json
from rlvr.artifacts.evaluation import Average, Evaluation, Gain, Measured, read_evaluation
from rlvr.artifacts.evaluation_summary import verdict
from rlvr.artifacts.metrics import read_metrics
from rlvr.console import SlowStep
from rlvr.errors import InputError
from rlvr.formatting import hide_secrets
from rlvr.tracking.messages import describe_error, redact_uri
from rlvr.tracking.metrics_tail import metric_name
from rlvr.tracking.tracked_run import default_tracking_uri, process_environment, tracked_run

RESULTS = ("evaluation.json", "report.html", "comparison.html")
RUN_FILES = ("versions.json", "metrics.jsonl", "result.json")
COPIED_FILES = ("recipe.yaml", "failure.txt")  # without secrets
TIMEOUT_S = 120.0
NAMES = {"mlflow": "MLflow", "wandb": "W&B"}
Senders = Mapping[str, subprocess.Popen[str]]  # by the tracker's name


@dataclass(frozen=True)
class Results:
    """What MLflow and W&B get.

    Attributes:
        files: path, and folder below `place`.
        step: of the metrics.
        verdict: in a sentence; "" if nothing is compared.
        place: folder in the tracker; "" for the run's own results.
    """

    files: Sequence[tuple[Path, str]] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    step: int = 0
    verdict: str = ""
    place: str = ""


def metrics_of_results(evaluation: Evaluation, prefix: str = "eval") -> dict[str, float]:
    """The accuracies of all tasks and of each, with their intervals."""
    parts = {prefix: evaluation.overall, **{f"{prefix}/{label}": part for label, part in evaluation.tasks.items()}}
    return {metric_name(name): value for start, part in parts.items() for name, value in _figures(part, start)}


def _figures(part: Measured | Average, prefix: str) -> Iterator[tuple[str, float]]:
    for name, figure in {"base_accuracy": part.base, "accuracy": part.trained, "difference": part.difference}.items():
        if figure is not None:
            yield f"{prefix}/{name}", float(figure.points if isinstance(figure, Gain) else figure.accuracy)
            yield f"{prefix}/{name}_low", float(figure.interval.low)
            yield f"{prefix}/{name}_high", float(figure.interval.high)


def start_senders(run_dir: Path, started: Senders | None = None) -> Senders:
    """Start a process for each tracker of a run. It imports the tracker's client, which takes seconds, and waits."""
    senders = dict(started or {})
    for name in NAMES:
        if name not in senders and tracked_run(run_dir, name):
            with contextlib.suppress(OSError):  # `add_results` says what is not sent
                senders[name] = _start(name, run_dir)
    return senders


def stop_senders(senders: Senders) -> None:
    """End processes that have nothing to send."""
    for process in senders.values():
        with process:
            process.kill()


def add_results(run_dir: Path, folder: Path, *, has_ended: bool = False, senders: Senders | None = None) -> list[str]:
    """Send the results in a folder to the run of a run directory in each of its trackers.

    Results of another folder than the run's own get that folder's name there, since they may be of other rows.

    Args:
        has_ended: whether the run has just ended: MLflow then gets its completions, too.
        senders: of `start_senders`, if it was called before.

    Returns:
        messages for the user.
    """
    content = "run" if has_ended else "results"
    senders = start_senders(run_dir, senders)
    messages = []
    for name, label in NAMES.items():
        if name in senders:
            messages.append(_send(senders[name], _where(name, run_dir), folder, content))
        elif tracked_run(run_dir, name):
            messages.append(f"Not sent to {_where(name, run_dir)}: its client failed to start.")
        elif original := read_json(run_dir / f"{name}.json").get("folder"):
            messages.append(f"Not sent to {label}: its {name}.json belongs to {original}, of which this is a copy.")
    return messages


def _where(name: str, run_dir: Path) -> str:
    uri = default_tracking_uri(run_dir) if name == "mlflow" else ""
    return f"{NAMES[name]} at {redact_uri(uri)}" if uri else NAMES[name]


def _start(name: str, run_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from rlvr.tracking.final_results import main; main()"]
    return subprocess.Popen(
        [*command, name, _where(name, run_dir), str(run_dir)],
        env=process_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _send(process: subprocess.Popen[str], where: str, folder: Path, content: str) -> str:
    """Let a process send the results; return its message."""
    with process, SlowStep(f"Sending the results to {where}"):
        try:
            output, _ = process.communicate(json.dumps([str(folder), content]), TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return f"{where} may lack some of this: it does not answer in time."
    return output.strip() or f"Not sent to {where}: its client failed to start."


def main() -> None:
    """Send the results that standard input names to the tracker that the arguments name; print a message."""
    name, where, run_dir = sys.argv[1:]
    output = os.dup(1)
    os.dup2(2, 1)  # the trackers print addresses of runs on standard output
    try:
        tracker = importlib.import_module(f"rlvr.tracking.{name}_run")
        request = sys.stdin.read()
        if not request:  # the run was interrupted or killed
            return
        folder, content = json.loads(request)
        with tempfile.TemporaryDirectory() as copies:
            # transformers' trackers have the completions of training.
            all_answers = name == "mlflow" and content == "run"
            results = _collect(Path(run_dir), Path(folder), Path(copies), all_answers=all_answers)
            place = tracker.send_results(Path(run_dir), results)
        message = f"added to the run in {where}{place}"
    except InputError as error:
        message = f"Not sent to {where}: {error}."
    except Exception as error:
        message = f"Not sent to {where}: it {describe_error(error, os.environ.get('MLFLOW_TRACKING_URI', ''))}."
    os.write(output, f"{message}\n".encode())


def _collect(run_dir: Path, folder: Path, copies: Path, *, all_answers: bool) -> Results:
    """The results in a folder, with all its files: artifacts are versions of a whole.

    Args:
        copies: a folder for the recipe and a traceback without secrets.
        all_answers: whether the completions of training go, too.
    """
    is_own = folder.resolve() == run_dir.resolve()
    name = folder.resolve().name
    files = [folder / file for file in (*RESULTS, *RUN_FILES)]
    for file in COPIED_FILES:
        if (folder / file).is_file():
            text = (folder / file).read_text(encoding="utf-8", errors="replace")
            (copies / file).write_text(hide_secrets(text), encoding="utf-8")
            files.append(copies / file)
    for pattern in ["*"] if all_answers else ["evaluation_*.parquet", "samples_*.parquet"]:
        files += sorted((folder / "completions").glob(pattern))
    try:
        evaluation = read_evaluation(folder)
    except InputError:  # it is damaged
        evaluation = Evaluation()
    conclusion = verdict(evaluation)
    return Results(
        files=[(path, "completions" if path.parent.name == "completions" else "") for path in files if path.is_file()],
        metrics=metrics_of_results(evaluation, "eval" if is_own else f"eval/{name}"),
        step=max((line["step"] for line in read_metrics(run_dir / "metrics.jsonl")), default=0),
        verdict=conclusion.sentence if is_own and conclusion.kind != "unknown" else "",
        place="" if is_own else f"evaluations/{name}",
    )
