"""Rollouts by a second copy of the model in this process: what vLLM does, without vLLM.

The copy has a data type and a base of its own. Its weights are what `receive` makes of the trainer's, so that tests can
plant each fault of a synchronisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from peft import get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import AutoModelForCausalLM

from rlvr.training.grpo_trainer import RecipeTrainer
from rlvr.training.rollout_check import has_adapter

State = dict[str, torch.Tensor]


class EmulatedEngine:
    """Has the methods of TRL's `VLLMGeneration` that a trainer calls (`RecipeTrainer.generate_with`).

    Args:
        trainer: of an adapter or of all weights.
        dtype: of the copy.
        quantised: whether the copy's base has the numbers that the trainer's 4-bit weights stand for.
        receive: (the trained weights, synchronisations before) -> the weights to use.
        prompt: what the copy makes of the tokens of a prompt.
    """

    def __init__(
        self,
        trainer: RecipeTrainer,
        *,
        dtype: torch.dtype = torch.float32,
        quantised: bool = True,
        receive: Callable[[State, int], State] = lambda state, syncs: state,
        prompt: Callable[[list[int]], list[int]] = list,
    ) -> None:
        self.trainer = trainer
        self.receive = receive
        self.prompt = prompt
        self.syncs = 0
        self.base_quantization = "none" if quantised else "another"
        policy = trainer.model
        base = AutoModelForCausalLM.from_pretrained(policy.name_or_path, dtype=dtype)
        for name, module in policy.named_modules():
            if quantised and type(module).__name__ == "Linear4bit":
                from bitsandbytes.functional import dequantize_4bit

                name = name.removeprefix("base_model.model.").removesuffix(".base_layer")
                base.get_submodule(name).weight.data = dequantize_4bit(
                    module.weight.data, module.weight.quant_state
                ).to(dtype)
        self.with_adapter = has_adapter(trainer)
        self.model = (
            (get_peft_model(base, policy.peft_config["default"]) if self.with_adapter else base).to(dtype).eval()
        )

    def sync_weights(self) -> None:
        policy = self.trainer.model
        state = get_peft_model_state_dict(policy) if self.with_adapter else policy.state_dict()
        received = self.receive({name: tensor.clone() for name, tensor in state.items()}, self.syncs)
        if self.with_adapter:
            set_peft_model_state_dict(self.model, received)
        else:
            self.model.load_state_dict(received)
        self.syncs += 1

    @torch.no_grad()
    def generate(self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None) -> Any:
        config = self.trainer.generation_config
        rows = [self.prompt(prompt) for prompt in prompts]
        width = max(len(row) for row in rows)
        ids = torch.tensor([[config.pad_token_id] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        output = self.model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=config,
            return_dict_in_generate=True,
            output_logits=True,
        )
        completions = output.sequences[:, width:]
        logps = (torch.stack(output.logits, dim=1).float() / self.trainer.temperature).log_softmax(-1)
        logps = logps.gather(-1, completions.unsqueeze(-1)).squeeze(-1)
        ends = self.trainer.eos_token_ids
        lengths = [
            next((place + 1 for place, token in enumerate(row) if token in ends), len(row))
            for row in completions.tolist()
        ]
        texts = [row[:length] for row, length in zip(completions.tolist(), lengths, strict=True)]
        sampled = [[[logp] for logp in row[:length]] for row, length in zip(logps.tolist(), lengths, strict=True)]
        return prompts, texts, sampled, None

    def close(self) -> None:
        del self.model
