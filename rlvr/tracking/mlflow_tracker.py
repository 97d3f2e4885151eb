"""Tracking with MLflow that neither stops nor slows a step: a process of its own follows metrics.jsonl and sends it.

    tracker = tracker_of(recipe)                 # None where the recipe reports to somebody else
    trainer = RecipeTrainer(…, callbacks=[MetricsFile(…), tracker, …])
    tracker.close("FINISHED")

Why not transformers' callback: it talks to the server in the training loop, and TRL adds 3 (accumulation steps) + 3
calls a step that each wait for an answer. Why a process and not a thread: opening a store takes seconds of Python, for
which a thread would hold up the steps (benchmarks/tracking.py measures all three). docs/tracking.md is for users.
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

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError
from rlvr.tracking.mlflow_ledger import is_secret, metric_name, shown_uri, unsent_lines
from rlvr.tracking.mlflow_store import default_tracking_uri, process_environment
from rlvr.tracking.trackers import named

Status = Literal["FINISHED", "FAILED", "KILLED"]

PARAM_LENGTH = 500  # what servers of all versions take
RESTARTS = 3


def tracker_of(recipe: Recipe, tags: Mapping[str, str] | None = None) -> MLflowTracker | None:
    """The tracker of a run, by its recipe and MLflow's own variables; None where it doesn't report to MLflow.

    Raises:
        InputError: MLFLOW_TAGS is not a JSON object.
    """
    if "mlflow" not in named(recipe.settings.get("report_to")):
        return None
    return MLflowTracker(
        run_name=str(recipe.settings.get("run_name") or recipe.output_dir.name),
        params=recipe.as_dict(),
        tags={"recipe": recipe.path.name, **(tags or {}), **_tags_of_user()},
        folder=recipe.output_dir,
        tracking_uri=default_tracking_uri(recipe.output_dir),
        experiment=os.environ.get("MLFLOW_EXPERIMENT_NAME") or "grpo-recipes",
    )


def _tags_of_user() -> dict[str, str]:
    text = os.environ.get("MLFLOW_TAGS")
    if not text:
        return {}
    try:
        tags = json.loads(text)
    except ValueError:
        tags = None
    if not isinstance(tags, dict):
        raise InputError('The variable MLFLOW_TAGS must be a JSON object like {"team": "nlp"}; mend or unset it.')
    return {str(name): str(value) for name, value in tags.items()}


class MLflowTracker(TrainerCallback):
    """One MLflow run per run directory, over all its sessions, kept up to date by a process of its own.

    Callbacks do nothing but print what that process has to say, and never wait. Only the first rank tracks.

    Args:
        run_name: how the run is called in MLflow.
        params: what MLflow shows as parameters; nested keys are joined by dots, keys of secrets are left out.
        tags: what MLflow shows as tags.
        folder: the run directory, with the metrics.jsonl that is followed.
        tracking_uri: the server or store; a password in it is never printed or written.
        experiment: where a new run is filed; made if it isn't there.
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
            "params": flattened(params),
            "tags": {name: str(value)[:PARAM_LENGTH] for name, value in tags.items()},
            "folder": str(folder.resolve()),
            "tracking_uri": tracking_uri,
            "experiment": experiment,
            "experiment_id": os.environ.get("MLFLOW_EXPERIMENT_ID"),
            "run_id": os.environ.get("MLFLOW_RUN_ID"),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: IO[bytes] | None = None
        self._heard = b""
        self._follows = False
        self._restarts = RESTARTS
        self._closed = False

    def start(self) -> None:
        """Connects, which may take seconds, while the caller goes on; metrics are followed from `on_train_begin`."""
        if self._process is not None or not console.is_main():
            return
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from rlvr.tracking.mlflow_process import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed,
                env=process_environment(),
                start_new_session=True,  # Ctrl-C is for the trainer to answer
            )
        except OSError as error:
            self._say(f"MLflow is not told of this run: no process can be started for it ({error.strerror}).")
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._order(self._settings)
        # From here on an order that does not fit into the pipe is dropped rather than waited for.
        os.set_blocking(self._process.stdin.fileno(), False)
        if self._follows:
            self._order({"do": "send"})

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        self.start()
        self._follows = True
        self._order({"do": "send"})

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._listen()

    def close(self, status: Status, timeout_s: float = 30) -> None:
        """Sends what is left, the files of the run directory and how the run ended; says what is not sent in time."""
        if self._process is None or self._closed:
            return
        self._listen()  # starts the process again, should it have died
        self._closed = True
        until = time.monotonic() + timeout_s
        self._order({"do": "close", "status": status})
        assert self._process.stdout is not None
        while (left := until - time.monotonic()) > 0 and not self._ended:
            select.select([self._process.stdout], [], [], left)
            self._listen()
        in_time = self._ended and self._process.wait() == 0
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._printed):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        missing = unsent_lines(self.folder) if self._follows else 0
        where = f"MLflow at {shown_uri(self.tracking_uri)}"
        if missing:
            self._say(f"{where} has not got {missing} lines of metrics, which are in {self.folder / 'metrics.jsonl'}.")
        elif not in_time:
            self._say(f"{where} was not told how the run ended, or lacks files of {self.folder}.")

    def _order(self, order: Mapping[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # it died: _listen notices
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _listen(self) -> None:
        """Prints what the process has said; starts it again if it died."""
        if self._process is None or self._process.stdout is None:
            return
        ended = self._ended
        while data := self._process.stdout.read(1 << 16):
            self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            self._say(line.decode(errors="replace"))
        if ended and not self._closed and self._restarts >= 0:
            then = "it is started again" if self._restarts else "no more tries; metrics.jsonl has everything"
            self._say(f"MLflow: the process that sends metrics died{self._last_words()}; {then}.")
            self._restarts -= 1
            if self._restarts >= 0:
                self._process = None
                self.start()

    def _last_words(self) -> str:
        assert self._process is not None and self._printed is not None
        self._printed.seek(0)
        words = self._printed.read()[-300:].decode(errors="replace").strip().splitlines()
        self._printed.close()
        return f" ({words[-1] if words else f'exit status {self._process.returncode}'})"

    def _say(self, text: str) -> None:
        # A progress bar that is being drawn is taken away for the moment.
        tqdm.write(f"  {text}", file=sys.stdout)
        sys.stdout.flush()


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested keys joined by dots; entries of a list that have names, as rewards have, go by them. No secrets."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if is_secret(str(key)):
            continue
        if isinstance(value, list) and value and all(isinstance(item, Mapping) and "name" in item for item in value):
            value = {item["name"]: {key: item[key] for key in item if key != "name"} for item in value}
        if isinstance(value, Mapping):
            found.update(flattened(value, f"{name}."))
        else:
            text = str(value)
            found[metric_name(name)] = text if len(text) <= PARAM_LENGTH else f"{text[: PARAM_LENGTH - 1]}…"
    return found
