"""The MLflow run of a run directory: find or create it, and send metrics and results to it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from rlvr.errors import InputError
from rlvr.tracking.final_results import Results
from rlvr.tracking.messages import redact, redact_uri
from rlvr.tracking.metrics_tail import MetricsTail, metrics_of
from rlvr.tracking.tracked_run import default_tracking_uri, remember_run, store_file, tracked_run

NOTE, OUR_NOTE = "mlflow.note.content", "grpo-recipes.verdict"


class MLflowRun:
    """The MLflow run of a run directory, updated from metrics.jsonl.

    MLflow itself says which steps it has. `update` may raise any error of MLflow, and can then be called again.
    """

    def __init__(self, settings: Mapping[str, Any], report: Callable[[str], None]) -> None:
        self.settings = settings
        self.uri: str = settings["tracking_uri"]
        self.folder = Path(settings["folder"])
        self.report = report
        self.run_id: str = os.environ.get("MLFLOW_RUN_ID", "")
        self.client: Any = None
        self._has_rejected = False

    def update(self, status: str | None = None) -> None:
        """Send the new metrics; with a status, also end the run."""
        try:
            if self.client is None:
                self._connect()
            self._send()
            if status is not None:
                self.client.set_terminated(self.run_id, status)
        except Exception:
            self.client = None
            raise

    def _connect(self) -> None:
        """Find the run of this folder, or create one; report if the former run is gone."""
        make_store(self.uri)
        client = MlflowClient(tracking_uri=self.uri)
        remembered = tracked_run(self.folder, "mlflow").get("run_id", "")
        known = [run_id for run_id in dict.fromkeys((self.run_id, remembered)) if run_id]
        run = next((run for run_id in known if (run := find_run(client, run_id)) is not None), None)
        if run is None:
            run = client.create_run(self._experiment(client), run_name=self.settings["run_name"])
            if known:
                missing = f"MLflow at {redact_uri(self.uri)} has no run {known[0]}"
                self.report(f"{missing}. A new run gets everything in metrics.jsonl.")
        else:
            client.update_run(run.info.run_id, status="RUNNING")
        self.run_id = run.info.run_id
        remember_run(self.folder, "mlflow", run_id=self.run_id)
        self._log_params(client, run.data.params, run.data.tags)
        self.steps = {metric.key: metric.step for metric in run.data.to_proto().metrics}  # the last of each metric
        self.tail = MetricsTail(self.folder / "metrics.jsonl")
        self.client = client

    def _experiment(self, client: Any) -> str:
        if given := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return given
        name, store = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "grpo-recipes", store_file(self.uri)
        if client.get_experiment_by_name(name) is None:
            # Artifacts of a local store go next to it; MLflow's default is the working directory.
            location = (store.parent / "mlartifacts").as_uri() if store else None
            try:
                return str(client.create_experiment(name, artifact_location=location))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # else another run has created it just now
                    raise
        return str(client.get_experiment_by_name(name).experiment_id)

    def _log_params(self, client: Any, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Log params and tags that the run lacks. MLflow's params can't change: a new value becomes a tag."""
        wanted: dict[str, str] = self.settings["params"]
        new = [Param(name, value) for name, value in wanted.items() if name not in params]
        changed = {f"resumed.{name}": value for name, value in wanted.items() if params.get(name, value) != value}
        missing = {name: value for name, value in {**self.settings["tags"], **changed}.items() if name not in tags}
        client.log_batch(self.run_id, params=new, tags=[RunTag(*item) for item in missing.items()], synchronous=True)

    def _send(self) -> None:
        """Send what MLflow lacks of metrics.jsonl. MLflow's client puts 1,000 metrics in a request."""
        new: list[Metric] = []
        for line in self.tail.lines():
            step, time_ms = line["step"], int(1000 * line.get("time", 0))
            values = {name: value for name, value in metrics_of(line).items() if step > self.steps.get(name, -1)}
            new += [Metric(name, value, time_ms, step) for name, value in values.items()]
            self.steps |= dict.fromkeys(values, step)
        self._log(new)

    def _log(self, metrics: Sequence[Metric]) -> None:
        """Send metrics. Those that the server rejects are skipped, so that they can't block the others."""
        try:
            self.client.log_batch(self.run_id, metrics=metrics, synchronous=True)
        except MlflowException as error:
            rejected = error.error_code in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
            if not rejected or find_run(self.client, self.run_id) is None:
                raise
            if half := len(metrics) // 2:
                self._log(metrics[:half])
                self._log(metrics[half:])
                return
            if not self._has_rejected:
                cause = redact(str(error), self.uri).splitlines()[0][:300]
                self.report(f"MLflow rejects metrics of step {metrics[0].step}, which are skipped: {cause}")
            self._has_rejected = True


def send_results(run_dir: Path, results: Results) -> str:
    """Send metrics, files and the verdict to the run of a run directory.

    The verdict becomes the description on top of MLflow's page, unless a user has written another one.

    Raises:
        InputError: there is no such run.
    """
    uri, run_id = default_tracking_uri(run_dir), tracked_run(run_dir, "mlflow")["run_id"]
    file = store_file(uri)
    if file is not None and not file.is_file():  # MLflow would create an empty one
        hint = "there is no such store. Set MLFLOW_TRACKING_URI to its value in training"
        raise InputError(hint, kind="run-not-found")
    client = MlflowClient(tracking_uri=uri)
    run = find_run(client, run_id)
    if run is None:
        raise InputError(f"it has no run {run_id}", kind="run-not-found")
    now, tags = int(1000 * time.time()), run.data.tags
    metrics = [Metric(name, value, now, results.step) for name, value in results.metrics.items()]
    client.log_batch(run_id, metrics=metrics, synchronous=True)
    if results.verdict and tags.get(NOTE) in (None, "", tags.get(OUR_NOTE)):
        client.set_tag(run_id, OUR_NOTE, results.verdict)
        client.set_tag(run_id, NOTE, results.verdict)
    for path, folder in results.files:
        client.log_artifact(run_id, str(path), "/".join(filter(None, (results.place, folder))) or None)
    return ""


def find_run(client: Any, run_id: str) -> Any:
    """The run; None if it does not exist or was deleted."""
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None


def make_store(uri: str) -> None:
    """Create a missing SQLite store atomically.

    MLflow creates its tables in a hundred steps. A process that is killed between two of them leaves a store that
    MLflow can't use. So the store is created in a temporary folder. If that fails, MLflow reports the cause later.
    """
    file = store_file(uri)
    if file is None or file.exists() or not file.parent.is_dir():
        return
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as folder:
        temporary = Path(folder) / file.name
        MlflowClient(tracking_uri=f"sqlite:///{temporary}").search_experiments(max_results=1)
        with contextlib.suppress(OSError):  # another run was first, or the file system has no hard links
            os.link(temporary, file)
