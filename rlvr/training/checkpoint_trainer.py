"""A `GRPOTrainer` whose checkpoints are complete or absent, and continue a run bit for bit.

What TRL's own checkpoints lack for that: the completions between two generations (with steps_per_generation above
gradient_accumulation_steps a resumed run would sample them again), the figures gathered since the last log line, and a
sign that every process has written its part.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

from rlvr import console
from rlvr.artifacts import checkpoints
from rlvr.artifacts.identity import Identity

# A full disk reaches us as OSError from Python's own writing, as RuntimeError from torch.save, and as SafetensorError.
_WRITE_ERRORS = (OSError, RuntimeError, SafetensorError)


class SavingTrainer(GRPOTrainer):
    """`GRPOTrainer` with checkpoints that rlvr/artifacts/checkpoints.py can vouch for.

    Private names of TRL and transformers that it reads or writes: `_save_checkpoint`, `_step`, `_buffered_inputs`,
    `_metrics`, `_logs`, `_current_train_step_time`, `_tr_loss`, `_globalstep_last_logged`. They can go when TRL saves
    them itself. tests/rlvr/training/test_trl_contract.py holds them.

    Args:
        identity: what the run is made of, written into every checkpoint.
        keep_checkpoints: how many complete checkpoints stay; None for all. transformers would delete the older ones
            before the new one is known to be complete.
    """

    def __init__(self, *args: Any, identity: Identity, keep_checkpoints: int | None = None, **kwargs: Any) -> None:
        self.identity = identity
        self.keep_checkpoints = keep_checkpoints
        self.last_save_s = 0.0
        self.failed_saves = 0
        super().__init__(*args, **kwargs)

    def own_state(self) -> dict[str, Any]:
        """What a subclass keeps from step to step: plain values and tensors; goes into every checkpoint."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Takes back what `own_state` gave."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        started = time.monotonic()
        step = self.state.global_step
        folder = Path(self.args.output_dir) / f"{checkpoints.PREFIX}{step}"
        missing = self._missing_space()
        if self.anywhere(missing > 0):
            self._not_saved(f"about {max(missing, 0) / 1e9:.2g} GB more are needed on the disk of {folder.parent}")
            return
        if self.is_world_process_zero():
            checkpoints.remove(folder)  # a killed run may have left a part of it
        self.accelerator.wait_for_everyone()
        fault = None
        try:
            super()._save_checkpoint(model, trial)
            torch.save(self._between_steps(), _state_file(folder, self.accelerator.process_index))
        except _WRITE_ERRORS as error:
            if isinstance(error, RuntimeError) and not _is_about_writing(error):
                raise
            fault = error
        if self.anywhere(fault is not None):
            if self.is_world_process_zero():
                checkpoints.remove(folder)
            self._not_saved(f"it could not be written ({fault or 'on another process'})")
            return
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            checkpoints.mark_complete(folder, step, self.identity)
            checkpoints.rotate(folder.parent, self.keep_checkpoints)
        kept = broadcast_object_list([[path.name for path in checkpoints.list_checkpoints(folder.parent)]])[0]
        if self.accelerator.is_local_main_process and not self.is_world_process_zero():
            checkpoints.keep_only(folder.parent, kept)  # this machine may have a disk of its own
        self.accelerator.wait_for_everyone()
        self.last_save_s = time.monotonic() - started

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # From a checkpoint of the last step transformers 5 makes one step more, unless that step ended an epoch.
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)

    def restore_between_steps(self, folder: Path) -> None:
        """Takes back what `_between_steps` gave; to be called when training begins, after transformers' own loading."""
        state = torch.load(_state_file(folder, self.accelerator.process_index), weights_only=True)
        self._step = state["step"]
        self._buffered_inputs = state["buffered_inputs"]
        if self._buffered_inputs is not None:
            device = self.accelerator.device
            self._buffered_inputs = [
                {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in part.items()}
                for part in self._buffered_inputs
            ]
        for mode, metrics in state["metrics"].items():
            self._metrics[mode].update(metrics)
        for name, values in state["logs"].items():
            if isinstance(values, dict):
                for key, column in values.items():
                    self._logs[name][key].extend(column)
            else:
                self._logs[name].extend(values)
        self._current_train_step_time = state["step_time"]
        self._tr_loss = state["loss"].to(self.args.device)
        self._globalstep_last_logged = state["last_logged"]
        self.load_own_state(state["own"])

    def _between_steps(self) -> dict[str, Any]:
        cycle = self.args.steps_per_generation * self.num_iterations
        kept = self._step % cycle or self._globalstep_last_logged < self.state.global_step
        return {
            "step": self._step,
            # At the end of a cycle new completions are sampled anyway.
            "buffered_inputs": self._buffered_inputs if self._step % cycle else None,
            "metrics": {mode: dict(metrics) for mode, metrics in self._metrics.items()},
            "logs": {name: _plain(values) for name, values in self._logs.items()} if kept else {},
            "step_time": self._current_train_step_time,
            "loss": self._tr_loss,
            "last_logged": self._globalstep_last_logged,
            "own": self.own_state(),
        }

    def _missing_space(self) -> float:
        """Bytes that the disk lacks for a checkpoint; not positive if it will fit, as far as can be known."""
        output_dir = Path(self.args.output_dir)
        latest = checkpoints.newest_complete(output_dir)
        if latest is not None:
            needed = checkpoints.size_bytes(latest)
        else:
            # Weights of what is trained, and two moments of Adam, in float32.
            needed = 12 * sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)
        return needed - shutil.disk_usage(output_dir).free if self.args.should_save else 0.0

    def _not_saved(self, why: str) -> None:
        self.failed_saves += 1
        latest = checkpoints.newest_complete(Path(self.args.output_dir))
        kept = f"the last complete one is {latest.name}" if latest is not None else "there is no other one yet"
        console.error(
            f"\n  NO CHECKPOINT of step {self.state.global_step}: {why}; {kept}. Training goes on; make room, and the "
            "next one is saved."
        )

    def anywhere(self, flag: bool) -> bool:
        """Whether `flag` is true on any process; collective."""
        told = torch.tensor([float(flag)], device=self.accelerator.device)
        return bool(self.accelerator.gather(told).max().item() > 0)


class RestoreBetweenSteps(TrainerCallback):
    """Has a resumed trainer take back what its checkpoint holds beside transformers' own files."""

    def __init__(self, trainer: SavingTrainer, folder: Path | None) -> None:
        self.trainer = trainer
        self.folder = folder

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.folder is not None:
            self.trainer.restore_between_steps(self.folder)


def _state_file(folder: Path, process: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)  # on further machines it may not be there yet
    return checkpoints.process_file(folder, process)


def _plain(values: Any) -> Any:
    """Deques as lists, and dictionaries of them as plain ones, which torch.load takes without trusting the file."""
    if isinstance(values, deque | list):
        return list(values)
    return {key: list(column) for key, column in values.items()}


def _is_about_writing(error: RuntimeError) -> bool:
    text = str(error).lower()
    return any(words in text for words in ("no space", "write", "writing", "file", "enforce fail"))
