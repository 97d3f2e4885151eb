"""Which metrics of metrics.jsonl MLflow has. Imports no slow library.

mlflow.json in the run directory keeps the id of the MLflow run and the last step sent, over all sessions of a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.tracking.metrics_tail import MetricsTail


class SentMetrics:
    """mlflow.json of a run directory: its MLflow run, and the last step whose metrics MLflow has.

    A step has several log lines (training, evaluation, the summary), so the names sent for the last step are kept, too.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mlflow.json"
        content = self._read()
        self.run_id: str | None = content.get("run_id")
        self.step: int = content.get("step", -1)
        self.names: set[str] = set(content.get("names", ()))
        # A tag of the run. It finds a run whose creation MLflow did not confirm.
        self.key: str | None = content.get("key")
        self.session = f"{os.getpid()}-{time.time_ns()}"

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def set_run(self, run_id: str) -> None:
        """Set the MLflow run. A new one has no metrics yet."""
        if run_id != self.run_id:
            self.run_id, self.step, self.names = run_id, -1, set()
        self.save()

    def is_superseded(self) -> bool:
        """Whether another session has taken over the run directory."""
        return self._read().get("session", self.session) != self.session

    def unsent(self, line: Mapping[str, Any]) -> dict[str, float]:
        """The metrics of a log line that MLflow does not have yet, by MLflow's names."""
        step = line["step"]
        if step < self.step:
            return {}
        metrics = metrics_of(line)
        return {name: metrics[name] for name in metrics if step > self.step or name not in self.names}

    def add(self, step: int, names: Mapping[str, float]) -> None:
        """Note metrics as sent."""
        if step > self.step:
            self.step, self.names = step, set()
        if step == self.step:
            self.names |= set(names)

    def save(self) -> None:
        content = {
            "run_id": self.run_id,
            "step": self.step,
            "names": sorted(self.names),
            "session": self.session,
            "key": self.key,
        }
        temporary = self.path.with_suffix(".part")
        # On a full disk nothing is saved: the next session then sends a few steps twice.
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
            temporary.replace(self.path)


def unsent_lines(folder: Path) -> int:
    """Count the lines of metrics.jsonl with metrics that MLflow has not confirmed."""
    sent = SentMetrics(folder)
    return sum(bool(sent.unsent(line)) for _, line in MetricsTail(folder / "metrics.jsonl").lines(max_bytes=-1))


def metrics_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a log line under unique names that MLflow accepts."""
    metrics: dict[str, float] = {}
    for key, value in line.items():
        if key in ("step", "time") or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        name = metric_name(key)
        while name in metrics:
            name += "_"
        metrics[name] = float(value)
    return metrics


def metric_name(key: str) -> str:
    """A name that MLflow accepts: letters, digits, _-. :/, as a normalized relative path."""
    cleaned = re.sub(r"[^\w.\-: /]", "_", key)
    return posixpath.normpath(cleaned).lstrip("/.")[:200] or "_"
