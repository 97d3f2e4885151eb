"""Track a run in MLflow without slowing a step: another process follows metrics.jsonl and sends it.

    tracker = make_tracker(recipe)               # None unless report_to names mlflow
    trainer = RecipeTrainer(…, callbacks=[MetricsFile(…), tracker, …])
    tracker.close("FINISHED")

transformers' own callback talks to the server in the training loop, and TRL adds 3 (accumulation steps) + 3 calls a
step that each wait for an answer. A thread is no alternative: opening a store takes seconds of Python, which hold the
GIL (benchmarks/tracking.py measures all three). docs/tracking.md is for users.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.formatting import flatten, hide_url_users
from rlvr.tracking.mlflow_ledger import metric_name, unsent_lines
from rlvr.tracking.mlflow_messages import print_message, redact_uri
from rlvr.tracking.mlflow_store import default_tracking_uri, process_environment
from rlvr.tracking.trackers import tracker_names

Status = Literal["FINISHED", "FAILED", "KILLED"]

PARAM_LENGTH = 500  # the limit of the oldest servers
RESTARTS = 3


def make_tracker(recipe: Recipe, tags: Mapping[str, str] | None = None) -> MLflowTracker | None:
    """Make the tracker of a run from its recipe and MLflow's variables; None if it does not report to MLflow.

    Raises:
        InputError: MLFLOW_TAGS is not a JSON object.
    """
    if "mlflow" not in tracker_names(recipe.settings.get("report_to")):
        return None
    return MLflowTracker(
        run_name=str(recipe.settings.get("run_name") or recipe.output_dir.name),
        params=recipe.as_dict(),
        tags={"recipe": recipe.path.name, **(tags or {}), **_user_tags()},
        folder=recipe.output_dir,
        tracking_uri=default_tracking_uri(recipe.output_dir),
        experiment=os.environ.get("MLFLOW_EXPERIMENT_NAME") or "grpo-recipes",
    )


def _user_tags() -> dict[str, str]:
    try:
        tags = json.loads(os.environ.get("MLFLOW_TAGS") or "{}")
    except ValueError:
        tags = None
    if not isinstance(tags, dict):
        raise InputError('MLFLOW_TAGS must be a JSON object such as {"team": "nlp"}.', kind="invalid-variable")
    return {str(name): str(value) for name, value in tags.items()}


class MLflowTracker(TrainerCallback):
    """One MLflow run per run directory, over all its sessions, updated by another process.

    The callbacks print that process's messages and never wait. Only rank 0 tracks.

    Args:
        params: the recipe; nested keys are joined by dots, secrets are left out.
        folder: the run directory with metrics.jsonl.
        tracking_uri: server or store; a password in it is never printed or written.
    """

    def __init__(
        self,
        *,
        run_name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        folder: Path,
        tracking_uri: str,
        experiment: str,
    ) -> None:
        self.folder = folder
        self.tracking_uri = tracking_uri
        self._settings = {
            "run_name": run_name,
            "params": flatten_params(params),
            "tags": {name: str(value)[:PARAM_LENGTH] for name, value in tags.items()},
            "folder": str(folder.resolve()),
            "tracking_uri": tracking_uri,
            "experiment": experiment,
            "experiment_id": os.environ.get("MLFLOW_EXPERIMENT_ID"),
            "run_id": os.environ.get("MLFLOW_RUN_ID"),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._output = b""
        self._is_training = False
        self._restarts = RESTARTS
        self._closed = False

    def start(self) -> None:
        """Start the process, which connects in the background. It follows metrics from `on_train_begin` on."""
        if self._process is not None or not console.is_main():
            return
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from rlvr.tracking.mlflow_process import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=process_environment(),
                start_new_session=True,  # Ctrl-C is handled by the trainer
            )
        except OSError as error:
            print_message(f"Not tracked in MLflow: its process can't be started ({error.strerror}).")
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._send(self._settings)
        # From here on a command that does not fit into the pipe is dropped: training must not wait.
        os.set_blocking(self._process.stdin.fileno(), False)
        if self._is_training:
            self._send({"do": "send"})

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        self.start()
        self._is_training = True
        self._send({"do": "send"})

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._read_output()

    def close(self, status: Status, timeout_s: float = 30) -> None:
        """Send the rest, the files of the run directory and the status; print what is not sent in time."""
        if self._process is None or self._closed:
            return
        self._read_output()  # restarts the process if it died
        self._closed = True
        until = time.monotonic() + timeout_s
        self._send({"do": "close", "status": status})
        assert self._process.stdin is not None and self._process.stdout is not None and self._stderr is not None
        while (left := until - time.monotonic()) > 0 and not self._ended:
            select.select([self._process.stdout], [], [], left)
            self._read_output()
        in_time = self._ended and self._process.returncode == 0
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            with contextlib.suppress(OSError):
                stream.close()
        missing = unsent_lines(self.folder) if self._is_training else 0
        where = f"MLflow at {redact_uri(self.tracking_uri)}"
        if missing:
            print_message(f"{where} lacks {missing} lines of metrics, which are in {self.folder / 'metrics.jsonl'}.")
        elif not in_time:
            print_message(f"{where} may lack the run's status or files of {self.folder}.")

    def _send(self, command: Mapping[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # it died: _read_output notices
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _read_output(self) -> None:
        """Print the process's messages; restart it if it died."""
        if self._process is None or self._process.stdout is None:
            return
        ended = self._ended
        while data := self._process.stdout.read(1 << 16):
            self._output += data
        *lines, self._output = self._output.split(b"\n")
        for line in lines:
            print_message(line.decode(errors="replace"))
        if ended and not self._closed and self._restarts >= 0:
            then = "restarting it" if self._restarts else "no more restarts; metrics.jsonl has everything"
            print_message(f"MLflow: the process that sends metrics died{self._describe_exit()}; {then}.")
            self._restarts -= 1
            if self._restarts >= 0:
                self._process = None
                self.start()

    def _describe_exit(self) -> str:
        assert self._process is not None and self._stderr is not None
        self._stderr.seek(0)
        lines = self._stderr.read()[-300:].decode(errors="replace").strip().splitlines()
        self._stderr.close()
        return f" ({lines[-1] if lines else f'exit status {self._process.returncode}'})"


def flatten_params(values: Mapping[str, Any]) -> dict[str, str]:
    """MLflow's parameters: the recipe's values by dotted key, without secrets."""
    texts = {metric_name(name): hide_url_users(str(value)) for name, value in flatten(values) if value != {}}
    return {name: text if len(text) <= PARAM_LENGTH else f"{text[: PARAM_LENGTH - 1]}…" for name, text in texts.items()}
