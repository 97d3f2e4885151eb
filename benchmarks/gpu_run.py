"""Train as run_grpo.py does, and write what each moment of a step took: the command that benchmarks/gpu.py measures.

    python -m benchmarks.gpu_run MEASURED.json --config RECIPE [--key value …]

The moments are generating (with TRL's old log-probabilities), sending weights to vLLM, and training. The update is no
moment. Only DeepSpeed makes it in the backward pass, so there it counts as training.
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

import run_grpo
from rlvr.training import train
from rlvr.training.grpo_trainer import RecipeTrainer


class Clock:
    """Seconds and peak bytes of the moment in progress; the moments of a step may be nested."""

    def __init__(self) -> None:
        self.moments: list[str] = []
        self.steps: list[dict[str, float]] = []
        self.peaks: dict[str, list[int]] = {}  # allocated, reserved
        self.sent = 0  # bytes to vLLM by the last synchronisation
        self.used = 0  # of the device, in a step, by all processes
        self.since = 0.0

    @contextmanager
    def moment(self, name: str) -> Iterator[None]:
        self._record()
        self.moments.append(name)
        yield
        self._record()
        self.moments.pop()

    def _record(self) -> None:
        """Count what was measured since the last call to the innermost moment."""
        torch.cuda.synchronize()
        now = time.perf_counter()
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
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        CLOCK.steps.append({})  # the cases accumulate no gradients
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


def main() -> int:
    target, words = Path(sys.argv[1]), sys.argv[2:]
    train.RecipeTrainer = MeasuredTrainer  # type: ignore[misc]
    code = run_grpo.main(words)
    if code != 0 or torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
        return code
    measured = {"steps": CLOCK.steps, "peaks": CLOCK.peaks, "used": CLOCK.used, "sent": CLOCK.sent}
    target.write_text(json.dumps(measured), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
