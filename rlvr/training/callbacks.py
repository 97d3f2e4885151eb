"""Write metrics.jsonl, and show progress with reward and remaining time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerState

from rlvr import console
from rlvr.artifacts.metrics import read_metrics
from rlvr.config.recipe import Recipe
from rlvr.health import Finding, findings, line_of, summary

# Summaries of transformers that cover the session and not the run: they would differ after a resumption.
SESSION_METRICS = frozenset(
    {"train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss"}
)


class MetricsFile(TrainerCallback):
    """Write every log event as one JSON object a line: `step`, `time` (Unix seconds) and the metrics by TRL's names.

    Lines after the step that a run resumes from are dropped first, so the file has no repeats; steps whose lines were
    lost are named. Lines that can't be written, because the disk is full, are kept and written with a later one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unwritten = ""

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        existed = self.path.is_file()  # else a new run continues a checkpoint of another one
        kept = [line for line in read_metrics(self.path) if line["step"] <= state.global_step and state.global_step]
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        temporary.replace(self.path)  # a new file: its readers (rlvr/tracking/metrics_tail.py) begin again
        logged = Counter(line["step"] for line in state.log_history)
        lost = sorted(logged - Counter(line["step"] for line in kept))
        if lost and existed:
            steps = textwrap.shorten(", ".join(map(str, lost)), 60, placeholder=" …")
            console.error(f"  warning: {self.path} has no metrics of step {steps}: the file was damaged or cut off.")

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any) -> None:
        logs = {key: value for key, value in (logs or {}).items() if key not in SESSION_METRICS}
        if not state.is_world_process_zero or not logs.keys() - {"epoch"}:
            return
        # JSON has no NaN: a metric that could not be computed is null.
        clean = {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in logs.items()}
        line = {"step": state.global_step, "time": round(time.time(), 3), **clean}
        first = not self.unwritten
        self.unwritten += json.dumps(line) + "\n"
        size = self.path.stat().st_size if self.path.is_file() else 0
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(self.unwritten)
            self.unwritten = ""
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(self.path, size)  # a partial line would end the file for its readers
            if first:
                console.error(f"\n  {self.path} can't be written ({error}). Its lines are kept until it can.")


class Progress(TrainerCallback):
    """Show a progress bar with the latest reward and the time left; one line a step where the output is no terminal.

    Warnings of the run's health (rlvr/health) are printed when they begin or change, and summed up at the end.

    Args:
        alert: gets each finding that is printed.
    """

    def __init__(self, recipe: Recipe | None = None, alert: Callable[[Finding], None] | None = None) -> None:
        self.alert = alert
        self.settings = recipe.as_dict() if recipe is not None else {}
        self.path = recipe.output_dir / "metrics.jsonl" if recipe is not None else None
        self.lines: list[dict[str, Any]] = []
        self.warning = ""
        self.next_check = 0.0  # of the run's health, by time.monotonic
        self.bar: tqdm[Any] | None = None
        self.started = 0.0
        self.first_step = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.started, self.first_step = time.monotonic(), state.global_step
        self.lines = read_metrics(self.path) if self.path is not None else []
        if console.is_terminal():
            self.bar = tqdm(
                total=state.max_steps,
                initial=state.global_step,
                desc="training",
                unit="step",
                bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}",
            )

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self.bar is not None:
            self.bar.update(1)

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any) -> None:
        logs = logs or {}
        if "train_runtime" in logs or not state.is_world_process_zero:
            return
        self.lines.append({"step": state.global_step, **logs})
        if logs.get("reward") is not None:
            self._print_progress(logs, state)
        self._print_health()

    def _print_health(self) -> None:
        """Check at most a hundredth of the time; one check takes 1 ms at step 20 and 17 ms at step 600."""
        started = time.monotonic()
        if started < self.next_check:
            return
        current = findings(self.lines, settings=self.settings, started_at=self.first_step)
        warnings = [finding for finding in current if finding.level != "note"]
        warning = f"{warnings[0].level} {warnings[0].metric}" if warnings else ""
        if warning and warning != self.warning:
            self._write(f"  {line_of(warnings)}")
            if self.alert is not None:
                self.alert(warnings[0])
        self.warning = warning
        self.next_check = started + 100 * (time.monotonic() - started)

    def _write(self, text: str) -> None:
        if self.bar is not None:
            self.bar.write(console.wrap(text, console.columns(sys.stdout)))
        else:
            console.info(text)

    def _print_progress(self, logs: dict[str, Any], state: TrainerState) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(f"reward {logs['reward']:.3f}")
            return
        done = max(state.global_step - self.first_step, 1)
        left = (time.monotonic() - self.started) / done * (state.max_steps - state.global_step)
        console.info(
            f"  step {state.global_step:>{len(str(state.max_steps))}}/{state.max_steps}   "
            f"reward {logs['reward']:6.3f}   length {logs.get('completions/mean_length', 0):6.1f}   "
            f"cut off {100 * logs.get('completions/clipped_ratio', 0):3.0f} %   {console.duration(left)} left"
        )

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self.bar is not None:
            self.bar.close()
        if state.is_world_process_zero and state.global_step >= state.max_steps:
            for line in summary(self.lines, settings=self.settings):
                console.info(f"  {line}")
