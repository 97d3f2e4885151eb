"""Track a run in MLflow without slowing a step: another process follows metrics.jsonl and sends it.

    tracker = make_tracker(recipe)               # None unless report_to names mlflow
    tracker.start()
    ...
    tracker.close("FINISHED")

The process sends new lines of metrics.jsonl. So nothing is queued in memory, and nothing is lost during an outage.

transformers' own callback talks to the server in the training loop, and TRL adds 3 (accumulation steps) + 3 calls per
step that each wait for an answer. A thread is no alternative: opening a store takes seconds of Python, which hold the
GIL. docs/monitoring.md is for users.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.formatting import flatten, hide_url_users
from rlvr.tracking.messages import describe_error, print_message, redact_uri
from rlvr.tracking.metrics_tail import metric_name
from rlvr.tracking.tracked_run import default_tracking_uri, process_environment
from rlvr.tracking.trackers import tracker_names

if TYPE_CHECKING:
    from rlvr.tracking.mlflow_run import MLflowRun

PARAM_LENGTH = 500  # the limit of the oldest servers
POLL_S = 1.0
MAX_BACKOFF_S = 60.0
DIED = ""  # the status of a trainer that ended without one


def make_tracker(recipe: Recipe) -> MLflowTracker | None:
    """Make the tracker of a run from its recipe and MLflow's variables; None if it does not report to MLflow.

    Raises:
        InputError: MLFLOW_TAGS is not a JSON object.
    """
    if "mlflow" not in tracker_names(recipe.settings.get("report_to")):
        return None
    try:
        tags = json.loads(os.environ.get("MLFLOW_TAGS") or "{}")
    except ValueError:
        tags = None
    if not isinstance(tags, dict):
        raise InputError('MLFLOW_TAGS must be a JSON object such as {"team": "nlp"}.', kind="invalid-variable")
    return MLflowTracker(
        recipe.output_dir,
        default_tracking_uri(recipe.output_dir),
        params=recipe.as_dict(),
        tags={"recipe": recipe.path.name, **tags},
        run_name=recipe.settings.get("run_name"),
    )


class MLflowTracker:
    """One MLflow run per run directory, over all its sessions, updated by another process. Only rank 0 makes it.

    Args:
        uri: of the server or store; a password in it is never printed or written.
        params: the recipe.
    """

    def __init__(
        self, folder: Path, uri: str, params: Mapping[str, Any], tags: Mapping[str, Any], run_name: str | None = None
    ) -> None:
        self.settings: dict[str, Any] = {
            "run_name": run_name or folder.name,
            "params": flatten_params(params),
            "tags": {str(name): str(value)[:PARAM_LENGTH] for name, value in tags.items()},
            "folder": str(folder.resolve()),
            "tracking_uri": uri,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, which connects in the background and prints messages for the user."""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from rlvr.tracking.mlflow_tracker import main; main()"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=process_environment(),
                start_new_session=True,  # Ctrl-C is handled by the trainer
            )
        except OSError as error:
            print_message(f"Not tracked in MLflow: its process can't be started ({error.strerror}).")
        else:
            self._write(json.dumps({**self.settings, "trainer_pid": os.getpid()}))

    def close(self, status: str, timeout_s: float = 30) -> None:
        """Send the rest and the status, which is FINISHED, FAILED or KILLED; say if not all is sent in time."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            self.start()  # it died
        self._write(status)
        with self._process as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
            process.kill()
        self._process = None
        if process.returncode != 0:
            where = f"MLflow at {redact_uri(self.settings['tracking_uri'])}"
            print_message(f"{where} may lack the last metrics or the status of {self.settings['folder']}.")

    def _write(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError):  # it died
            self._process.stdin.write(line.encode() + b"\n")


def flatten_params(values: Mapping[str, Any]) -> dict[str, str]:
    """MLflow's parameters: the recipe's values by dotted key, without secrets."""
    shown = ((name, hide_url_users(str(value))) for name, value in flatten(values) if value != {})
    return {metric_name(name): text[:PARAM_LENGTH] for name, text in shown}


def wait_for_status(seconds: float, trainer_pid: int) -> str | None:
    """The status that the trainer has written, or DIED; None after some seconds."""
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        if select.select([0], [], [], max(0.0, min(left, POLL_S)))[0]:
            return os.read(0, 100).decode().strip()
        if os.getppid() != trainer_pid:  # a process that the trainer forked may keep standard input open
            return DIED
        if left <= POLL_S:
            return None


def follow(run: MLflowRun, trainer_pid: int, report: Callable[[str], None]) -> None:
    """Keep the run up to date until the trainer has ended it, or has died."""
    where = f"MLflow at {redact_uri(run.uri)}"
    is_down = False
    status: str | None = None
    pause_s = 0.0
    while True:
        if status is None:
            status = wait_for_status(pause_s, trainer_pid)
        else:
            time.sleep(pause_s)
        try:
            run.update("KILLED" if status == DIED else status)
        except Exception as error:
            if status == DIED or os.getppid() != trainer_pid:
                return
            if not is_down:
                advice = "Training goes on; metrics.jsonl has everything. Missing lines are sent after the outage."
                report(f"{where} {describe_error(error, run.uri)}. {advice}")
            is_down = True
            pause_s = POLL_S if status is not None else min(max(2 * pause_s, POLL_S), MAX_BACKOFF_S)
            continue
        if is_down:
            report(f"{where} works again.")
            is_down = False
        if status is not None:
            return
        pause_s = POLL_S


def main() -> None:
    """The process that sends metrics.

    Standard input has two lines: the settings as JSON, and the run's status at its end. If the trainer dies without a
    status, the run is marked KILLED and this process ends.
    """
    # The trainer handles Ctrl-C and a cluster's SIGTERM, and decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # MLflow prints addresses of runs on standard output

    def report(text: str) -> None:
        below_bar = "\n" if output.isatty() else ""
        with contextlib.suppress(OSError):  # the trainer may have died
            print(f"{below_bar}{console.wrap(f'  {text}', console.columns(output))}", file=output, flush=True)

    settings = json.loads(io.FileIO(0, closefd=False).readline() or "{}")  # unbuffered: select sees the next line
    if settings:
        try:
            from rlvr.tracking.mlflow_run import MLflowRun  # takes seconds, and a broken installation raises
        except Exception as error:
            report(f"Not tracked in MLflow, which can't be imported: {type(error).__name__}: {error}")
            raise
        # Not os.getppid(): the trainer may have died while this process imported MLflow.
        follow(MLflowRun(settings, report), settings["trainer_pid"], report)
