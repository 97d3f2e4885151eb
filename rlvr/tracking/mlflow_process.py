"""The process that sends metrics to MLflow, so that training never waits for it. mlflow_tracker.py starts it.

It follows metrics.jsonl and sends new lines. So nothing is queued in memory, and nothing is lost during an outage.

Commands are JSON lines on standard input: first the settings; {"do": "send"} once metrics.jsonl has its final
beginning (a resumed run truncates it first); {"do": "close", "status": …} at the end. Lines on standard output are
messages for the user. If the trainer dies without a command, the run is marked KILLED and this process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from rlvr.errors import InputError
from rlvr.formatting import hide_secrets
from rlvr.tracking.metrics_tail import MetricsTail
from rlvr.tracking.mlflow_ledger import SentMetrics
from rlvr.tracking.mlflow_messages import describe_error, redact, redact_uri
from rlvr.tracking.mlflow_results import find_run, log_points, set_description
from rlvr.tracking.mlflow_store import make_store, store_file
from rlvr.tracking.results import results_of

POLL_S = 1.0
MAX_BACKOFF_S = 60.0
LOCK_TIMEOUT_S = 120.0  # for the process of a killed session, whose request takes up to 30 s
METRICS_A_REQUEST = 1000  # MLflow's own limit
ARTIFACTS = ("versions.json", "failure.txt", "metrics.jsonl")
KEY_TAG = "grpo-recipes.key"  # finds a run whose creation was not confirmed


class MLflowRun:
    """The MLflow run of a run directory: found or created, and updated from metrics.jsonl.

    Every method may raise any error of MLflow, and can then be called again.
    """

    def __init__(self, settings: Mapping[str, Any], report: Callable[[str], None]) -> None:
        self.settings = settings
        self.uri: str = settings["tracking_uri"]
        self.folder = Path(settings["folder"])
        self.sent = SentMetrics(self.folder)
        self.tail = MetricsTail(self.folder / "metrics.jsonl")
        self.report = report
        self.client: Any = None
        self.sends = 0
        self.has_params = False
        self.reported_refusal = False
        self.reported_new_run = False

    @property
    def run_id(self) -> str:
        assert self.sent.run_id is not None
        return self.sent.run_id

    def update(self, sends: int, status: str | None) -> int:
        """Bring the run up to date, and finish it with a status; return the number of log lines sent.

        Args:
            sends: how often the trainer has said that metrics.jsonl has its final beginning.
        """
        if sends > self.sends:
            self.sends, self.tail.offset = sends, 0
        if self.client is None:
            self.connect()
        count = self.send() if sends else 0
        if status is not None:
            self.finish(status)
        return count

    def connect(self) -> None:
        """Find the run of this folder, or create one; report if the former run is gone."""
        from mlflow import MlflowClient

        make_store(self.uri)
        client = MlflowClient(tracking_uri=self.uri)
        former = self.sent.run_id
        candidates = [run_id for run_id in (self.settings.get("run_id"), former) if run_id]
        run = next((run for run_id in candidates if (run := find_run(client, run_id)) is not None), None)
        if run is None:
            if former is not None:
                self.sent.run_id = self.sent.key = None
            if candidates and not self.reported_new_run:
                self.reported_new_run = True
                missing = f"MLflow at {redact_uri(self.uri)} has no run {candidates[0]}"
                self.report(f"{missing}. A new run gets everything in metrics.jsonl.")
            run = self._create_run(client)
        else:
            client.update_run(run.info.run_id, status="RUNNING")
        if run.info.run_id != former:
            self.tail.offset = 0
        self.sent.set_run(run.info.run_id)
        if not self.has_params:
            self._log_params(client, dict(run.data.params), dict(run.data.tags))
        self.has_params = True
        self.client = client

    def _create_run(self, client: Any) -> Any:
        """Create a run; or find the one that an earlier request created although its answer was lost."""
        experiment = self._experiment(client)
        if self.sent.run_id is None and self.sent.key is not None:
            runs = client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{self.sent.key}'", max_results=1)
            if runs:
                return runs[0]
        self.sent.key = uuid.uuid4().hex
        self.sent.save()
        tags = {**self.settings["tags"], KEY_TAG: self.sent.key}
        return client.create_run(experiment, run_name=self.settings["run_name"], tags=tags)

    def _experiment(self, client: Any) -> str:
        if self.settings.get("experiment_id"):
            return str(self.settings["experiment_id"])
        name = self.settings["experiment"]
        experiment = client.get_experiment_by_name(name)
        if experiment is not None and experiment.lifecycle_stage == "deleted":
            message = f"its experiment {name!r} was deleted: restore it, or set MLFLOW_EXPERIMENT_NAME"
            raise InputError(message, kind="experiment-deleted")
        if experiment is not None:
            return str(experiment.experiment_id)
        # Artifacts of a local store go beside it; MLflow's default is the working directory.
        store = store_file(self.uri)
        location = (store.parent / "mlartifacts").as_uri() if store else None
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except Exception:
            experiment = client.get_experiment_by_name(name)  # another run may have created it just now
            if experiment is None:
                raise
            return str(experiment.experiment_id)

    def _log_params(self, client: Any, params: dict[str, str], tags: dict[str, str]) -> None:
        """Log params and tags that the run lacks. MLflow's params can't change: a new value becomes a tag."""
        from mlflow.entities import Param, RunTag

        wanted: dict[str, str] = self.settings["params"]
        new = [Param(name, value) for name, value in wanted.items() if name not in params]
        changed = {f"resumed.{name}": value for name, value in wanted.items() if params.get(name, value) != value}
        missing = {name: value for name, value in {**self.settings["tags"], **changed}.items() if name not in tags}
        for start in range(0, len(new), 100):
            client.log_batch(self.run_id, params=new[start : start + 100], synchronous=True)
        if missing:
            client.log_batch(self.run_id, tags=[RunTag(*item) for item in missing.items()], synchronous=True)

    def send(self) -> int:
        """Send the new lines of metrics.jsonl, many in one request; return their number."""
        count = 0
        while True:
            batch: list[tuple[dict[str, Any], dict[str, float]]] = []
            size, end = 0, self.tail.offset
            for end_of_line, line in self.tail.lines():
                new = self.sent.unsent(line)
                size += len(new)
                if batch and size > METRICS_A_REQUEST:
                    break
                end = end_of_line
                batch += [(line, new)] if new else []
            if end == self.tail.offset:
                return count
            self._send(batch)
            self.tail.offset = end
            count += len(batch)

    def _send(self, batch: list[tuple[dict[str, Any], dict[str, float]]]) -> None:
        """Send one request. Metrics that the server rejects are skipped, so that they can't block the others."""
        from mlflow.entities import Metric
        from mlflow.exceptions import MlflowException

        if not batch:
            return
        metrics = [
            Metric(name, value, int(1000 * line.get("time", 0)), line["step"])
            for line, new in batch
            for name, value in new.items()
        ]
        try:
            for start in range(0, len(metrics), METRICS_A_REQUEST):
                self.client.log_batch(self.run_id, metrics=metrics[start : start + METRICS_A_REQUEST], synchronous=True)
        except MlflowException as error:
            if error.error_code not in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST"):
                raise
            if len(batch) > 1:
                for one in batch:
                    self._send([one])
                return
            if not self.reported_refusal:
                self.reported_refusal = True
                cause = redact(str(error), self.uri).splitlines()[0][:300]
                self.report(f"MLflow rejects metrics of step {batch[0][0]['step']}, which are skipped: {cause}")
        for line, new in batch:
            self.sent.add(line["step"], new)
        self.sent.save()

    def finish(self, status: str) -> None:
        """Send the evaluation's results, its verdict and the run's status."""
        results = results_of(self.folder, max(self.sent.step, 0))
        log_points(self.client, self.run_id, results.points)
        set_description(self.client, self.run_id, results.verdict)
        self.client.set_terminated(self.run_id, status)

    def send_artifacts(self) -> None:
        """Send the files of the run. The recipe goes without the values of secret keys."""
        recipe = self.folder / "recipe.yaml"
        if recipe.is_file():
            self.client.log_text(self.run_id, hide_secrets(recipe.read_text(encoding="utf-8")), recipe.name)
        results = [path for path, place in results_of(self.folder, 0).files if not place]  # answers go with completions
        for path in (*(str(self.folder / name) for name in ARTIFACTS if (self.folder / name).is_file()), *results):
            self.client.log_artifact(self.run_id, path)
        if (self.folder / "completions").is_dir():
            self.client.log_artifacts(self.run_id, str(self.folder / "completions"), "completions")


class CommandReader:
    """Reads the trainer's commands, and notices when the trainer has died."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.trainer_pid = os.getppid()
        self.settings: dict[str, Any] = json.loads(stream.readline() or "{}")
        self.sends = 0
        self.status: str | None = None
        self.is_orphan = not self.settings
        self._commands: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._commands.put(line)
        self._commands.put(b"")

    def wait(self, seconds: float) -> None:
        """Wait for a command, at most this long."""
        until = time.monotonic() + seconds
        while not self.is_orphan:
            left = until - time.monotonic()
            try:
                line = self._commands.get(timeout=max(0.0, min(left, POLL_S)))
            except queue.Empty:
                # A process that the trainer forked may keep standard input open, so its end is not the only sign.
                self.is_orphan = os.getppid() != self.trainer_pid
                if left <= POLL_S:
                    return
                continue
            command = json.loads(line or "{}")
            self.is_orphan = not command
            self.sends += command.get("do") == "send"
            self.status = command.get("status", self.status)
            if self._commands.empty():
                return


def lock_run_directory(folder: Path, timeout_s: float = LOCK_TIMEOUT_S) -> IO[str] | None:
    """Wait until the process of an earlier session has ended, so that both do not send the same lines.

    Returns:
        the locked file, to be kept open; None if files can't be locked, or after the timeout.
    """
    import fcntl

    until = time.monotonic() + timeout_s
    with contextlib.suppress(OSError):  # a file system without locks
        lock = (folder / ".mlflow.lock").open("w")
        while time.monotonic() < until:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                time.sleep(0.05)
    return None


class Outage:
    """Report each cause of an outage once, at most three, and its end."""

    def __init__(self, where: str, report: Callable[[str], None]) -> None:
        self._where, self._report = where, report
        self._causes: set[str] = set()

    def add(self, cause: str) -> None:
        if cause not in self._causes and len(self._causes) < 3:
            advice = " Training goes on; metrics.jsonl has everything. Missing lines are sent after the outage."
            self._report(f"{self._where} {cause}.{'' if self._causes else advice}")
        self._causes.add(cause)

    def end(self, late_lines: int) -> None:
        if self._causes:
            late = f": {late_lines} log lines were sent late" if late_lines else ""
            self._report(f"{self._where} works again{late}.")
        self._causes.clear()


def follow(run: MLflowRun, commands: CommandReader, report: Callable[[str], None]) -> None:
    """Keep the run up to date until the trainer has closed it, or has died."""
    where = f"MLflow at {redact_uri(run.uri)}"
    outage = Outage(where, report)
    pause_s = 0.0
    while True:
        commands.wait(pause_s)
        if commands.is_orphan and (commands.status is not None or run.sent.is_superseded()):
            return
        status = commands.status or ("KILLED" if commands.is_orphan else None)
        try:
            outage.end(run.update(commands.sends, status))
        except Exception as error:
            run.client = None
            outage.add(describe_error(error, run.uri))
            if commands.is_orphan:
                return
            pause_s = POLL_S if commands.status else min(max(2 * pause_s, POLL_S), MAX_BACKOFF_S)
            continue
        pause_s = POLL_S
        if status is not None:
            break
    if status == "KILLED":  # an interrupted run sends its files when it has been resumed
        return
    try:
        run.send_artifacts()
    except Exception as error:
        report(f"{where} has all metrics, but lacks files of {run.folder}: it {describe_error(error, run.uri)}.")


def main() -> None:
    # The trainer handles Ctrl-C and a cluster's SIGTERM, and decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    output = os.dup(1)
    os.dup2(2, 1)  # MLflow prints addresses of runs on standard output

    def report(text: str) -> None:
        with contextlib.suppress(OSError):  # the trainer may have died
            os.write(output, f"{text}\n".encode())

    commands = CommandReader(os.fdopen(os.dup(0), "rb"))  # not sys.stdin, which a forked process closes
    if not commands.is_orphan:
        lock = lock_run_directory(Path(commands.settings["folder"]))  # noqa: F841  held until this process ends
        follow(MLflowRun(commands.settings, report), commands, report)
