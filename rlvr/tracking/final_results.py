"""Send evaluation results and pages of a run to its trackers: at the run's end, or from a later script.

    messages = add_results(run_dir, Path("evaluations/gsm8k"))     # after scripts/evaluate.py

Each tracker gets the results from a process of its own, which is killed if the tracker does not answer. The addresses
are those of the environment; MLflow's default is the store next to the run.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr.artifacts.directory import read_status
from rlvr.artifacts.evaluation import Average, Evaluation, Gain, Measured, read_evaluation
from rlvr.artifacts.evaluation_summary import verdict
from rlvr.artifacts.metrics import read_metrics
from rlvr.console import SlowStep
from rlvr.errors import InputError
from rlvr.formatting import hide_secrets
from rlvr.tracking.messages import describe_error, redact_uri
from rlvr.tracking.metrics_tail import metric_name
from rlvr.tracking.tracked_run import default_tracking_uri, process_environment, store_file, tracked_run

RESULTS = ("evaluation.json", "sweep.json", "sweep.svg", "sweep.png", "report.html", "comparison.html")
RUN_FILES = ("versions.json", "metrics.jsonl", "result.json")
COPIED_FILES = ("recipe.yaml", "failure.txt")  # without secrets
TIMEOUT_S = 120.0
NAMES = {"mlflow": "MLflow", "wandb": "W&B", "trackio": "trackio"}


@dataclass(frozen=True)
class Results:
    """What a tracker gets.

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

    def log_to(self, library: Any, run: Any, owner: str) -> None:
        """Log metrics and files to a run of W&B, or of trackio, which has W&B's interface.

        Args:
            library: wandb or trackio.
            owner: the run's id or name, for the name of the artifact.
        """
        if self.metrics:
            run.log({"train/global_step": self.step, **self.metrics})
        if self.files:
            name = re.sub(r"[^\w.-]+", "-", f"{self.place or 'results'}-{owner}")[:128]
            artifact = library.Artifact(name, type="evaluation")
            for path, folder in self.files:
                artifact.add_file(str(path), str(Path(folder, path.name)))
            run.log_artifact(artifact)


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


def add_results(run_dir: Path, folder: Path, limit: int | None = None, *, has_ended: bool = False) -> list[str]:
    """Send the results in a folder to the run of a run directory in each of its trackers.

    Results of another folder than the run's own get that folder's name there, since they may be of other rows.

    Args:
        limit: evaluate.py's --limit, which becomes part of the metrics' names: an evaluation of fewer rows must not
            replace the newest value of a whole one.
        has_ended: whether the run has just ended: MLflow then gets its completions, too.

    Returns:
        messages for the user.
    """
    other = folder.resolve().name if folder.resolve() != run_dir.resolve() else ""
    part = "/".join(filter(None, (other, f"first_{limit}" if limit else "")))
    return [_send(name, run_dir, folder, part, "run" if has_ended else "results") for name in _trackers(run_dir)]


def _trackers(run_dir: Path) -> list[str]:
    return [name for name in NAMES if tracked_run(run_dir, name)]


def replace_pages(run_dir: Path) -> list[str]:
    """Replace the files of a run in the trackers by new versions, after a report or a comparison was written.

    Does nothing if the run still goes on: it sends its page at the end. MLflow is left out if there is no store, as for
    a run directory of another machine.
    """
    if (read_status(run_dir) or {}).get("status") in ("running", "interrupted"):
        return []
    store = store_file(default_tracking_uri(run_dir))
    names = [name for name in _trackers(run_dir) if name != "mlflow" or store is None or store.is_file()]
    return [_send(name, run_dir, run_dir, "", "pages") for name in names]


def _send(name: str, run_dir: Path, folder: Path, part: str, content: str) -> str:
    """Call `main` in a process; return its message."""
    uri = default_tracking_uri(run_dir) if name == "mlflow" else ""
    where = f"{NAMES[name]} at {redact_uri(uri)}" if uri else NAMES[name]
    command = [sys.executable, "-c", "from rlvr.tracking.final_results import main; main()"]
    try:
        with SlowStep(f"Sending the results to {where}"):
            process = subprocess.run(
                [*command, name, where, str(run_dir), str(folder), part, content],
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
    name, where, run_dir, folder, part, content = sys.argv[1:]
    output = os.dup(1)
    os.dup2(2, 1)  # the trackers print addresses of runs on standard output
    try:
        tracker = importlib.import_module(f"rlvr.tracking.{name}_run")
        with tempfile.TemporaryDirectory() as copies:
            # transformers' trackers have the completions of training.
            all_answers = name == "mlflow" and content == "run"
            results = _collect(Path(run_dir), Path(folder), part, Path(copies), all_answers=all_answers)
            place = tracker.send_results(Path(run_dir), Results(results.files) if content == "pages" else results)
        message = f"added to the run in {where}{place}"
    except InputError as error:
        message = f"Not sent to {where}: {error}."
    except Exception as error:
        message = f"Not sent to {where}: it {describe_error(error, os.environ.get('MLFLOW_TRACKING_URI', ''))}."
    os.write(output, f"{message}\n".encode())


def _collect(run_dir: Path, folder: Path, part: str, copies: Path, *, all_answers: bool) -> Results:
    """The results in a folder, with all its files: artifacts are versions of a whole.

    Args:
        copies: a folder for the recipe and a traceback without secrets.
        all_answers: whether the completions of training go, too.
    """
    is_own = folder.resolve() == run_dir.resolve()
    files = [folder / name for name in (*RESULTS, *RUN_FILES)]
    for name in COPIED_FILES:
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
            (copies / name).write_text(hide_secrets(text), encoding="utf-8")
            files.append(copies / name)
    for pattern in ["*"] if all_answers else ["evaluation_*.parquet", "samples_*.parquet"]:
        files += sorted((folder / "completions").glob(pattern))
    try:
        evaluation = read_evaluation(folder)
    except InputError:  # it is damaged
        evaluation = Evaluation()
    conclusion = verdict(evaluation)
    return Results(
        files=[(path, "completions" if path.parent.name == "completions" else "") for path in files if path.is_file()],
        metrics=metrics_of_results(evaluation, "/".join(filter(None, ("eval", part)))),
        step=max((line["step"] for line in read_metrics(run_dir / "metrics.jsonl")), default=0),
        verdict=conclusion.sentence if is_own and conclusion.kind != "unknown" else "",
        place="" if is_own else f"evaluations/{part}",
    )
