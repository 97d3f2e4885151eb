"""Rollouts by transformers from a copy of the model into which the adapter is merged.

With an adapter, transformers launches three times as many kernels per token, and 4-bit weights are dequantised for each
of them. Here they are computed once per generation: whole matrices, in float32 the very numbers that training uses plus
the adapter's product, rounded once to the copy's type. The copy is made anew for each generation and dropped after it.
Merging in place and unmerging would leave rounding in the base (huggingface/trl#3466).

The type: float32 on CPUs, which multiply 16-bit numbers fast in few models only. Elsewhere float16: an early adapter is
smaller than bfloat16's grid near the weights. Simulated with NF4, r 16 and a learning rate of 2e-4, float16 keeps 98 to
100 % of the adapter; bfloat16 keeps 31 % after one update, 67 % after 4, 93 % after 10. So bfloat16 is used only with
`rollout_weights: merged` where float16 overflows.

transformers reports no log probabilities of what it samples, so `TokenRecorder` records them. The first generation
compares them with training's (`LIMIT`), and rlvr/training/rollout_check.py does so during the run. TRL corrects for
such differences only with vLLM, so they must stay small here.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from accelerate import init_empty_weights
from peft.tuners.lora import LoraLayer
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel
from transformers.initialization import no_init_weights
from trl.distributed import DistributedBackend
from trl.trainer.utils import pad

from rlvr import console
from rlvr.modeling.generation import generate
from rlvr.training.rollout_check import FIRST_LIMIT, Difference, RolloutError, difference
from rlvr.training.trl_seam import TrlSeam
from rlvr.training.whole_weights import dequantised, plain_name, quantisation, whole

LIMIT = 0.1  # of a logit in the first generation, for `auto`
ADAPTER = "adapter"


class TokenRecorder(LogitsProcessor):
    """Record the log probability of each sampled token over the whole vocabulary, at the temperature.

    A processor sees the logits before their token is sampled, so each call looks up the token of the call before.
    transformers calls it before temperature, top_p and the like. Rows with a logit that is not finite get equal ones:
    sampling from them would end a CUDA process without a message.
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.overflowed = torch.zeros((), dtype=torch.bool)
        self._scores: torch.Tensor | None = None
        self._totals: torch.Tensor | None = None
        self._recorded: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._look_up(input_ids[:, -1])
        scaled = scores if self.temperature == 1 else scores / self.temperature
        totals = scaled.logsumexp(dim=1)
        bad = ~totals.isfinite()
        self.overflowed = self.overflowed.to(bad.device) | bad.any()
        self._scores, self._totals = scaled, totals
        return scores.masked_fill(bad.unsqueeze(1), 0.0)

    def _look_up(self, tokens: torch.Tensor) -> None:
        if self._scores is not None and self._totals is not None:
            self._recorded.append(self._scores.gather(1, tokens.unsqueeze(1)).squeeze(1) - self._totals)

    def log_probabilities(self, completions: list[list[int]], pad_token: int) -> list[list[float]]:
        """Those of each completion's tokens, once generation has ended; the last token was not looked up yet."""
        steps = len(self._recorded)  # without the last
        last = [ids[steps] if len(ids) > steps else pad_token for ids in completions]
        self._look_up(torch.tensor(last, device=self.overflowed.device))
        columns = torch.stack(self._recorded, dim=1).tolist()
        return [row[: len(ids)] for row, ids in zip(columns, completions, strict=True)]


class MergedRollouts:
    """Complete prompts with a merged copy, if the first generation shows that it samples from the policy.

    Args:
        trainer: its model is a PEFT model with a LoRA adapter.
        only_precise: `rollout_weights: auto`: no bfloat16.

    Attributes:
        chosen: the copy's type, or `ADAPTER` if there is to be none; None before the first generation. Part of a
            checkpoint, so that a continued run samples in the same way.
    """

    def __init__(self, trainer: TrlSeam, *, only_precise: bool) -> None:
        self.chosen: str | None = None
        on_cpu = trainer.accelerator.device.type == "cpu"
        self.limit = LIMIT if only_precise else FIRST_LIMIT
        self.types = ("float32",) if on_cpu else ("float16",) if only_precise else ("float16", "bfloat16")
        self._trainer = trainer
        self._backend = DistributedBackend(trainer.accelerator)
        self._copy: PreTrainedModel | None = None
        self._overflowed = torch.zeros((), dtype=torch.bool, device=trainer.accelerator.device)

    def complete(self, prompts: list[list[int]], at_once: int) -> tuple[list[list[int]], list[list[float]]] | None:
        """Token ids and log probabilities of completions; None if the adapter is to generate.

        Collective in the first turn of a generation.
        """
        if self.chosen is None:
            return self._choose(prompts, at_once)
        if self.chosen == ADAPTER:
            return None
        if self._copy is None:
            self._copy = self._merge(self.chosen)
        return self._sample(prompts, at_once)

    def end_generation(self) -> None:
        """Drop the copy, and end the run if its weights or logits were not finite; collective.

        Raises:
            RolloutError: of kind "overflow".
        """
        if self._copy is None:
            return
        self._copy = None
        if self._trainer.any_process(bool(self._overflowed)):
            raise RolloutError(
                f"The merged copy of the weights overflows {self.chosen} at step {self._trainer.state.global_step}. "
                "Set rollout_weights: adapter.",
                "overflow",
            )

    def _choose(self, prompts: list[list[int]], at_once: int) -> tuple[list[list[int]], list[list[float]]] | None:
        """Sample with each type until one samples from the policy. The others leave the random numbers as they were."""
        cuda = self._trainer.accelerator.device.type == "cuda"
        before = torch.get_rng_state(), torch.cuda.get_rng_state() if cuda else None
        for name in self.types:
            self._overflowed.zero_()
            self._copy = self._merge(name)
            completed = self._sample(prompts, at_once)
            found = self._compare(prompts, *completed)
            overflowed = self._trainer.any_process(bool(self._overflowed))
            if not overflowed and found.logit <= self.limit:
                self.chosen = name
                if name == "bfloat16":
                    self._report(f"rollouts: merged in bfloat16; log probabilities differ by {found}")
                return completed
            torch.set_rng_state(before[0])
            if before[1] is not None:
                torch.cuda.set_rng_state(before[1])
            differ = f"log probabilities differ by {found}, the limit is {self.limit}"
            why = "its numbers overflow" if overflowed else differ
            self._report(f"rollouts: not merged in {name}: {why}")
        self.chosen, self._copy = ADAPTER, None
        self._overflowed.zero_()
        self._report("rollouts: the adapter generates")
        return None

    def _report(self, line: str) -> None:
        if self._trainer.accelerator.is_main_process:
            console.error(line)

    def _sample(self, prompts: list[list[int]], at_once: int) -> tuple[list[list[int]], list[list[float]]]:
        assert self._copy is not None
        trainer, ids, log_probabilities = self._trainer, [], []
        for start in range(0, len(prompts), at_once):
            recorder = TokenRecorder(trainer.temperature)
            part = generate(
                self._copy,
                trainer.text_tokenizer,
                prompts[start : start + at_once],
                trainer.generation_config,
                stop_strings=trainer.stop_strings,
                logits_processor=LogitsProcessorList([recorder]),
                synced_gpus=False,  # each process has a whole copy
            )
            ids += part
            log_probabilities += recorder.log_probabilities(part, trainer.text_tokenizer.pad_token_id)
            self._overflowed |= recorder.overflowed
        return ids, log_probabilities

    def _compare(
        self, prompts: list[list[int]], completions: list[list[int]], log_probabilities: list[list[float]]
    ) -> Difference:
        """How far the recorded log probabilities are from training's; collective."""
        trainer = self._trainer
        fill = trainer.text_tokenizer.pad_token_id

        def padded(rows: list[list[Any]], value: float, side: str) -> torch.Tensor:
            tensors = [torch.tensor(row) for row in rows]
            return pad(tensors, padding_value=value, padding_side=side).to(trainer.accelerator.device)

        def ones(rows: list[list[int]]) -> list[list[int]]:
            return [[1] * len(row) for row in rows]

        batch = {
            "prompt_ids": padded(prompts, fill, "left"),
            "prompt_mask": padded(ones(prompts), 0, "left"),
            "completion_ids": padded(completions, fill, "right"),
            "completion_mask": padded(ones(completions), 0, "right"),
            "sampling_per_token_logps": padded(log_probabilities, 0.0, "right"),
        }
        found = difference(trainer, batch, trainer.log_probabilities_of(batch))
        trainer.micro_batches.forget()  # these are the completions of the first turn: those of all turns may be longer
        return found

    def _merge(self, name: str) -> PreTrainedModel:
        """A plain model with the base's numbers plus the adapter's, in this type; collective."""
        trained = self._trainer.accelerator.unwrap_model(self._trainer.model)
        base = trained.get_base_model()
        config = copy.deepcopy(base.config)
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        with torch.random.fork_rng([]), no_init_weights(), init_empty_weights(include_buffers=False):
            model: PreTrainedModel = type(base)(config)
        adapted = {plain_name(path): layer for path, layer in base.named_modules() if isinstance(layer, LoraLayer)}
        for full_name, parameter in base.named_parameters():
            if trained.prefix in full_name:
                continue
            path, _, leaf = plain_name(full_name).rpartition(".")
            layer = adapted.get(path) if leaf == "weight" else None
            owner = base.get_submodule(full_name.rpartition(".")[0])
            state = quantisation(owner, parameter) if leaf == "weight" else None
            numbers = self._merged(parameter, state, layer, trained.active_adapter, getattr(torch, name))
            self._overflowed |= ~numbers.isfinite().all()
            setattr(model.get_submodule(path), leaf, torch.nn.Parameter(numbers, requires_grad=False))
        for full_name, buffer in base.named_buffers():
            path, _, leaf = plain_name(full_name).rpartition(".")
            setattr(model.get_submodule(path), leaf, buffer)
        model.tie_weights()
        model.generation_config = copy.deepcopy(base.generation_config)
        return model.eval()

    def _merged(self, parameter: Any, state: Any, layer: Any, adapter: str, dtype: torch.dtype) -> torch.Tensor:
        low, high = (layer.lora_A[adapter].weight, layer.lora_B[adapter].weight) if layer is not None else (None, None)
        with torch.no_grad(), self._backend.gather_params([one for one in (parameter, low, high) if one is not None]):
            numbers = whole(parameter) if state is None else dequantised(parameter, state)
            if layer is None:
                return numbers.to(dtype, copy=self._backend.is_zero3)  # the gathered weight ends with the context
            product = whole(high).float() @ whole(low).float()
            product = product.T if layer.fan_in_fan_out else product
            return torch.add(numbers.float(), product, alpha=layer.scaling[adapter]).to(dtype)
