"""The seam to TRL: what this project does inside the private methods of `GRPOTrainer`.

No other module names a private member of GRPOTrainer or transformers' Trainer. Both packages are bounded to one minor
version in pyproject.toml, and tests/rlvr/training/test_trl_contract.py holds every name and signature used here.
"""

from __future__ import annotations

import functools
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from typing import Any

import torch
from trl.models import unwrap_model_for_generation

from rlvr.data.task import ENDED
from rlvr.environments.messages import as_table, limit_nesting, resolve
from rlvr.environments.proxies import Environments
from rlvr.modeling.generation import generate, ignore_generation_config
from rlvr.tracking.trackers import unused_trackers_hidden
from rlvr.training.batch_merge import CompletionTable, extend, plain
from rlvr.training.batch_scores import BatchScores
from rlvr.training.checkpoint_writer import CheckpointWriter
from rlvr.training.dynamic_sampling import DynamicSampler, sample_rounds
from rlvr.training.epoch_sampler import EpochSampler
from rlvr.training.micro_batches import ROW, MicroBatches
from rlvr.training.tool_turns import ToolTurns

with unused_trackers_hidden():
    from trl import GRPOTrainer


class TrlSeam(GRPOTrainer):
    """`GRPOTrainer` with private methods that sample, time and save in this project's way.

    `RecipeTrainer` defines the four methods that describe, score and correct a batch.

    Args:
        settings: the recipe's keys of this project (`Recipe.settings_for("run")`).
        stop_strings: the task's.
        dynamic_sampler, environments: None where the recipe has none.
        kwargs: those of `GRPOTrainer`.
    """

    scores: BatchScores  # of the last generation
    finished: list[bool]  # whether its completions ended by themselves
    _buffered_inputs: Any

    def __init__(
        self,
        *args: Any,
        settings: Mapping[str, Any],
        checkpoints: CheckpointWriter,
        stop_strings: tuple[str, ...] = (),
        dynamic_sampler: DynamicSampler | None = None,
        environments: Environments | None = None,
        **kwargs: Any,
    ) -> None:
        self.settings = settings
        self.stop_strings = stop_strings
        self.checkpoints = checkpoints
        self.dynamic_sampler = dynamic_sampler
        self.played_environments = environments
        self.turns = ToolTurns()  # of the last generation
        self.result_seconds: list[tuple[dict[str, Any], float | None]] = []  # of its messages of tools (`resolve`)
        self._seconds = dict.fromkeys(("generation", "tools", "old_log_probabilities", "rewards"), 0.0)
        self._update_s = self._tool_wait_s = 0.0
        self._log_probabilities: torch.Tensor | None = None
        self._epoch_sampler: EpochSampler | None = None
        self._own_rollouts: Any = None  # a `VLLMGeneration` of ours
        self.merged_rollouts: Any = None  # `MergedRollouts`, where a merged copy may generate
        if environments is not None:
            kwargs["environment_factory"] = environments.factories
        super().__init__(*args, **kwargs)
        self.micro_batches = MicroBatches.of(self.args, aux_loss=self.aux_loss_enabled)
        if environments is not None:
            limit_nesting(self._tokenizer)

    def describe_completions(self, prompt_ids: Any, completion_ids: Any, tool_mask: Any, completions: Any) -> None:
        """Add metrics of this rank's completions; collective."""
        raise NotImplementedError

    def gate_and_mask(self, raw: torch.Tensor, inputs: Any) -> torch.Tensor:
        """Set `scores`, and return what the update uses of (completions of all ranks, rewards); collective."""
        raise NotImplementedError

    def correct_batch(self, batch: dict[str, Any], rows: int) -> None:
        """Correct the advantages and masks of this rank's rows, which were just sampled and scored; collective."""
        raise NotImplementedError

    def add_batch_metrics(self) -> None:
        """Add metrics of the batch that is trained on."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------------------
    # Sampling and rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        sampler = self.dynamic_sampler if self.model.training else None
        batch = self.sample_round(inputs) if sampler is None else sample_rounds(self, sampler, inputs)
        self.add_batch_metrics()
        return batch | {ROW: torch.arange(len(batch["prompt_ids"]))}

    def sample_round(self, inputs: Any) -> dict[str, Any]:
        """Complete and score these rows of this rank; collective."""
        self.micro_batches.begin(self._step)
        if self.played_environments is not None:
            self.played_environments.begin(inputs, self._step)
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        self.correct_batch(batch, len(inputs))
        if self.played_environments is not None:
            rows = len(inputs) * self.accelerator.num_processes
            self.replace_last_logged("completion", as_table(self.last_logged("completion", rows)))
        return batch

    def _generate(self, prompts: Any) -> Any:
        started, self.result_seconds = time.perf_counter(), []
        with ignore_generation_config(self.accelerator.unwrap_model(self.model)):
            output = super()._generate(prompts)
        if self.merged_rollouts is not None:
            self.merged_rollouts.end_generation()
        self.describe_completions(*output[:4])
        tool_s, self._tool_wait_s = self._tool_wait_s, 0.0
        self._seconds["tools"] += tool_s
        self._seconds["generation"] += time.perf_counter() - started - tool_s
        return output

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **kwargs: Any
    ) -> Any:
        if self.use_vllm:
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, **kwargs)
        at_once = self.settings["per_device_generation_batch_size"] or len(prompt_ids)
        if self.merged_rollouts is not None and (completed := self.merged_rollouts.complete(prompt_ids, at_once)):
            return completed
        ids: list[list[int]] = []
        for start in range(0, len(prompt_ids), at_once):
            part = slice(start, start + at_once)
            prompts = prompt_ids[part]
            if self.stop_strings:
                with self.model_for_generation() as model:
                    ids += generate(
                        model, self.text_tokenizer, prompts, self.generation_config, stop_strings=self.stop_strings
                    )
            else:
                own = {name: values[part] for name, values in multimodal_fields.items()}  # such as token types
                ids += super()._generate_single_turn(prompts, images, own, num_generations, **kwargs)[0]
        return ids, None

    def _get_tool_suffix_ids(self, tool_messages: Any) -> Any:
        # TRL calls all tools, then this for each rollout: fetched only here, results come from calls at the same time.
        started = time.perf_counter()
        self.result_seconds += zip(tool_messages, resolve(tool_messages), strict=True)
        self._tool_wait_s += time.perf_counter() - started
        return super()._get_tool_suffix_ids(tool_messages)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        started = time.perf_counter()
        if self.played_environments is not None:
            completion_ids_list = self.turns.own_tokens(completion_ids_list)
        told = [{**row, ENDED: was_ended} for row, was_ended in zip(inputs, self.finished, strict=True)]
        rewards = super()._calculate_rewards(told, prompts, completions, completion_ids_list)
        rewards = self.gate_and_mask(rewards, inputs)
        self._seconds["rewards"] += time.perf_counter() - started
        return rewards

    def model_for_generation(self) -> Any:
        """The model with whole weights and without activation checkpointing, as a context; collective."""
        return unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            generation_kwargs=self.generation_kwargs,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        )

    def generate_with(self, rollouts: Any) -> None:
        """Sample by this `VLLMGeneration`; the trainer was built with `use_vllm: false`."""
        self.use_vllm = self.args.use_vllm = True
        self.vllm_generation = self._own_rollouts = rollouts
        self._last_loaded_step = -1

    def end_rollouts(self) -> None:
        """End the environments' workers, and vLLM if it runs in this process: their memory is free afterwards."""
        if self._own_rollouts is not None:
            self._own_rollouts.close()
        if self.played_environments is not None:
            self.played_environments.workers.close()

    # ------------------------------------------------------------------------------------------------------------------
    # Updates, epochs and checkpoints

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        started, seconds_before = time.perf_counter(), sum(self._seconds.values())
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._update_s += time.perf_counter() - started - (sum(self._seconds.values()) - seconds_before)
        if self._step % self.current_gradient_accumulation_steps == 0:
            for name, seconds in self._seconds.items():
                if name != "tools" or self.played_environments is not None:
                    self.metrics[f"time/{name}"].append(seconds)
            self.metrics["time/update"].append(self._update_s)
            self._seconds, self._update_s = dict.fromkeys(self._seconds, 0.0), 0.0
        return loss

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        earlier, inputs = self._buffered_inputs, super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is not earlier:
            self._buffered_inputs = self.micro_batches.regroup(self._buffered_inputs)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def _get_per_token_logps_and_entropies(
        self, model: Any, ids: Any, mask: Any, width: int, batch_size: Any = None, **kwargs: Any
    ) -> Any:
        started, compute = time.perf_counter(), super()._get_per_token_logps_and_entropies
        if batch_size is None:
            output = compute(model, ids, mask, width, **kwargs)
        else:  # of a generation: those of the old policy, or of the reference model
            own = functools.partial(compute, model, **kwargs)
            output = self.micro_batches.compute(lambda *rows: own(*rows)[0], ids, mask, width), None, None
        if torch.is_grad_enabled():  # of the update
            self._log_probabilities = output[0].detach()
            return output
        if self.accelerator.device.type == "cuda":
            torch.cuda.synchronize()  # or the rewards' time would contain the kernels that still run
        self._seconds["old_log_probabilities"] += time.perf_counter() - started
        return output

    def log_probabilities_of(self, batch: Mapping[str, Any], *, without_adapter: bool = False) -> torch.Tensor:
        """Compute the log probabilities of a batch's completions once more, without dropout; collective."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        model = self.accelerator.unwrap_model(self.model)
        adapter = model.disable_adapter() if without_adapter else nullcontext()
        training = self.model.training
        self.model.eval()
        with torch.no_grad(), adapter:
            logps, *_ = self._get_per_token_logps_and_entropies(
                self.model,
                ids,
                mask,
                batch["completion_ids"].size(1),
                batch_size=self.args.per_device_train_batch_size,
            )
        self.model.train(training)
        return logps

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        old = inputs.get("old_per_token_logps")
        if old is not None and self._log_probabilities is not None:
            # E[log old - log new], the estimator k1 of the KL divergence to the policy that sampled
            # (http://joschu.net/blog/kl-approx.html). Identically 0 where completions are used for one update only.
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
            sums = torch.stack([((old - self._log_probabilities) * mask).sum(), mask.sum().float()])
            difference, tokens = self.accelerator.reduce(sums, reduction="sum")
            self.metrics["policy_kl"].append((difference / tokens.clamp(min=1.0)).item())
        self._log_probabilities = None
        return loss

    def _get_train_sampler(self, dataset: Any = None) -> EpochSampler:
        self._epoch_sampler = EpochSampler.like(super()._get_train_sampler(dataset))
        return self._epoch_sampler

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # From a checkpoint of the last step, transformers 5 makes one more step unless that step ended an epoch.
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        if self._epoch_sampler is not None:
            self._epoch_sampler.epoch = kwargs["epoch"]
        super()._run_epoch(*args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.save_checkpoint(self.state_between_steps())

    def save_checkpoint(self, between_steps: dict[str, Any]) -> None:
        """Write a checkpoint, with `state_between_steps()` or an earlier result of it; collective."""
        self.checkpoints.write(functools.partial(super()._save_checkpoint, self.model, None), between_steps)

    # ------------------------------------------------------------------------------------------------------------------
    # Metrics of the next log line, and the table of completions

    @property
    def metrics(self) -> defaultdict[str, list[float]]:
        """The values of the next log line, by name; it shows their means."""
        metrics: defaultdict[str, list[float]] = self._metrics["train" if self.model.training else "eval"]
        return metrics

    @property
    def text_tokenizer(self) -> Any:
        """The tokenizer itself, also where `processing_class` is a processor."""
        return self._tokenizer

    @property
    def next_step_generates(self) -> bool:
        """Whether the next optimizer step samples completions; otherwise it uses those that are left."""
        return -self._step % self._generation_cycle < self.args.gradient_accumulation_steps

    @property
    def _generation_cycle(self) -> int:
        """Forward and backward passes from one generation to the next."""
        return int(self.args.steps_per_generation * self.num_iterations)

    def drop_nan_metric(self, name: str) -> None:
        """Remove the value that was added last if it is NaN: the mean of a log line would be NaN."""
        if (values := self.metrics.get(name)) and math.isnan(values[-1]):
            _shorten(self.metrics, name, len(values) - 1)

    @contextmanager
    def without_further_metrics(self) -> Iterator[None]:
        """Drop what is added to the metrics inside."""
        lengths = {name: len(values) for name, values in self.metrics.items()}
        yield
        for name in list(self.metrics):
            _shorten(self.metrics, name, lengths.get(name, 0))

    def last_logged(self, column: str, count: int) -> list[Any]:
        """The last values of a column of the table, all ranks'; at most `count`."""
        return list(self._logs[column])[-count:]

    def replace_last_logged(self, column: str, values: Sequence[Any]) -> None:
        for _ in values:
            self._logs[column].pop()
        self._logs[column].extend(values)

    def read_table(self) -> CompletionTable:
        return CompletionTable(**{name: plain(self._logs[name]) for name in _COLUMNS})

    def write_table(self, table: CompletionTable) -> None:
        """Replace the rows of TRL's table."""
        for name in _COLUMNS:
            column, rows = self._logs[name], getattr(table, name)
            for own in column.values() if isinstance(column, dict) else [column]:
                own.clear()
            extend(column, rows)

    # ------------------------------------------------------------------------------------------------------------------
    # What TRL's checkpoints lack

    def state_between_steps(self) -> dict[str, Any]:
        """What training holds between two steps and TRL doesn't save: plain values and tensors."""
        cycle = self._generation_cycle
        table_is_needed = self._step % cycle or self._globalstep_last_logged < self.state.global_step
        return {
            "step": self._step,
            # At the end of a cycle new completions are sampled anyway.
            "buffered_inputs": self._buffered_inputs if self._step % cycle else None,
            "metrics": {mode: dict(metrics) for mode, metrics in self._metrics.items()},
            "logs": {name: plain(values) for name, values in self._logs.items()} if table_is_needed else {},
            "step_time": self._current_train_step_time,
            "loss": self._tr_loss,
            "last_logged": self._globalstep_last_logged,
        }

    def load_state_between_steps(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_between_steps()`; after transformers has loaded its own part."""
        self._step = state["step"]
        self._buffered_inputs = state["buffered_inputs"]
        if self._buffered_inputs is not None:
            device = self.accelerator.device
            self._buffered_inputs = [
                {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in batch.items()}
                for batch in self._buffered_inputs
            ]
        for mode, metrics in state["metrics"].items():
            self._metrics[mode].update(metrics)
        for name, values in state["logs"].items():
            extend(self._logs[name], values)
        self._current_train_step_time = state["step_time"]
        self._tr_loss = state["loss"].to(self.args.device)
        self._globalstep_last_logged = state["last_logged"]


_COLUMNS = tuple(field.name for field in fields(CompletionTable))  # in TRL's `_logs`; it has `images` beside them


def _shorten(metrics: dict[str, list[float]], name: str, length: int) -> None:
    del metrics[name][length:]
    if not metrics[name]:
        del metrics[name]  # TRL would log an empty list as None
