"""Track a run in MLflow without slowing a step: another process follows metrics.jsonl and sends it.

    tracker = make_tracker(recipe)               # None unless report_to names mlflow
    tracker.start()
    ...
    tracker.close("FINISHED")

transformers' own callback talks to the server in the training loop, and TRL adds 3 (accumulation steps) + 3 calls per
step that each wait for an answer. A thread is no alternative: opening a store takes seconds of Python, which hold the
GIL. docs/tracking.md is for users.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.formatting import flatten, hide_url_users
from rlvr.tracking.messages import print_message, redact_uri
from rlvr.tracking.metrics_tail import metric_name
from rlvr.tracking.tracked_run import default_tracking_uri, process_environment
from rlvr.tracking.trackers import tracker_names

PARAM_LENGTH = 500  # the limit of the oldest servers


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
                [sys.executable, "-c", "from rlvr.tracking.mlflow_sender import main; main()"],
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
