"""Turn a signal or a time limit into a checkpoint at the same step on every process.

SIGTERM (a spot instance that is taken back, a job that is stopped) and one Ctrl-C let the current step end. One
reduction then tells all processes, a checkpoint is saved, and the run ends with exit code 75. A second Ctrl-C ends the
run at once. Outside the training loop there is nothing to save, so the run ends directly.
"""

from __future__ import annotations

import math
import os
import signal
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

from rlvr import console
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.training.grpo_trainer import RecipeTrainer

LIMIT_VARIABLE = "GRPO_MAX_RUNTIME_S"
_SIGNALS = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}


class Interrupted(BaseException):
    """The run was stopped and can be continued by the same command. The message says why.

    Not an `Exception`, as `KeyboardInterrupt` is none: a library that catches exceptions must not catch it.
    """


class StopRequest:
    """A request to stop this process: a signal that arrived, or the end of its time limit.

    While it is entered as a context, a signal only sets `reason`, since there is something to save. Otherwise a signal
    raises `Interrupted`.

    Args:
        max_runtime_s: seconds from `started` within which the run must have saved and ended; None for no limit.
        started: when the process started, by `time.monotonic`.
    """

    def __init__(self, max_runtime_s: float | None = None, started: float | None = None) -> None:
        self.max_runtime_s = max_runtime_s
        self.started = time.monotonic() if started is None else started
        self.reason: str | None = None
        self.deferred = False
        self._signals = 0
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def install_handlers(self) -> None:
        """Handle SIGTERM and SIGINT; call it in the main thread."""
        self._previous_handlers = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}

    def restore_handlers(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self.reason = _SIGNALS[signal.Signals(number)]
        if number == signal.SIGINT and self._signals > 1 and self.deferred:
            raise KeyboardInterrupt
        if not self.deferred:
            self.raise_if_requested()

    def __enter__(self) -> StopRequest:
        self.deferred = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: Any) -> None:
        self.deferred = kind is not None  # an error on its way out must not be interrupted

    def raise_if_requested(self) -> None:
        """Raise `Interrupted` if there was a signal that was deferred."""
        if self.reason is not None:
            # Once: a launcher sends SIGTERM to the other processes as soon as one has ended, while they end.
            self.deferred = True
            raise Interrupted(f"Stopped by {self.reason}.")

    def exceeds_limit(self, needed_s: float) -> bool:
        """Whether another `needed_s` seconds would exceed the time limit."""
        return self.max_runtime_s is not None and time.monotonic() - self.started + needed_s > self.max_runtime_s


def time_limit(recipe_limit: float | None) -> float | None:
    """The smaller of the recipe's `max_runtime_s` and the environment's GRPO_MAX_RUNTIME_S, in seconds; None for none.

    Raises:
        InputError: the variable holds no positive number.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return recipe_limit
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not limit > 0:
        message = f"{LIMIT_VARIABLE} is {text!r}, but should be a number of seconds above 0."
        raise InputError(message, kind="invalid-value", key=LIMIT_VARIABLE)
    return limit if recipe_limit is None else min(limit, recipe_limit)


class SyncedStopCallback(TrainerCallback):
    """End training after a step, on all processes at the same one, with a checkpoint of it.

    Another step begins only if it and a save fit into the time limit. The step is judged by the longest of the last
    five of its kind, since a step with a generation takes many times as long as one without. The save is judged by the
    last save or, before the first one, by its size.

    Args:
        outage_s: seconds without an answer from any reward server or Ray cluster after which training ends, too.
    """

    def __init__(self, stop: StopRequest, trainer: RecipeTrainer, outage_s: float = math.inf) -> None:
        self.stop = stop
        self.trainer = trainer
        self.outage_s = outage_s
        self.stopped: str | None = None  # why training was ended before its last step
        self._steps_s: dict[bool, list[float]] = {True: [], False: []}  # with a generation, and without
        self._generates = True  # this step
        self._step_started = 0.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._generates = self.trainer.next_step_generates
        self._step_started = time.monotonic()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        own = self._steps_s[self._generates]
        own[:] = [*own[-4:], time.monotonic() - self._step_started]
        alike = self._steps_s[self.trainer.next_step_generates] or own
        late = self.stop.exceeds_limit(1.5 * max(alike) + 2 * self.trainer.checkpoints.expected_save_s)
        outage_s = self.trainer.outage_s
        if outage_s >= self.outage_s and self.stop.reason is None:
            self.stop.reason = f"an outage: no {self.trainer.outage_of} has answered for {console.duration(outage_s)}"
        request = 2 if self.stop.reason else 1 if late else 0
        # One number a step, after which every process knows of every other's request.
        accelerator = self.trainer.accelerator
        strongest = int(accelerator.gather(torch.tensor([request], device=accelerator.device)).max().item())
        if not strongest or state.global_step >= state.max_steps:
            return
        by = f"Stopped by {self.stop.reason or 'a signal to another process'}."
        self.stopped = by if strongest == 2 else "Stopped: max_runtime_s is near."
        control.should_save = control.should_training_stop = True
        console.info(f"\n  {self.stopped} Saving a checkpoint of step {state.global_step} …")
