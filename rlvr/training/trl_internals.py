"""Private names of TRL and transformers, behind public ones.

No other module names an underscore member of GRPOTrainer. trl is bounded to one minor version in pyproject.toml, and
tests/rlvr/training/test_trl_contract.py holds every name and signature that is used here.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from typing import Any

import torch
from accelerate.utils import is_peft_model

from rlvr.environments.messages import resolve
from rlvr.tracking.trackers import unused_trackers_hidden
from rlvr.training.batch_merge import CompletionTable

with unused_trackers_hidden():
    from trl import GRPOTrainer
    from trl.trainer.utils import RepeatSampler

MAX_NESTING = 50  # of lists and mappings in a tool call


class EpochSampler(RepeatSampler):
    """TRL's order of prompts, whichever epoch a process begins with.

    TRL draws one epoch's order after the other from one generator. A run that continues in a later epoch would get the
    order of the first one again.
    """

    epoch = 0

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self.epoch):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()


class ExtensibleGRPOTrainer(GRPOTrainer):
    """`GRPOTrainer` with public names for what its subclasses override, read and write."""

    _tool_wait_s = 0.0
    _result_seconds: list[tuple[dict[str, Any], float | None]] = []  # replaced, never changed
    _own_rollouts: Any = None  # a `VLLMGeneration` of ours
    _epoch_sampler: EpochSampler | None = None

    # ------------------------------------------------------------------------------------------------------------------
    # Methods to override; each calls TRL's own

    def sample_batch(self, inputs: Any) -> dict[str, Any]:
        """Generate and score the completions of one generation batch: this rank's rows; collective."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        return output

    def generate_completions(self, prompts: Any) -> Any:
        """Complete prompts, in several turns where there are tools: prompt ids, completion ids, and more."""
        return super()._generate(prompts)

    def generate_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **kwargs: Any
    ) -> Any:
        """Complete prompts once: completion ids, and their log probabilities or None."""
        return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, **kwargs)

    def compute_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        """Call the reward functions: (completions of all ranks, rewards), NaN for None; collective."""
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def compute_log_probabilities(self, *args: Any, **kwargs: Any) -> Any:
        """Compute each token's log probability, entropy, and the auxiliary loss."""
        return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    def compute_grpo_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        return super()._compute_loss(model, inputs)

    def write_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)

    def run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Train one pass over the prompts; `epoch` is one of the keywords."""
        if self._epoch_sampler is not None:
            self._epoch_sampler.epoch = kwargs["epoch"]
        super()._run_epoch(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        return self.sample_batch(inputs)

    def _generate(self, prompts: Any) -> Any:
        return self.generate_completions(prompts)

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, **kwargs: Any
    ) -> Any:
        return self.generate_turn(prompt_ids, images, multimodal_fields, num_generations, **kwargs)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        return self.compute_rewards(inputs, prompts, completions, completion_ids_list)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        return self.compute_log_probabilities(*args, **kwargs)

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        return self.compute_grpo_loss(model, inputs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.write_checkpoint(model, trial)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        self.run_epoch(*args, **kwargs)

    def _get_train_sampler(self, dataset: Any = None) -> EpochSampler:
        own = super()._get_train_sampler(dataset)
        names = ("data_source", "mini_repeat_count", "batch_size", "repeat_count", "shuffle", "seed")
        self._epoch_sampler = EpochSampler(**{name: getattr(own, name) for name in names})
        return self._epoch_sampler

    def _get_tool_suffix_ids(self, tool_messages: Any) -> Any:
        # TRL calls the tools of all rollouts, one rollout after the other, then this for each of them. Results that are
        # fetched only here make the calls run at the same time.
        started = time.perf_counter()
        self._result_seconds = [*self._result_seconds, *zip(tool_messages, resolve(tool_messages), strict=True)]
        self._tool_wait_s += time.perf_counter() - started
        return super()._get_tool_suffix_ids(tool_messages)

    def refuse_deep_calls(self) -> None:
        """Read a call that is nested very deeply as plain text. TRL catches errors of parsing, but no recursion."""
        tokenizer = self._tokenizer
        tokenizer.parse_response = functools.partial(_parse_shallow, tokenizer.parse_response)

    def take_result_seconds(self) -> list[tuple[dict[str, Any], float | None]]:
        """The messages of tool results since the last call, with the seconds of their calls (`resolve`)."""
        seconds, self._result_seconds = self._result_seconds, []
        return seconds

    def take_tool_wait(self) -> float:
        """Seconds of waiting for tools since the last call."""
        seconds, self._tool_wait_s = self._tool_wait_s, 0.0
        return seconds

    def generate_with(self, rollouts: Any) -> None:
        """Sample by this `VLLMGeneration`; the trainer was built with `use_vllm: false`."""
        self.use_vllm = self.args.use_vllm = True
        self.vllm_generation = self._own_rollouts = rollouts
        self._last_loaded_step = -1

    def end_rollouts(self) -> None:
        """End vLLM if it runs in this process, so that its memory is free for the evaluation after training."""
        if self._own_rollouts is not None:
            self._own_rollouts.close()

    # ------------------------------------------------------------------------------------------------------------------
    # What the check of rollouts needs (rlvr/training/rollout_check.py)

    @property
    def has_adapter(self) -> bool:
        return is_peft_model(self.accelerator.unwrap_model(self.model))

    @property
    def compute_type(self) -> str:
        """The name of the type that training computes in."""
        args = self.args
        return "bfloat16" if args.bf16 else "float16" if args.fp16 else str(self.model.dtype).removeprefix("torch.")

    @property
    def base_differs(self) -> bool:
        """Whether training has 4-bit weights, and vLLM has a base that was not made of them."""
        own = getattr(self.vllm_generation, "base_quantization", "none") == "none" and self.vllm_mode == "colocate"
        return not own and getattr(self.accelerator.unwrap_model(self.model), "is_loaded_in_4bit", False)

    @property
    def has_dropout(self) -> bool:
        """Whether TRL's log probabilities of a batch differ from call to call."""
        return any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in self.model.modules())

    @property
    def samples_from_a_part(self) -> bool:
        """Whether vLLM's log probabilities are those of a part of the vocabulary, or of changed logits."""
        args = self.args
        plain = args.top_p == 1 and not args.top_k and not args.min_p and args.repetition_penalty == 1
        own = set(args.generation_kwargs or {}) - {"stop", "include_stop_str_in_output"}
        return not plain or bool(own) or args.vllm_structured_outputs_regex is not None

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

    # ------------------------------------------------------------------------------------------------------------------
    # Metrics of the next log line, and the table of completions

    @property
    def mode(self) -> str:
        return "train" if self.model.training else "eval"

    @property
    def text_tokenizer(self) -> Any:
        """The tokenizer itself, also where `processing_class` is a processor."""
        return self._tokenizer

    @property
    def micro_step(self) -> int:
        """Forward and backward passes since the run's beginning."""
        return int(self._step)

    @property
    def next_step_generates(self) -> bool:
        """Whether the next optimizer step samples completions; otherwise it uses those that are left."""
        return -self._step % self._generation_cycle < self.args.gradient_accumulation_steps

    @property
    def _generation_cycle(self) -> int:
        """Forward and backward passes from one generation to the next."""
        return int(self.args.steps_per_generation * self.num_iterations)

    def add_metric(self, name: str, value: float) -> None:
        self._metrics[self.mode][name].append(value)

    def replace_metric(self, name: str, value: float) -> None:
        """Replace the value that was added last."""
        self._metrics[self.mode][name][-1] = value

    def drop_nan_metric(self, name: str) -> None:
        """Remove the value that was added last if it is NaN: the mean of a log line would be NaN."""
        metrics = self._metrics[self.mode]
        if name in metrics and metrics[name] and math.isnan(metrics[name][-1]):
            metrics[name].pop()
            if not metrics[name]:
                del metrics[name]  # TRL would log an empty list as None

    def last_metric(self, name: str) -> float:
        return float(self._metrics[self.mode][name][-1])

    @contextmanager
    def without_further_metrics(self) -> Iterator[None]:
        """Drop what is added to the metrics inside."""
        metrics = self._metrics[self.mode]
        lengths = {name: len(values) for name, values in metrics.items()}
        yield
        for name in list(metrics):
            del metrics[name][lengths.get(name, 0) :]
            if not metrics[name]:
                del metrics[name]  # TRL would log an empty list as None

    def last_advantages(self, count: int) -> list[float]:
        """The table's last advantages, all ranks'; at most `count`."""
        return list(self._logs["advantages"])[-count:]

    def replace_last_advantages(self, values: Sequence[float]) -> None:
        for _ in values:
            self._logs["advantages"].pop()
        self._logs["advantages"].extend(values)

    def last_completions(self, count: int) -> list[Any]:
        """The table's last completions, all ranks'; at most `count`."""
        return list(self._logs["completion"])[-count:]

    def replace_last_completions(self, values: Sequence[Any]) -> None:
        for _ in values:
            self._logs["completion"].pop()
        self._logs["completion"].extend(values)

    def read_table(self) -> CompletionTable:
        return CompletionTable(**{name: _plain(self._logs[name]) for name in _COLUMNS})

    def write_table(self, table: CompletionTable) -> None:
        """Replace the rows of TRL's table."""
        for name in _COLUMNS:
            column, rows = self._logs[name], getattr(table, name)
            for own in column.values() if isinstance(column, dict) else [column]:
                own.clear()
            _extend(column, rows)

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
            "logs": {name: _plain(values) for name, values in self._logs.items()} if table_is_needed else {},
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
            _extend(self._logs[name], values)
        self._current_train_step_time = state["step_time"]
        self._tr_loss = state["loss"].to(self.args.device)
        self._globalstep_last_logged = state["last_logged"]


_COLUMNS = tuple(field.name for field in fields(CompletionTable))  # in TRL's `_logs`; it has `images` beside them


def _plain(values: Any) -> Any:
    """Deques as lists, and dictionaries of them as plain ones, which torch.load takes without trusting the file."""
    if isinstance(values, Mapping):
        return {key: list(column) for key, column in values.items() if column}
    return list(values)


def _extend(column: Any, values: Any) -> None:
    """Append to a column of `_logs`, or to each of a dictionary of columns."""
    if isinstance(values, Mapping):
        for key, part in values.items():
            column[key].extend(part)
    else:
        column.extend(values)


def _parse_shallow(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Parse a turn of the model; ValueError, which TRL expects, for one whose nesting nothing after it could handle."""
    try:
        message = parse(*args, **kwargs)
    except RecursionError as error:
        raise ValueError("a tool call is nested too deeply") from error
    level = [message or {}]
    for _ in range(MAX_NESTING):
        level = [
            part
            for value in level
            for part in (value.values() if isinstance(value, dict) else value)
            if isinstance(part, dict | list)
        ]
        if not level:
            return message
    raise ValueError("a tool call is nested too deeply")
