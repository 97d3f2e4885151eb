"""Estimate the activations of a training step and of a generation.

The terms come from a list of the tensors that autograd saves for a Qwen2 block (`saved_tensors_hooks`). They hold for
any block with RMS norms, rotary positions, grouped queries and a gated feed-forward part. "Reducing Activation
Recomputation in Large Transformer Models" (arXiv:2205.05198, equations 1, 2 and 4) does the same for GPT's block in 16
bits. Here some numbers have 16 bits and others 32, so there is no single factor. tests/rlvr/estimates compares each
case with the bytes that autograd saves.
"""

from __future__ import annotations

from rlvr.estimates.parameters import Adapter, Shape
from rlvr.estimates.run_setup import RunSetup

# TRL's tile of logits: 4,096 tokens by 32,768 words (trl/kernels/chunked_logprob.py and trl/trainer/utils.py). It never
# computes all logits at once.
TILE_TOKENS, TILE_WORDS = 4096, 32768

# Modules whose input autograd saves anyway, as the output of attention.
_AFTER_ATTENTION = {"o_proj", "out_proj", "dense", "wo"}


def block_bytes_per_token(shape: Shape, setup: RunSetup, adapter: Adapter | None) -> float:
    """Bytes a token that autograd saves for one block, without activation checkpointing."""
    compute, stream = setup.compute, setup.weight
    kept: float = 2 * shape.hidden * 4  # each norm saves its input in float32
    kept += (3 if shape.gated else 1) * shape.intermediate * compute  # gate, its activation, up
    kept += _attention(shape, setup, adapter)
    if adapter is None:
        kept += 2 * shape.hidden * stream  # for the gradients of the norms' own weights
        kept += shape.intermediate * compute  # input of the last projection
        if setup.autocast and stream > compute:
            # Each projection casts its own copy of the input: q, k, v, up and gate.
            kept += (5 if shape.gated else 4) * shape.hidden * compute
        else:
            kept += 2 * shape.hidden * stream
        return kept
    # Frozen projections save nothing; a LoRA saves its input and its intermediate result.
    kept += len(adapter.targets) / shape.layers * adapter.rank * compute
    return kept + _lora_inputs(setup, adapter) / shape.layers


def _attention(shape: Shape, setup: RunSetup, adapter: Adapter | None) -> float:
    length, compute = setup.prompt_tokens + setup.completion_tokens, setup.compute
    if setup.attention.startswith("flash"):
        return (2 * shape.query + 2 * shape.key) * compute + 4 * shape.heads
    # Keys and values are repeated for each query head: with padding and a mask, PyTorch can't group them.
    kept = 4.0 * shape.query * compute
    if setup.attention == "eager":
        if adapter is not None and setup.autocast:
            kept -= shape.query * compute  # only the next LoRA saves the output, as its own cast
        # A float32 softmax for each pair of tokens, and its cast for the multiplication.
        return kept + shape.heads * length * (4 + (compute if compute < 4 else 0))
    return kept + length * compute + 4 * shape.heads  # the additive mask, and a logarithm for each row


def _lora_inputs(setup: RunSetup, adapter: Adapter) -> int:
    """Bytes a token of the saved inputs of all LoRAs."""
    if setup.autocast:
        # The adapter is float32: PEFT casts its input up, and torch casts it down again, a copy for each LoRA.
        return sum(matrix.inputs for matrix in adapter.targets) * setup.compute
    inputs = {}
    for matrix in adapter.targets:
        parent, _, name = matrix.name.rpartition(".")
        if name not in _AFTER_ATTENTION:
            inputs[parent, matrix.inputs] = matrix.inputs  # q, k and v have one input, as have up and gate
    return sum(inputs.values()) * setup.compute


def kept(shape: Shape, setup: RunSetup, adapter: Adapter | None) -> float:
    """Bytes that all blocks save until the backward pass.

    With checkpointing a block saves only its input, and one block at a time is recomputed (arXiv:1604.06174).
    """
    one = block_bytes_per_token(shape, setup, adapter) * setup.tokens
    if not setup.checkpointing:
        return shape.layers * one
    return shape.layers * shape.hidden * setup.weight * setup.tokens + one


def passing(shape: Shape, setup: RunSetup) -> float:
    """Temporary bytes of the backward pass of one block.

    The gradients of the feed-forward part's three wide tensors, and three float32 copies of the hidden states. Fitted
    to the peaks of real steps on a CPU; docs/benchmarks.md has measurements on a GPU.
    """
    return setup.tokens * (3 * shape.intermediate * setup.compute + 12 * shape.hidden)


def scoring(shape: Shape, setup: RunSetup, *, head_trains: bool) -> float:
    """Bytes of the log-probabilities: a tile of logits, and float32 gradients.

    From `ChunkedLogProbFunction` (trl/kernels/chunked_logprob.py): hidden states of the completions, and their gradient
    in float32 and in their own type; the same for the output embedding if it is trained.
    """
    tokens = setup.rows * setup.completion_tokens
    tile = min(tokens, TILE_TOKENS) * TILE_WORDS * setup.compute
    states = tokens * shape.hidden * (4 + 2 * setup.weight)
    head = shape.vocabulary * shape.hidden * (4 + setup.weight) if head_trains else 0
    return tile + states + head


def prefill(shape: Shape, setup: RunSetup, adapter_bytes: int) -> float:
    """Bytes of the prefill of the prompts of a round, without gradients: wide feed-forward tensors and hidden states.

    A LoRA adds its wide output and the sum. A float32 LoRA outside autocast makes both float32.

    Args:
        adapter_bytes: of a number of the adapter; 0 without one.
    """
    compute = setup.weight if setup.peft else setup.compute  # autocast wraps the model's forward, not the base's
    wide: float = 3 * compute
    if adapter_bytes:
        wide = 2 * compute + 3 * adapter_bytes if adapter_bytes > compute else 4 * compute
    narrow = 12 if adapter_bytes else 4 * compute
    return setup.at_once * setup.prompt_tokens * (wide * shape.intermediate + narrow * shape.hidden)


def decoding(shape: Shape, setup: RunSetup) -> float:
    """Bytes of decoding one token of all completions of a round, without the cache.

    Logits, their float32 copy and the probabilities (transformers/generation/utils.py, `_sample`); a block's keys and
    values while a token is appended, and repeated for each query head.
    """
    length = setup.prompt_tokens + setup.completion_tokens
    grown = 2 * length * shape.key * setup.weight
    repeated = 0 if setup.attention.startswith("flash") else 2 * length * shape.query * setup.weight
    return sampled(shape, setup) + setup.at_once * (grown + repeated)


def sampled(shape: Shape, setup: RunSetup) -> float:
    """Bytes of the logits of one token of all completions of a round, with their float32 copies."""
    return setup.at_once * shape.vocabulary * (setup.weight + 3 * 4)


def cache(shape: Shape, setup: RunSetup, completions: int | None = None, tokens: float | None = None) -> float:
    """Bytes of the KV cache: a key and a value for each token, block and key head.

    Args:
        completions: by default those of a round.
        tokens: of a prompt and its completion; by default the maximum.
    """
    tokens = tokens or setup.prompt_tokens + setup.completion_tokens
    return 2 * shape.layers * shape.key * tokens * (completions or setup.at_once) * setup.weight
