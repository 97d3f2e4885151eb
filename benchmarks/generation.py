#!/usr/bin/env python
"""Rollouts for QLoRA: plain generation beside continuous batching, in time and in memory.

    python benchmarks/generation.py                          # about eight minutes of CPU time
    python benchmarks/generation.py --quick                  # whether it runs, not how fast
    python benchmarks/generation.py --model Qwen/Qwen2.5-1.5B-Instruct --completions 256 --longest 1024     # on a GPU

The default model is a Qwen2 of random weights in 4 bits. Its next token is hardly more likely than any other, so a set
of end-of-sequence tokens makes completions as long as wanted: with none of them all have the same length, with a few of
them lengths are spread as widely as they get (geometrically). A model that is named gets the same treatment.

Each line is a process of its own, so that its memory is its own: of the process on a CPU, of PyTorch on a GPU. CPU time
says more than wall time where other programs compute as well; on a GPU look at wall time. On a CPU each has one thread,
unless OMP_NUM_THREADS says otherwise: several threads of so small a model wait for one another, and that counts as CPU
time. The ways are plain `generate`; continuous batching as TRL 1.16 calls it; and as
rlvr/modeling/continuous_batching.py does.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
if str(PROJECT) not in sys.path:
    sys.path.insert(0, str(PROJECT))

from rlvr import console  # noqa: E402

WAYS = ("nothing", "plain", "continuous, TRL", "continuous, ours")
VOCABULARY = 2000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a hub id; default: a small one of random weights")
    parser.add_argument("--completions", type=int, default=64, metavar="N", help="default 64")
    parser.add_argument("--prompt", type=int, default=64, metavar="TOKENS", help="default 64")
    parser.add_argument("--longest", type=int, default=256, metavar="TOKENS", help="default 256")
    parser.add_argument("--quick", action="store_true", help="8 completions of 16 tokens at most")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "LENGTHS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    console.silence_libraries()
    console.silence_loading_bars()
    if options.quick:
        options.completions, options.longest = 8, 16
    if options.one:
        print(json.dumps(measure(options, *options.one)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or make_model(Path(folder))
        shared = [f"--model={model}", f"--completions={options.completions}", f"--prompt={options.prompt}"]
        shared.append(f"--longest={options.longest}")
        rows, floor = [], 0.0
        for lengths in ("equal", "spread"):
            for way in WAYS if lengths == "equal" else WAYS[1:]:
                words = [sys.executable, __file__, *shared, "--one", way, lengths]
                done = subprocess.run(words, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(done.stderr, file=sys.stderr)
                    return 1
                found = json.loads(done.stdout.splitlines()[-1])
                if way == "nothing":
                    floor = found["memory_mb"]
                    continue
                rows.append(
                    [
                        f"{lengths}: {way}",
                        f"{found['tokens'] / options.completions:.0f}",
                        f"{found['wall_s']:.1f} s",
                        f"{found['cpu_s']:.1f} s",
                        f"{1000 * found['cpu_s'] / found['tokens']:.1f} ms",
                        f"{found['memory_mb'] - floor:,.0f} MB",
                    ]
                )
                print(f"  {rows[-1]}", file=sys.stderr)
    title = f"{options.completions} completions of at most {options.longest} tokens, prompts of {options.prompt}"
    print(f"{title}; memory on top of the model's {floor:,.0f} MB\n")
    header = ["lengths: way", "mean tokens", "wall time", "CPU time", "CPU time a token", "peak memory"]
    print(console.table(header, rows))
    return 0


def make_model(folder: Path) -> Path:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def measure(options: argparse.Namespace, way: str, lengths: str) -> dict[str, Any]:
    """Seconds and tokens of the second of two batches, and the peak of memory in MB; the first one warms up."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GenerationConfig

    from rlvr.modeling import continuous_batching, generation
    from rlvr.modeling.loading import keep_4bit_trainable_on_cpu

    on_gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if on_gpu else torch.float32
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, quantization_config=quantization, dtype=dtype, device_map={"": "cuda" if on_gpu else "cpu"}
    ).eval()
    keep_4bit_trainable_on_cpu(model)
    vocabulary = model.config.get_text_config().vocab_size
    # As many end-of-sequence tokens as make the mean length a quarter of the longest; only for weights like noise.
    ends = max(1, 4 * vocabulary // options.longest)
    config = GenerationConfig(
        max_new_tokens=options.longest,
        do_sample=True,
        temperature=10.0,  # flat, so that every token is about as likely
        top_k=0,
        top_p=1.0,
        eos_token_id=[-1] if lengths == "equal" else list(range(1, 1 + ends)),
        pad_token_id=0,
    )
    torch.manual_seed(0)
    prompts = torch.randint(1 + ends, vocabulary, (options.completions, options.prompt)).tolist()
    tokenizer = _PadOnly()
    seconds, tokens = [], 0
    gc.collect()
    _forget_peak(on_gpu)
    for number in range(0 if way == "nothing" else 2):
        torch.manual_seed(number)
        begun = (time.perf_counter(), time.process_time())
        if way == "plain":
            found = generation.generate(model, tokenizer, prompts, config)
        elif way == "continuous, ours":
            found = continuous_batching.generate(model, tokenizer, prompts, config)
        else:
            found = _as_trl(model, prompts, config)
        seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
        tokens = sum(map(len, found))
    wall, cpu = seconds[-1] if seconds else (0.0, 0.0)
    return {"wall_s": wall, "cpu_s": cpu, "tokens": tokens, "memory_mb": _peak(on_gpu)}


def _as_trl(model: Any, prompts: list[list[int]], config: Any) -> list[list[int]]:
    from transformers.generation import ContinuousBatchingConfig

    batching = ContinuousBatchingConfig(max_memory_percent=0.5)  # TRL's default
    outputs = model.generate_batch(prompts, generation_config=config, continuous_batching_config=batching)
    return [output.generated_tokens for output in outputs.values()]


def _forget_peak(on_gpu: bool) -> None:
    """Loading takes more than the model; from here on the peak is that of generation."""
    import torch

    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")


def _peak(on_gpu: bool) -> float:
    import torch

    if on_gpu:
        return torch.cuda.max_memory_allocated() / 2**20
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


class _PadOnly:
    """All that generation asks of a tokenizer when there are no stop strings."""

    pad_token_id = 0


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by the processes that are started
    sys.exit(main())
