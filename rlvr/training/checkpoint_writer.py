"""Checkpoints that are complete or absent, and continue a run bit for bit.

TRL's own checkpoints lack three things for that: the completions between two generations (with steps_per_generation
above gradient_accumulation_steps a resumed run would sample them again), the metrics since the last log line, and a
marker that every process has written its part.
"""

from __future__ import annotations

import copy
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list, gather_object
from safetensors import SafetensorError

from rlvr import console
from rlvr.artifacts import checkpoints
from rlvr.artifacts.identity import Identity
from rlvr.formatting import byte_count

if TYPE_CHECKING:
    from rlvr.training.grpo_trainer import RecipeTrainer

# A full disk arrives as OSError from Python's own writing, as RuntimeError from torch.save, and as SafetensorError.
_WRITE_ERRORS = (OSError, RuntimeError, SafetensorError)
MAX_WAIT_S = 3600.0  # for disk space at the end of training
WAIT_STEP_S = 5.0
BYTES_PER_WEIGHT = 12  # of a checkpoint: the trained weight and two moments of Adam, in float32
# Of a disk before the first checkpoint was timed. A time limit reserves twice the time of a save, hence 100 MB/s: less
# than the default of an EBS gp3 volume, 125 MB/s.
ASSUMED_BYTES_PER_S = 200e6


@dataclass(frozen=True)
class _Finished:
    """What a checkpoint of a finished step holds, and sampling for the next step changes.

    Attributes:
        step: optimizer steps made.
        between_steps: as `RecipeTrainer.state_between_steps` returns it.
        tokens: `TrainerState.num_input_tokens_seen`.
        random_states: of Python, numpy, PyTorch on the CPU, and on this process's GPU.
    """

    step: int
    between_steps: dict[str, Any]
    tokens: int
    random_states: tuple[Any, Any, torch.Tensor, torch.Tensor | None]


class CheckpointWriter:
    """Save checkpoints that rlvr/artifacts/checkpoints.py can verify.

    Args:
        trainer: whose checkpoints these are.
        identity: the run's model, data and settings; written into every checkpoint.
        keep: how many complete checkpoints stay; None for all. transformers would delete older ones before the new one
            is complete.
        card: the model card of the run and of its checkpoints.
    """

    def __init__(self, trainer: RecipeTrainer, identity: Identity, keep: int | None = None, card: str = "") -> None:
        self.identity, self.keep, self.card = identity, keep, card
        self._trainer = trainer
        self._last_save_s: float | None = None  # seconds that the last checkpoint took
        self._finished: _Finished | None = None

    @property
    def _output_dir(self) -> Path:
        return Path(self._trainer.args.output_dir)

    def remember_finished_step(self) -> None:
        """Keep what `save_finished_step` needs; call it when an epoch or a step begins.

        At the first step of an epoch the loader has drawn its order already, and a resumed run draws it again: the
        state from when the epoch began stays.
        """
        state = self._trainer.state
        if self._finished is not None and self._finished.step == state.global_step:
            return
        self._finished = _Finished(
            state.global_step,
            copy.deepcopy(self._trainer.state_between_steps()),
            state.num_input_tokens_seen,
            (
                random.getstate(),
                np.random.get_state(),
                torch.get_rng_state(),
                torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
            ),
        )

    def save_finished_step(self) -> None:
        """Save a checkpoint of the last finished step, unless there is one, after a failure that ends the run.

        Collective. A run that continues from it equals one that did not fail. It may have failed while it sampled for
        the next step, or while it validated this one.
        """
        finished, state = self._finished, self._trainer.state
        newest = checkpoints.newest_complete(self._output_dir)
        saved = newest is not None and newest.name == f"{checkpoints.PREFIX}{state.global_step}"
        if not state.global_step or self._trainer.any_process(saved):
            return
        console.info(f"\n  Saving a checkpoint of step {state.global_step} …")
        between_steps = self._trainer.state_between_steps()
        if finished is not None and finished.step == state.global_step:
            state.num_input_tokens_seen = finished.tokens
            python, numpy, cpu, gpu = finished.random_states
            random.setstate(python)
            np.random.set_state(numpy)
            torch.set_rng_state(cpu)
            if gpu is not None:
                torch.cuda.set_rng_state(gpu)
            between_steps = finished.between_steps
        self._trainer.save_checkpoint(between_steps)

    def write(self, save: Callable[[], None], between_steps: dict[str, Any]) -> None:
        """Write a checkpoint of the current step; collective.

        Args:
            save: writes TRL's part.
            between_steps: as `RecipeTrainer.state_between_steps` returns it.
        """
        started = time.monotonic()
        trainer, accelerator, is_main = self._trainer, self._trainer.accelerator, self._trainer.is_world_process_zero()
        step = trainer.state.global_step
        folder = self._output_dir / f"{checkpoints.PREFIX}{step}"
        missing = self._missing_space()
        if trainer.any_process(missing > 0):
            self._report_failed_save(
                f"about {max(missing, 0) / 1e9:.2g} GB more are needed on the disk of {folder.parent}"
            )
            return
        if is_main:
            checkpoints.remove(folder)  # a killed run may have left parts
        accelerator.wait_for_everyone()

        def save_files() -> None:
            save()
            folder.mkdir(parents=True, exist_ok=True)  # a further machine may not have it yet
            self.write_card(folder)
            torch.save(between_steps, checkpoints.process_file(folder, accelerator.process_index))

        own: dict[str, str] = {}
        if not self._succeeds(save_files, folder, "written"):
            return
        accelerator.wait_for_everyone()
        if not self._succeeds(
            lambda: own.update(checkpoints.digests_of(folder, accelerator.process_index)), folder, "read back"
        ):
            return
        digests = dict(gather_object([*own.items()]))

        def mark() -> None:
            if is_main:
                checkpoints.mark_complete(folder, step, self.identity, digests, save_s=time.monotonic() - started)

        if not self._succeeds(mark, folder, "marked as complete"):
            return
        if is_main:
            best = trainer.state.best_global_step if trainer.args.load_best_model_at_end else None
            checkpoints.rotate(folder.parent, self.keep, best)
        kept = broadcast_object_list([[path.name for path in checkpoints.list_checkpoints(folder.parent)]])[0]
        if accelerator.is_local_main_process and not is_main:
            checkpoints.keep_only(folder.parent, kept)  # a further machine may have its own disk
        accelerator.wait_for_everyone()
        self._last_save_s = time.monotonic() - started

    def _succeeds(self, step: Callable[[], None], folder: Path, verb: str) -> bool:
        """Whether a step of saving succeeds on all processes; if not, remove the folder and say why. Collective."""
        failure = None
        try:
            step()
        except _WRITE_ERRORS as error:
            if isinstance(error, RuntimeError) and not _is_about_writing(error):
                raise
            failure = error
        if not self._trainer.any_process(failure is not None):
            return True
        if self._trainer.is_world_process_zero():
            checkpoints.remove(folder)
        self._report_failed_save(f"it can't be {verb} ({failure or 'on another process'})")
        return False

    @property
    def expected_save_s(self) -> float:
        """Seconds that the next checkpoint takes: as the last one, or by its size and a second for the rest."""
        if self._last_save_s is not None:
            return self._last_save_s
        # Under ZeRO-3 a parameter itself is empty.
        weights = sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in self._trained())
        return 1 + BYTES_PER_WEIGHT * weights / ASSUMED_BYTES_PER_S

    def write_card(self, folder: Path) -> None:
        """Write the model card into a folder with weights, in place of TRL's and PEFT's."""
        if self._trainer.is_world_process_zero():
            (folder / "README.md").write_text(self.card, encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Restore what a checkpoint holds next to transformers' own files; after transformers has loaded those."""
        file = checkpoints.process_file(folder, self._trainer.accelerator.process_index)
        self._trainer.load_state_between_steps(torch.load(file, weights_only=True))
        if (folder / checkpoints.MARKER).is_file():  # a further machine may not have it
            self._last_save_s = checkpoints.read_marker(folder).get("save_s")

    def _missing_space(self) -> float:
        """Bytes that the disk lacks for a checkpoint, estimated; not positive if it fits."""
        latest = checkpoints.newest_complete(self._output_dir)
        if latest is not None:
            needed = checkpoints.size_bytes(latest)
        else:
            needed = BYTES_PER_WEIGHT * sum(parameter.numel() for parameter in self._trained())
        return needed - shutil.disk_usage(self._output_dir).free if self._trainer.args.should_save else 0.0

    def _trained(self) -> Iterator[torch.nn.Parameter]:
        return (parameter for parameter in self._trainer.model.parameters() if parameter.requires_grad)

    def wait_for_room(self, folder: Path, should_stop: Callable[[], bool]) -> None:
        """Wait for disk space for the trained weights, which are in memory alone, for up to `MAX_WAIT_S`. Collective.

        Args:
            folder: that they will be saved to; its parent exists.
            should_stop: whether this process was asked to end.
        """
        trainer = self._trainer
        needed = sum(parameter.numel() * parameter.element_size() for parameter in self._trained())
        started, told = time.monotonic(), False
        while trainer.any_process(trainer.args.should_save and needed > shutil.disk_usage(folder.parent).free):
            if trainer.any_process(should_stop() or time.monotonic() - started > MAX_WAIT_S):
                return  # saving fails, which says why
            if not told:
                told = True
                console.error(
                    f"\n  The disk of {folder.parent} has no room for the trained weights ({byte_count(needed)}). Free "
                    f"some: the run waits for up to {MAX_WAIT_S / 60:.0f} minutes, then saves them and goes on."
                )
            time.sleep(WAIT_STEP_S)

    def _report_failed_save(self, why: str) -> None:
        latest = checkpoints.newest_complete(self._output_dir)
        kept = f"the last complete one is {latest.name}" if latest is not None else "there is no other one yet"
        console.error(
            f"\n  NO CHECKPOINT of step {self._trainer.state.global_step}: {why}, and {kept}. Training continues. Free "
            "some disk space: the next checkpoint is saved."
        )


def _is_about_writing(error: RuntimeError) -> bool:
    return any(words in str(error).lower() for words in ("no space", "write", "writing", "file", "enforce fail"))
