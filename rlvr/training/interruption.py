"""Stopping in time: a signal, or a limit of time, becomes a checkpoint on which every process agrees.

SIGTERM (a spot instance that is taken back, a job that is stopped) and one Ctrl-C let the step at hand end. Then all
processes hear of it in one reduction, so that none goes on alone, a checkpoint is saved, and the run ends with exit
code 75. A second Ctrl-C ends at once. Outside the training loop there is nothing to save, so the run ends directly.
"""

from __future__ import annotations

import math
import os
import signal
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rlvr import console
from rlvr.errors import InputError

if TYPE_CHECKING:
    from rlvr.training.grpo_trainer import RecipeTrainer

LIMIT_VARIABLE = "GRPO_MAX_RUNTIME_S"
_SIGNALS = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}


class Interrupted(BaseException):
    """The run was told to stop, and can be continued by the same command. The message says why.

    No `Exception`, as `KeyboardInterrupt` is none: it may be raised inside a library that catches those.
    """


class Stop:
    """What tells this process to stop: signals that arrive, and the time that it may run for.

    Args:
        max_runtime_s: seconds from `started` after which the run shall have saved and ended; None for no limit.
        started: when the process began, by `time.monotonic`.
    """

    def __init__(self, max_runtime_s: float | None = None, started: float | None = None) -> None:
        self.max_runtime_s = max_runtime_s
        self.started = time.monotonic() if started is None else started
        self.reason: str | None = None
        self.deferred = False
        self._count = 0
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """Takes over SIGTERM and SIGINT; from the main thread."""
        self._before = {number: signal.signal(number, self._hear) for number in _SIGNALS}

    def unlisten(self) -> None:
        """Gives the signals back to who had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        self.reason = _SIGNALS[signal.Signals(number)]
        if number == signal.SIGINT and self._count > 1 and self.deferred:
            raise KeyboardInterrupt
        if not self.deferred:
            self.check()

    def __enter__(self) -> Stop:
        """From here on a signal is kept until somebody asks (`reason`), since something is there to be saved."""
        self.deferred = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: Any) -> None:
        self.deferred = kind is not None  # on the way out nothing more is to be interrupted

    def check(self) -> None:
        """Raises what a signal that came while it was deferred would have raised.

        Raises:
            Interrupted: there was one.
        """
        if self.reason is not None:
            # Once: a launcher sends SIGTERM to the other processes as soon as one has ended, while they end.
            self.deferred = True
            raise Interrupted(f"Stopped by {self.reason}.")

    def runs_out(self, needed_s: float) -> bool:
        """Whether another `needed_s` seconds would go beyond the limit of time."""
        return self.max_runtime_s is not None and time.monotonic() - self.started + needed_s > self.max_runtime_s


def time_limit(wanted: float | None) -> float | None:
    """The smaller of the recipe's `max_runtime_s` and the environment's GRPO_MAX_RUNTIME_S, in seconds; None for none.

    Raises:
        InputError: the variable holds no positive number.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return wanted
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not given > 0:
        raise InputError(f"{LIMIT_VARIABLE} is {text!r}, but should be a number of seconds above 0.")
    return given if wanted is None else min(given, wanted)


class SyncedStopCallback(TrainerCallback):
    """Ends training after a step, on all processes at the same one, with a checkpoint of it.

    The time limit is judged by the longest of the last steps and the last save: another step is begun only if it and
    a save fit in.

    Args:
        outage_s: seconds without an answer from any reward server or Ray cluster after which training ends, too.

    Attributes:
        stopped: why training was ended before its last step; None if it was not.
    """

    def __init__(self, stop: Stop, trainer: RecipeTrainer, outage_s: float = math.inf) -> None:
        self.stop = stop
        self.trainer = trainer
        self.outage_s = outage_s
        self.stopped: str | None = None
        self._steps: list[float] = []
        self._began = 0.0

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._began = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        import torch

        self._steps = [*self._steps[-4:], time.monotonic() - self._began]
        longest = max(self._steps)
        late = self.stop.runs_out(1.5 * longest + 2 * (self.trainer.last_save_s or longest))
        silent_s = self.trainer.silent_s
        if silent_s >= self.outage_s and self.stop.reason is None:
            self.stop.reason = f"an outage: no {self.trainer.silent} has answered for {console.duration(silent_s)}"
        mine = 2 if self.stop.reason else 1 if late else 0
        # One number a step, after which every process knows what any of them was told.
        accelerator = self.trainer.accelerator
        told = int(accelerator.gather(torch.tensor([mine], device=accelerator.device)).max().item())
        if not told or state.global_step >= state.max_steps:
            return
        self.stopped = (
            "Stopped: max_runtime_s is near."
            if told == 1
            else f"Stopped by {self.stop.reason or 'a signal to another process'}."
        )
        control.should_save = control.should_training_stop = True
        console.info(f"\n  {self.stopped} Saving a checkpoint of step {state.global_step} …")
