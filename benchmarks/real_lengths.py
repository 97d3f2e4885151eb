"""The model and the lengths of benchmarks/training_step.py --update: SmolLM2-135M's shape, real prompts and answers."""

from __future__ import annotations

import json
import random
from pathlib import Path

# Tokens of 3,862 answers of Qwen2.5-Coder-0.5B-Instruct to GSM8K, with a limit of 400: quantiles 1/128, 3/128, …
COMPLETIONS = (
    105, 129, 143, 155, 161, 167, 173, 178, 182, 187, 190, 194, 198, 201, 205, 208, 211, 215, 218, 221, 225,
    228, 232, 236, 239, 242, 245, 248, 251, 254, 258, 262, 265, 269, 272, 276, 279, 283, 286, 290, 293, 297,
    302, 307, 312, 318, 324, 329, 335, 341, 349, 356, 364, 373, 384, 396, 400, 400, 400, 400, 400, 400, 400,
    400,
)  # fmt: skip
# Tokens of GSM8K's training prompts in a chat template: quantiles 1/64, 3/64, …
PROMPTS = (
    82, 87, 89, 91, 93, 95, 96, 98, 99, 101, 102, 103, 105, 106, 108, 109, 111, 113, 114, 116, 118, 120, 122,
    124, 126, 129, 133, 137, 142, 149, 156, 176,
)  # fmt: skip
TEMPLATE_TOKENS = 17  # of the bundled model's chat template


def write_model(folder: Path, tokenizer: Path, layers: int) -> None:
    """Write a model of SmolLM2-135M's shape with random weights, and another model's tokenizer."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    words = AutoTokenizer.from_pretrained(tokenizer)
    words.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def write_rows(file: Path, rows: int) -> None:
    """Write rows of a task; the tokenizer has one token for each digit."""
    order = random.Random(0)
    with file.open("w", encoding="utf-8") as rows_file:
        for _ in range(rows):
            digits = "".join(order.choices("0123456789", k=order.choice(PROMPTS) - TEMPLATE_TOKENS))
            row = {"prompt": [{"role": "user", "content": digits}], "final_answer": digits[-3:]}
            rows_file.write(f"{json.dumps(row)}\n")
