"""The process that talks to MLflow, so that the one that trains never waits for it. rlvr/tracking/mlflow_tracker.py
starts it.

It reads metrics.jsonl and sends what is new. So nothing is queued in memory, nothing is lost while a server is down,
and what MLflow shows is what the file says.

Orders come as JSON lines on standard input: first what to track, then {"do": "send"} once metrics.jsonl has its final
beginning (a resumed run cuts it back first), and {"do": "close", "status": …} at the end. Each line on standard output
is a sentence for the user. If the trainer dies without an order, the run is marked KILLED and this process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from rlvr.errors import InputError
from rlvr.tracking.mlflow_ledger import SentMetrics, Tail, reason, shown_uri, without_secret_keys, without_secrets
from rlvr.tracking.mlflow_results import describe, files_of_results, log_points, metrics_of_results, verdict_of
from rlvr.tracking.mlflow_store import make_store, store_file

LOOK_EVERY_S = 1.0
LONGEST_PAUSE_S = 60.0
PREDECESSOR_S = 120.0  # that the process of a killed session is waited for; a request of its takes 30 at most
METRICS_A_REQUEST = 1000  # MLflow's own limit
ARTIFACTS = ("versions.json", "failure.txt", "metrics.jsonl")
KEY_TAG = "grpo-recipes.key"  # finds a run whose making was never confirmed


class MLflowRun:
    """The MLflow run of a run directory: found or made, and brought up to date with metrics.jsonl.

    Every method may raise whatever MLflow raises, and can then be called again.
    """

    def __init__(self, settings: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self.settings = settings
        self.uri: str = settings["tracking_uri"]
        self.folder = Path(settings["folder"])
        self.ledger = SentMetrics(self.folder)
        self.tail = Tail(self.folder / "metrics.jsonl")
        self.say = say
        self.client: Any = None
        self.described = False
        self.refused = False
        self.is_anew = False

    @property
    def run_id(self) -> str:
        assert self.ledger.run_id is not None
        return self.ledger.run_id

    def connect(self) -> None:
        """Finds the run of this folder, or makes one; says so when the one that was there is gone."""
        from mlflow import MlflowClient

        make_store(self.uri)
        client = MlflowClient(tracking_uri=self.uri)
        before = self.ledger.run_id
        wanted = [run_id for run_id in (self.settings.get("run_id"), before) if run_id]
        run = next((run for run_id in wanted if (run := _find_run(client, run_id)) is not None), None)
        if run is None:
            if before is not None:
                self.ledger.run_id = self.ledger.key = None
            if wanted and not self.is_anew:
                self.is_anew = True
                self.say(
                    f"MLflow at {shown_uri(self.uri)} has no run {wanted[0]} (any more): a new one is made, "
                    "and gets everything in metrics.jsonl."
                )
            run = self._new_run(client)
        else:
            client.update_run(run.info.run_id, status="RUNNING")
        if run.info.run_id != before:
            self.tail.done = 0
        self.ledger.begin(run.info.run_id)
        if not self.described:
            self._describe(client, dict(run.data.params), dict(run.data.tags))
        self.described = True
        self.client = client

    def _new_run(self, client: Any) -> Any:
        """Makes a run; or finds the one that an earlier order made without our hearing of it, as of a slow server."""
        experiment = self._experiment(client)
        if self.ledger.run_id is None and self.ledger.key is not None:
            made = client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{self.ledger.key}'", max_results=1)
            if made:
                return made[0]
        self.ledger.key = uuid.uuid4().hex
        self.ledger.save()
        tags = {**self.settings["tags"], KEY_TAG: self.ledger.key}
        return client.create_run(experiment, run_name=self.settings["run_name"], tags=tags)

    def _experiment(self, client: Any) -> str:
        if self.settings.get("experiment_id"):
            return str(self.settings["experiment_id"])
        name = self.settings["experiment"]
        found = client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage == "deleted":
            raise InputError(f"its experiment {name!r} was deleted: restore it, or set MLFLOW_EXPERIMENT_NAME")
        if found is not None:
            return str(found.experiment_id)
        # A local store's artifacts lie beside it; MLflow would put them wherever the command was started from.
        store = store_file(self.uri)
        location = (store.parent / "mlartifacts").as_uri() if store else None
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except Exception:
            found = client.get_experiment_by_name(name)  # made by another run in this very moment
            if found is None:
                raise
            return str(found.experiment_id)

    def _describe(self, client: Any, params: dict[str, str], tags: dict[str, str]) -> None:
        """Params and tags that the run does not have yet. MLflow's params can't change: a new value becomes a tag."""
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
        """Sends what is new in metrics.jsonl, several lines a request when there is much; returns how many lines."""
        sent = 0
        while True:
            batch: list[tuple[dict[str, Any], dict[str, float]]] = []
            size, end = 0, self.tail.done
            for end_of_line, line in self.tail.lines():
                new = self.ledger.unsent(line)
                if batch and size + len(new) > METRICS_A_REQUEST:
                    break
                end = end_of_line
                if new:
                    batch.append((line, new))
                    size += len(new)
            self._send(batch)
            if end == self.tail.done:
                return sent
            self.tail.done = end
            sent += len(batch)

    def _send(self, batch: list[tuple[dict[str, Any], dict[str, float]]]) -> None:
        """One request; what the server finds faulty is skipped, so that it can't hold up the rest."""
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
            if not self.refused:
                self.refused = True
                what = without_secrets(str(error), self.uri).splitlines()[0][:300]
                self.say(f"MLflow refuses metrics of step {batch[0][0]['step']} and goes on without: {what}")
        for line, new in batch:
            self.ledger.add(line["step"], new)
        self.ledger.save()

    def finish(self, status: str) -> None:
        """The results of the evaluation, and the status that the list of runs shows."""
        log_points(self.client, self.run_id, metrics_of_results(self.folder, max(self.ledger.step, 0)))
        describe(self.client, self.run_id, verdict_of(self.folder))
        self.client.set_terminated(self.run_id, status)

    def send_artifacts(self) -> None:
        """The files that a person wants to see beside the curves. The recipe goes without the values of secret keys."""
        recipe = self.folder / "recipe.yaml"
        if recipe.is_file():
            self.client.log_text(self.run_id, without_secret_keys(recipe.read_text(encoding="utf-8")), recipe.name)
        for name in ARTIFACTS:
            if (self.folder / name).is_file():
                self.client.log_artifact(self.run_id, str(self.folder / name))
        for path, place in files_of_results(self.folder):
            if not place:  # the answers go with all completions
                self.client.log_artifact(self.run_id, path)
        if (self.folder / "completions").is_dir():
            self.client.log_artifacts(self.run_id, str(self.folder / "completions"), "completions")


def _find_run(client: Any, run_id: str) -> Any:
    """The run, or None where there is none of this id or it was deleted."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None


# ----------------------------------------------------------------------------------------------------------------------
# The process


class CommandReader:
    """What the trainer has ordered so far."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.trainer = os.getppid()
        self.buffer = b""
        self.sends = 0
        self.status: str | None = None
        self.is_orphan = False

    def first(self) -> dict[str, Any]:
        while b"\n" not in self.buffer:
            self._read()
            if self.is_orphan:
                sys.exit(0)
        line, _, self.buffer = self.buffer.partition(b"\n")
        settings: dict[str, Any] = json.loads(line)
        return settings

    def wait(self, seconds: float) -> None:
        """Takes new orders; returns at the first, or after some seconds."""
        until = time.monotonic() + seconds
        while not self._take() and not self.is_orphan and (left := until - time.monotonic()) > 0:
            # A process that the trainer forked may hold our standard input open, so its end is not waited for alone.
            if select.select([self.descriptor], [], [], min(left, LOOK_EVERY_S))[0]:
                self._read()
            elif os.getppid() != self.trainer:
                self.is_orphan = True

    def _read(self) -> None:
        data = os.read(self.descriptor, 1 << 16)
        self.buffer += data
        if not data:
            self.is_orphan = True

    def _take(self) -> bool:
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            order = json.loads(line)
            if order["do"] == "close":
                self.status = order["status"]
            else:
                self.sends += 1
        return bool(lines)


def alone_in(folder: Path, seconds: float = PREDECESSOR_S) -> IO[str] | None:
    """Waits until the process of an earlier session of this run has ended, which may still be sending its last lines.

    Both would read from the ledger that these are missing, and send them.

    Returns:
        What must stay open for as long as nobody else may send; None where files can't be locked, or after `seconds`.
    """
    import fcntl

    until = time.monotonic() + seconds
    try:
        lock = (folder / ".mlflow.lock").open("w")
    except OSError:
        return None
    while time.monotonic() < until:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:  # a file system without locks
            break
    lock.close()
    return None


def main() -> None:
    # The trainer decides when this ends: Ctrl-C and a cluster's SIGTERM are for it to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sentences = os.dup(1)
    os.dup2(2, 1)  # MLflow prints the addresses of runs

    def say(text: str) -> None:
        with contextlib.suppress(OSError):  # the trainer may be gone
            os.write(sentences, f"{text}\n".encode())

    orders = CommandReader(0)
    settings = orders.first()
    lock = alone_in(Path(settings["folder"]))  # noqa: F841  It is held until this process ends.
    run = MLflowRun(settings, say)
    where = f"MLflow at {shown_uri(run.uri)}"
    pause, seen, finished = 0.0, 0, False
    faults: set[str] = set()  # of the outage at hand; each is said once, and three at most
    while True:
        orders.wait(pause)
        if orders.is_orphan and (orders.status is not None or run.ledger.is_superseded()):
            return
        status = orders.status or ("KILLED" if orders.is_orphan else None)
        if orders.sends > seen:
            seen = orders.sends
            run.tail.done = 0
        try:
            if run.client is None:
                run.connect()
            late = run.send() if orders.sends else 0
            if status and not finished:
                run.finish(status)
                finished = True
        except Exception as error:
            run.client = None
            fault = reason(error, run.uri)
            if fault not in faults and len(faults) < 3:
                tail = "Training goes on; metrics.jsonl has everything, and what is missing is sent when that works."
                say(f"{where} {fault}. {tail if not faults else ''}".rstrip())
            faults.add(fault)
            if orders.is_orphan:
                return
            pause = LOOK_EVERY_S if orders.status else min(max(2 * pause, LOOK_EVERY_S), LONGEST_PAUSE_S)
            continue
        if faults:
            say(f"{where} works again{f': {late} log lines were sent late' if late else ''}.")
        faults.clear()
        pause = LOOK_EVERY_S
        if not status:
            continue
        if status != "KILLED":  # an interrupted run goes on later, and has more to show then
            try:
                run.send_artifacts()
            except Exception as error:
                say(f"{where} has all metrics, but not all files of {run.folder}: it {reason(error, run.uri)}.")
        return
