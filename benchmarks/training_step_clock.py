"""Time training steps from inside a process: the sitecustomize.py of the commands of benchmarks/training_step.py.

When transformers.trainer is imported, it adds a callback to the default ones of every Trainer. So the same code times
run_grpo.py and `trl grpo`, unchanged, at the same point. The callback reports each step's begin over a socket and, on
request, waits for permission to continue. A step lasts from one begin to the next: logging, files and the next batch
are part of it.

With COMPLETION_LENGTHS, a JSON list, no model generates: completions are random tokens of lengths from the list, the
same ones in both commands.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import random
import socket
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

GENERATION, TRAINER = "transformers.generation.utils", "transformers.trainer"


class _Watcher(importlib.abc.MetaPathFinder):
    """Changes a module as soon as it is imported."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_change(module: Any) -> None:
            execute(module)
            self.change(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


def _write_lengths(module: Any) -> None:
    """Replace `generate`: a row's length and tokens follow from its prompt, and from how often that came before."""
    import torch

    lengths, seen = json.loads(os.environ["COMPLETION_LENGTHS"]), Counter[bytes]()

    def generate(self: Any, input_ids: Any, attention_mask: Any, generation_config: Any, **kwargs: Any) -> Any:
        eos = self.config.eos_token_id
        completed = torch.full((len(input_ids), max(lengths)), generation_config.pad_token_id)
        for row, (ids, mask) in enumerate(zip(input_ids, attention_mask, strict=True)):
            prompt = ids[mask.bool()].numpy().tobytes()
            seen[prompt] += 1
            order = random.Random(zlib.crc32(prompt) + seen[prompt])
            length = order.choice(lengths)
            completed[row, :length] = torch.tensor(
                order.choices(range(eos + 1, self.config.vocab_size // 128), k=length)
            )
            if length < max(lengths):
                completed[row, length - 1] = eos
        return torch.cat([input_ids, completed], dim=1)

    module.GenerationMixin.generate = generate


def _clock() -> type:
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        """Measure steps; pause at the first one, and then at each step that the benchmark names."""

        def __init__(self) -> None:
            self.connection = socket.socket(socket.AF_UNIX)
            self.connection.connect(os.environ["STEP_CLOCK"])
            self.replies = self.connection.makefile("r")
            self.begun: float | None = None
            self.steps: list[dict[str, Any]] = []
            self.logged: dict[str, float] = {}
            self.stop_at = 0  # steps that are made when it next waits

        def pause(self) -> None:
            """Send what was measured since the last pause, and wait for the step to stop at next."""
            self.connection.sendall((json.dumps(self.steps) + "\n").encode())
            self.steps = []
            reply = self.replies.readline()
            if not reply:
                os._exit(1)  # the benchmark is gone
            self.stop_at = int(reply)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.begun is not None:
                self.steps.append({"seconds": time.perf_counter() - self.begun, **self.logged})
            if state.global_step >= self.stop_at:
                self.pause()
            self.begun = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == state.max_steps:
                self.pause()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            self.logged = {key: logs[key] for key in ("reward", "completions/mean_length") if key in (logs or {})}

    return Clock


if "STEP_CLOCK" in os.environ:
    sys.meta_path.insert(0, _Watcher(TRAINER, lambda module: module.DEFAULT_CALLBACKS.append(_clock())))
if "COMPLETION_LENGTHS" in os.environ:
    sys.meta_path.insert(0, _Watcher(GENERATION, _write_lengths))
