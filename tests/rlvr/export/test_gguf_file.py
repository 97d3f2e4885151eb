"""GGUF files answer through llama.cpp as the model folders do through transformers, token by token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rlvr.evaluation.engines import Decoding
from rlvr.export.gguf_file import PRE_TOKENIZERS, check_model, write_gguf
from rlvr.export.llama_cpp import LlamaCppEngine
from rlvr.export.quantization import quantize, read_quantizations
from tests.support.input_errors import input_error

TEXTS = [
    "Tom has 61 books, and Ana's 1234567.",
    "def f(x):\n    return x  # two  spaces\n\n\n",
    " naïve café — 東京 😀\t\r\n",
    "<|user|>don't DON'T<|end|>",
]
SPECIAL = ["<unk>", "<s>", "<|user|>", "<|end|>"]
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 3,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def byte_level(name: str, *, bos: bool = False) -> Tokenizer:
    """A byte-level tokenizer with the pre-tokenizer of that name."""
    pattern = next(steps[0] for steps, known in PRE_TOKENIZERS.items() if known == name)
    tokenizer = Tokenizer(models.BPE())
    steps: dict[str, list[Any]] = {
        "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
        "smollm": [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    }
    split = [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    chosen = steps.get(name, split)
    tokenizer.pre_tokenizer = chosen[0] if len(chosen) == 1 else pre_tokenizers.Sequence(chosen)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS * 3, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)])
    return tokenizer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "config", "tokenizer", "why"),
    [
        (Qwen2ForCausalLM, Qwen2Config(**SMALL), lambda: byte_level("qwen2"), "biases of q, k and v"),
        (Qwen2ForCausalLM, Qwen2Config(**SMALL, tie_word_embeddings=True), lambda: byte_level("gpt-2"), "tied"),
        (Qwen3ForCausalLM, Qwen3Config(**SMALL, head_dim=32), lambda: byte_level("smollm"), "wide heads with norms"),
        (
            LlamaForCausalLM,
            LlamaConfig(**SMALL, rope_parameters=LLAMA3_ROPE),
            lambda: byte_level("llama-bpe", bos=True),
            "rows of q and k in another order, changed rotation, a first token",
        ),
    ],
)
def test_tokens_and_answers_are_those_of_transformers(
    tmp_path: Path, model: Any, config: Any, tokenizer: Callable[[], Tokenizer], why: str
) -> None:
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), unk_token="<unk>", bos_token="<s>", eos_token="<|end|>", pad_token="<unk>"
    )
    config.vocab_size = len(fast) + 8  # padded, as those of Qwen
    torch.manual_seed(0)
    network = model(config).eval()
    for name, parameter in network.named_parameters():
        if name.endswith("bias") or "norm" in name:  # they begin as 0 and 1
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    network.save_pretrained(tmp_path)
    fast.save_pretrained(tmp_path)
    check_model(tmp_path)
    write_gguf(tmp_path, tmp_path / "model.gguf", "float32")
    prompts = [fast.encode(text) for text in TEXTS]
    engine = LlamaCppEngine(tmp_path / "model.gguf", fast, context=128, threads=1)
    try:
        assert [engine.encode_text(text) for text in TEXTS] == prompts, why
        answers = engine.complete(prompts, Decoding(4), seed=0)
    finally:
        engine.close()
    # Random models are often near a tie, and llama.cpp caches keys and values in 16 bits: later tokens may differ.
    settings = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=3, pad_token_id=0)
    for prompt, answer in zip(prompts, answers, strict=True):
        output = network.generate(torch.tensor([prompt]), generation_config=settings)
        assert list(answer.ids) == output[0, len(prompt) :].tolist(), why


CONFIG = {"model_type": "qwen2", "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}


@pytest.mark.parametrize(
    ("config", "kind", "why"),
    [
        ({"model_type": "gpt_neox"}, "unknown-architecture", "other tensors"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}}, "unknown-architecture", "other positions"),
        ({"use_sliding_window": True}, "unknown-architecture", "llama.cpp would attend to all tokens"),
        ({}, "unknown-tokenizer", "a pre-tokenizer without a name in llama.cpp"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, config: dict[str, Any], kind: str, why: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | config))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with input_error(kind, why=why):
        check_model(tmp_path)


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("q8_0,q9", "invalid-flag", "no such type"),
        ("q4_k_m", "program-not-found", "llama-quantize is not installed"),
    ],
)
def test_a_quantisation_that_cannot_be_made_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, kind: str, why: str
) -> None:
    monkeypatch.setenv("PATH", "")
    with input_error(kind, why=why):
        read_quantizations(text)


def test_a_quantiser_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llama-quantize"
    program.write_text("#!/bin/sh\necho unsupported\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with input_error("llama-cpp-failed"):
        quantize(tmp_path / "a.gguf", tmp_path / "b.gguf", read_quantizations("q4_k_m")[0])


@pytest.mark.slow
def test_a_file_that_is_no_model_is_an_error_of_llama_cpp(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + bytes(64))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    with input_error("llama-cpp-failed"):
        LlamaCppEngine(tmp_path / "x.gguf", tokenizer, context=64, threads=1)
