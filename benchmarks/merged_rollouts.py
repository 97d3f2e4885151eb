"""Generate in pairs: from the adapter and from a merged copy. And how far each type of copy is from the policy.

    python -m benchmarks.merged_rollouts --model FOLDER                          # LoRA, float32
    python -m benchmarks.merged_rollouts --model FOLDER --load_in_4bit           # QLoRA, computed in float32
    python -m benchmarks.merged_rollouts --model FOLDER --dtype bfloat16 --precision

Both sample the same number of tokens for the same random prompts, in turns. The time of a merged generation contains
the merging, and the recording of log probabilities. It is CPU time, so other load matters little.
`--precision` compares the log probabilities of sampled tokens with those that training computes, for a new adapter and
for one whose products have the size of some updates at a learning rate of 2e-4.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, GenerationConfig

from rlvr.modeling.generation import generate
from rlvr.modeling.loading import keep_4bit_trainable_on_cpu
from rlvr.training.merged_rollouts import MergedRollouts

PROMPT = 40  # tokens
RATE = 2e-4


def load(name: str, dtype: torch.dtype, *, in_4bit: bool) -> Any:
    """The model with a new adapter of rank 16 in float32, as training has it."""
    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )
    options = {"quantization_config": quantization} if in_4bit else {}
    base = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, device_map="cpu", **options)
    model = get_peft_model(base, LoraConfig(r=16, lora_alpha=16, target_modules="all-linear"))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    keep_4bit_trainable_on_cpu(model)
    return model.eval()


def sampler_of(model: Any, tokenizer: Any, config: GenerationConfig) -> MergedRollouts:
    """`MergedRollouts` with what it uses of a trainer."""
    trainer: Any = SimpleNamespace(
        accelerator=Accelerator(cpu=True),
        model=model,
        temperature=1.0,
        text_tokenizer=tokenizer,
        generation_config=config,
        stop_strings=(),
        state=SimpleNamespace(global_step=0),
        any_process=bool,
    )
    return MergedRollouts(trainer, only_precise=True)


def speeds(run: dict[str, Any], tokens: int, pairs: int) -> dict[str, list[float]]:
    """Tokens per second of CPU time of each way, in turns; the first turn warms up."""
    found: dict[str, list[float]] = {name: [] for name in run}
    for turn in range(pairs + 1):
        for name in list(run) if turn % 2 else list(reversed(run)):
            started = time.process_time()
            run[name]()
            if turn:
                found[name].append(tokens / (time.process_time() - started))
                print(f"  pair {turn}: {name} {found[name][-1]:.1f} tokens/s", flush=True)
    return found


def training_log_probabilities(model: Any, prompts: Any, completions: Any, dtype: torch.dtype) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *own] for prompt, own in zip(prompts, completions, strict=True)])
    mixed = torch.autocast("cpu", dtype, enabled=dtype != torch.float32)
    with torch.no_grad(), mixed:
        logits = model(input_ids=ids).logits[:, PROMPT - 1 : -1].float()
    return logits.log_softmax(-1).gather(2, ids[:, PROMPT:, None]).squeeze(2)


def compare(merged: MergedRollouts, model: Any, prompts: Any, dtype: torch.dtype) -> None:
    """Print the difference of a logit (rlvr/training/rollout_check.py), by updates and type of the copy."""
    for updates in (0, 1, 4, 10):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:  # Adam moves each number by about the rate
                    order = torch.Generator().manual_seed(len(name))
                    sign = torch.randint(0, 2, parameter.shape, generator=order) * 2.0 - 1
                    parameter.copy_(updates * RATE * sign)
        for kind in ("float32", "float16"):
            torch.manual_seed(1)
            merged.chosen = kind
            completed = merged.complete(prompts, len(prompts))
            merged.end_generation()
            assert completed is not None
            completions, recorded = completed
            sampled = torch.tensor(recorded)
            own = training_log_probabilities(model, prompts, completions, dtype)
            logit = (own - sampled).abs().sum() / (1 - sampled.exp()).sum()
            print(f"  {updates:>2} updates, copy in {kind:<8}  {logit:.2g} of a logit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--load_in_4bit", action="store_true")
    parser.add_argument("--completions", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--precision", action="store_true", help="compare log probabilities instead of times")
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    model = load(args.model, dtype, in_4bit=args.load_in_4bit)
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    torch.manual_seed(0)
    prompts = torch.randint(100, len(tokenizer) - 100, (args.completions, PROMPT)).tolist()
    config = GenerationConfig(
        max_new_tokens=args.tokens,
        min_new_tokens=args.tokens,
        do_sample=True,
        top_k=0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    merged = sampler_of(model, tokenizer, config)
    print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    if args.precision:
        return compare(merged, model, prompts, dtype)
    merged.chosen = merged.types[0]

    def from_copy() -> None:
        merged.complete(prompts, len(prompts))
        merged.end_generation()

    run = {"adapter": lambda: generate(model, tokenizer, prompts, config), f"merged, {merged.chosen}": from_copy}
    found = speeds(run, args.completions * args.tokens, args.pairs)
    for name, values in found.items():
        ratios = sorted(value / base for value, base in zip(values, found["adapter"], strict=True))
        print(
            f"  {name:<15} {median(values):7.1f} tokens/s, {median(ratios):.2f} of the adapter's "
            f"(pairs {ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
