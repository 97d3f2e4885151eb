"""Rollouts by transformers' continuous batching: a completion that has ended makes room for the next one.

Plain `generate` computes every row of a batch until the longest has ended. Where completions differ much in length,
most of that is for nothing. vLLM doesn't do so either, but can't serve a 4-bit base; this can.

TRL 1.16 has the option (`use_transformers_continuous_batching`) and calls `generate_batch` itself. This module is used
in its place, because of what was found there (transformers 5.23; tests/rlvr/modeling/test_continuous_batching.py shows
each):

- With `bf16: true` TRL casts all of the model to bfloat16 for it, for good: the float32 adapter of a QLoRA run, or the
  float32 weights of full fine-tuning, are bfloat16 from the first generation on, and small updates are rounded away.
- Stop strings are not looked at. A completion is cut here after its stop string: what it is then follows the same
  distribution as if it had been stopped there; the tokens after it were computed for nothing.
- A request that fails comes back as an empty completion, with a line in a log. Here it is an error.
- Its memory is a share of what is free, whatever the batch needs. Here it is what the batch can need at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

PAGE = 32  # tokens of a page of the cache; transformers' 256 leaves most of a page empty where completions are short
# Tokens that are computed at a time. Without FlashAttention a mask of this times the whole cache is kept, twice.
AT_A_TIME = 512


def settings_faults(settings: Mapping[str, Any], launcher: str) -> list[str]:
    """Why a recipe's rollouts can't be sampled by continuous batching, each without a full stop; empty if they can.

    Args:
        settings: the recipe's flat keys.
        launcher: as `rlvr.training.launch.launcher` names it.
    """
    if not settings.get("use_transformers_continuous_batching"):
        return []
    faults = []
    name = "use_transformers_continuous_batching"
    if settings.get("use_vllm"):
        faults.append(f"{name} and use_vllm are both true: TRL would take vLLM. Keep one")
    penalty = settings.get("repetition_penalty")
    if penalty is not None and penalty != 1.0:
        faults.append(
            f"{name}: continuous batching drops repetition_penalty (it only warns), so completions would not be "
            "sampled as the recipe says. Remove repetition_penalty, or continuous batching"
        )
    options = settings.get("transformers_continuous_batching_config") or {}
    if options.get("seed") is not None:
        faults.append(
            f"transformers_continuous_batching_config: seed: {options['seed']} would give every step the same random "
            "numbers, and reset those of the whole process. Remove it: the recipe's own seed is enough"
        )
    if launcher.startswith("fsdp"):
        faults.append(
            f"{name}: FSDP gathers weights in every forward pass, and ranks whose completions differ in length make "
            "different numbers of them, so all would wait for ever. Use ddp, zero2 or zero3, or plain generation"
        )
    if launcher.startswith("zero3") and settings.get("ds3_gather_for_generation") is False:
        faults.append(
            f"{name}: with ds3_gather_for_generation: false ZeRO-3 gathers weights in every forward pass, and ranks "
            "make different numbers of them, so all would wait for ever. Set ds3_gather_for_generation: true"
        )
    return faults


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt_ids: Sequence[Sequence[int]],
    config: GenerationConfig,
    *,
    stop_strings: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> list[list[int]]:
    """Completes a batch of prompts, as `rlvr.modeling.generation.generate` does.

    The model computes in its own type and in evaluation mode; afterwards it is in the mode that it was in. The random
    numbers that are drawn follow from PyTorch's generator, so a run that is continued samples the same.

    Args:
        options: fields of transformers' `ContinuousBatchingConfig` that the recipe sets
            (`transformers_continuous_batching_config`); they win over what is chosen here.

    Raises:
        RuntimeError: transformers could not complete all prompts.
    """
    import torch
    from transformers.generation import ContinuousBatchingConfig

    longest = int(config.max_new_tokens or 0)
    chosen: dict[str, Any] = {"page_size": PAGE, "max_batch_tokens": AT_A_TIME, **(options or {})}
    if not {"num_blocks", "max_memory_percent"} & chosen.keys():
        chosen["num_blocks"] = sum(math.ceil((len(ids) + longest) / chosen["page_size"]) for ids in prompt_ids)
        chosen["max_memory_percent"] = 0.9  # no aim, but the most that num_blocks may come to
    training = model.training
    with torch.no_grad():
        try:
            outputs = _run(model, prompt_ids, config, ContinuousBatchingConfig(**chosen))
        except MemoryError:
            # The worst case doesn't fit. A smaller cache does too: requests then wait for one another.
            chosen = {**chosen, "num_blocks": None, "max_memory_percent": 0.5}
            outputs = _run(model, prompt_ids, config, ContinuousBatchingConfig(**chosen))
    model.train(training)
    failed = sorted({str(output.error) for output in outputs if output.error})
    if failed or len(outputs) != len(prompt_ids):
        said = "; ".join(failed) or "it gave no reason"
        raise RuntimeError(
            f"Continuous batching completed {sum(not output.error for output in outputs)} of {len(prompt_ids)} "
            f"prompts: {said}. transformers_continuous_batching_config: {{max_memory_percent: …}} makes more room; "
            "use_transformers_continuous_batching: false does without."
        )
    return [cut(tokenizer, list(output.generated_tokens), stop_strings) for output in outputs]


def _run(model: PreTrainedModel, prompt_ids: Sequence[Sequence[int]], config: GenerationConfig, batching: Any) -> Any:
    found = model.generate_batch(
        [list(ids) for ids in prompt_ids],
        generation_config=config,
        continuous_batching_config=batching,
        progress_bar=False,
    )
    return list(found.values())  # in the order of the prompts


def cut(tokenizer: PreTrainedTokenizerBase, ids: list[int], stop_strings: Sequence[str]) -> list[int]:
    """Up to and with the token that completes the first stop string; all if there is none."""

    def stopped(count: int) -> bool:
        text = tokenizer.decode(ids[:count])
        return any(stop in text for stop in stop_strings)

    if not stop_strings or not stopped(len(ids)):
        return ids
    low, high = 0, len(ids)  # not stopped at low, stopped at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if stopped(middle) else (middle, high)
    return ids[:high]
