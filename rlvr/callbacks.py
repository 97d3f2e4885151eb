"""What happens while the trainer trains: a line a step in metrics.jsonl, and a progress bar with reward and ETA."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr import console
from rlvr.metrics import read_metrics


class MetricsFile(TrainerCallback):
    """Writes every log event as one JSON object a line: `step`, `time` (Unix seconds) and the metrics by TRL's names.

    Lines after the step that a run resumes from are dropped first, so the file has neither holes nor repeats.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = (
            [line for line in read_metrics(self.path) if line["step"] <= state.global_step] if state.global_step else []
        )
        self.path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not state.is_world_process_zero or not logs:
            return
        # JSON has no NaN: a metric that could not be computed is null.
        clean = {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in logs.items()}
        line = {"step": state.global_step, "time": round(time.time(), 3), **clean}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Progress(TrainerCallback):
    """A progress bar with the latest reward and the time left; one line a step where the output is no terminal."""

    def __init__(self) -> None:
        self.bar: tqdm[Any] | None = None
        self.started = 0.0
        self.first_step = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        self.started, self.first_step = time.monotonic(), state.global_step
        if console.is_terminal():
            self.bar = tqdm(
                total=state.max_steps,
                initial=state.global_step,
                desc="training",
                unit="step",
                bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}",
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.bar is not None:
            self.bar.update(1)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        logs = logs or {}
        reward = logs.get("reward")
        if reward is None or not state.is_world_process_zero:
            return
        if self.bar is not None:
            self.bar.set_postfix_str(f"reward {reward:.3f}")
            return
        done = max(state.global_step - self.first_step, 1)
        left = (time.monotonic() - self.started) / done * (state.max_steps - state.global_step)
        console.say(
            f"  step {state.global_step:>{len(str(state.max_steps))}}/{state.max_steps}   reward {reward:6.3f}   "
            f"length {logs.get('completions/mean_length', 0):6.1f}   "
            f"cut off {100 * logs.get('completions/clipped_ratio', 0):3.0f} %   {console.duration(left)} left"
        )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.bar is not None:
            self.bar.close()
