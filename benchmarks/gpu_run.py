"""Train as run_grpo.py does, and write what each moment of a step took: the command that benchmarks/gpu.py measures.

    python -m benchmarks.gpu_run MEASURED.json --config RECIPE [--key value …]

The three moments are those of the memory estimate: generating (with TRL's old log-probabilities), training, updating.
Under DeepSpeed the update is part of the backward pass, so it counts as training.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

import run_grpo
from rlvr.training import train
from rlvr.training.grpo_trainer import RecipeTrainer


class Clock:
    """Seconds and peak bytes of the moment in progress; the moments of a step may be nested."""

    def __init__(self) -> None:
        self.moments: list[str] = []
        self.steps: list[dict[str, float]] = [{}]
        self.peaks: dict[str, list[int]] = {}  # allocated, reserved
        self.sent = 0  # bytes to vLLM by the last synchronisation
        self.used = 0  # of the device, in a step, by all processes
        self.since = 0.0

    @contextmanager
    def moment(self, name: str) -> Iterator[None]:
        self.begin(name)
        yield
        self.end()

    def begin(self, name: str) -> None:
        self._record()
        self.moments.append(name)

    def end(self) -> None:
        self._record()
        self.moments.pop()

    def _record(self) -> None:
        """Count what was measured since the last call to the innermost moment."""
        torch.cuda.synchronize()
        now = time.perf_counter()
        if not self.peaks:  # before the first step
            self.peaks["loading"] = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
        if self.moments:
            name = self.moments[-1]
            self.steps[-1][name] = self.steps[-1].get(name, 0.0) + now - self.since
            measured = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            self.peaks[name] = [max(pair) for pair in zip(measured, self.peaks.get(name, measured), strict=True)]
        free, total = torch.cuda.mem_get_info()
        self.used = max(self.used, total - free)
        torch.cuda.reset_peak_memory_stats()
        self.since = now


CLOCK = Clock()


class MeasuredTrainer(RecipeTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(UpdateClock())

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with CLOCK.moment("training"):
            return super().training_step(*args, **kwargs)

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        with CLOCK.moment("generating"):
            return super()._generate_and_score_completions(*args, **kwargs)

    def generate_with(self, rollouts: Any) -> None:
        """Time the sending of weights to vLLM as a moment of its own."""
        send = rollouts.sync_weights

        def timed() -> None:
            with CLOCK.moment("sending"):
                send()
            CLOCK.sent = rollouts.sent_bytes

        rollouts.sync_weights = timed
        super().generate_with(rollouts)


class UpdateClock(TrainerCallback):
    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        CLOCK.begin("updating")

    def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        if CLOCK.moments:  # DeepSpeed calls no on_pre_optimizer_step
            CLOCK.end()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        CLOCK.steps.append({})


def main() -> int:
    target, words = Path(sys.argv[1]), sys.argv[2:]
    train.RecipeTrainer = MeasuredTrainer  # type: ignore[misc]
    code = run_grpo.main(words)
    if code != 0 or torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
        return code
    measured = {
        "steps": [step for step in CLOCK.steps if step],
        "peaks": CLOCK.peaks,
        "used": CLOCK.used,
        "sent": CLOCK.sent,
    }
    target.write_text(json.dumps(measured), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
