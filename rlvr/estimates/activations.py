"""What a training step keeps of its forward pass, and what it needs beside that for a moment: bytes a token.

The terms were found by listing the tensors that autograd saves for a Qwen2 block (`saved_tensors_hooks`), and they are
those of any block of this kind: RMS norms, rotary positions, grouped queries, a gated feed-forward part. "Reducing
Activation Recomputation in Large Transformer Models" (arXiv:2205.05198, equations 1, 2 and 4) does the same for GPT's
block with 16-bit numbers throughout; here numbers can be of 16 or 32 bits in one place or another, which is why there
is no single factor. tests/rlvr/estimates holds each kind against the bytes that were really saved.
"""

from __future__ import annotations

from rlvr.estimates.parameters import Adapter, Shape
from rlvr.estimates.setup import Setup

# What TRL projects onto the vocabulary at once: 4,096 tokens by 32,768 words (trl/kernels/chunked_logprob.py and
# trl/trainer/utils.py). The whole logits never exist.
TILE_TOKENS, TILE_WORDS = 4096, 32768

# Modules whose input autograd keeps anyway, as the output of attention.
_AFTER_ATTENTION = {"o_proj", "out_proj", "dense", "wo"}


def block(shape: Shape, setup: Setup, adapter: Adapter | None) -> float:
    """Bytes a token that one block keeps without activation checkpointing."""
    compute, stream = setup.compute, setup.weight
    kept: float = 2 * shape.hidden * 4  # each norm keeps its input in float32, whatever it was
    kept += (3 if shape.gated else 1) * shape.intermediate * compute  # gate, its activation, up
    kept += _attention(shape, setup, adapter)
    if adapter is None:
        kept += 2 * shape.hidden * stream  # for the gradients of the norms' own weights
        kept += shape.intermediate * compute  # what the last projection is applied to
        if setup.autocast and stream > compute:
            # Each projection casts its input for itself: q, k, v, and up and gate.
            kept += (5 if shape.gated else 4) * shape.hidden * compute
        else:
            kept += 2 * shape.hidden * stream
        return kept
    # Frozen projections keep nothing; a LoRA keeps its input and what it made of it.
    kept += len(adapter.targets) / shape.layers * adapter.rank * compute
    return kept + _lora_inputs(setup, adapter) / shape.layers


def _attention(shape: Shape, setup: Setup, adapter: Adapter | None) -> float:
    length, compute = setup.prompt_tokens + setup.completion_tokens, setup.compute
    if setup.attention.startswith("flash"):
        return (2 * shape.query + 2 * shape.key) * compute + 4 * shape.heads
    # Keys and values are repeated for each query head: prompts are padded, and with a mask PyTorch can't group them.
    kept = 4.0 * shape.query * compute
    if setup.attention == "eager":
        if adapter is not None and setup.autocast:
            kept -= shape.query * compute  # the output is kept by nobody but the LoRA after it, as its own cast
        # A softmax in float32 for each pair of tokens, and what it is multiplied as.
        return kept + shape.heads * length * (4 + (compute if compute < 4 else 0))
    return kept + length * compute + 4 * shape.heads  # the mask as numbers to add, and a logarithm for each row


def _lora_inputs(setup: Setup, adapter: Adapter) -> int:
    """Bytes a token of the inputs of all LoRAs of a model."""
    if setup.autocast:
        # The adapter is float32: PEFT casts its input up and torch casts it down again, a copy for each LoRA.
        return sum(matrix.inputs for matrix in adapter.targets) * setup.compute
    inputs = {}
    for matrix in adapter.targets:
        parent, _, name = matrix.name.rpartition(".")
        if name not in _AFTER_ATTENTION:
            inputs[parent, matrix.inputs] = matrix.inputs  # q, k and v have one input, as have up and gate
    return sum(inputs.values()) * setup.compute


def kept(shape: Shape, setup: Setup, adapter: Adapter | None) -> float:
    """Bytes that all blocks keep until the backward pass.

    With checkpointing a block keeps its input only, and one block at a time is computed again (arXiv:1604.06174).
    """
    one = block(shape, setup, adapter) * setup.tokens
    if not setup.checkpointing:
        return shape.layers * one
    return shape.layers * shape.hidden * setup.weight * setup.tokens + one


def passing(shape: Shape, setup: Setup) -> float:
    """Bytes that the backward pass of one block needs for a moment, beside what was kept.

    The gradients of the feed-forward part's three wide tensors, and three copies of the hidden states in float32. Read
    off the peaks of real steps on a CPU; docs/estimates.md says how near this and `kept` come to what was measured.
    """
    return setup.tokens * (3 * shape.intermediate * setup.compute + 12 * shape.hidden)


def scoring(shape: Shape, setup: Setup, *, head_trains: bool) -> float:
    """Bytes that the log-probabilities take: a tile of logits, and gradients in float32.

    From `ChunkedLogProbFunction` (trl/kernels/chunked_logprob.py): hidden states of the completions, their gradient in
    float32 and once more as they were; where the output embedding is trained, the same of its gradient.
    """
    tokens = setup.rows * setup.completion_tokens
    tile = min(tokens, TILE_TOKENS) * TILE_WORDS * setup.compute
    states = tokens * shape.hidden * (4 + 2 * setup.weight)
    head = shape.vocabulary * shape.hidden * (4 + setup.weight) if head_trains else 0
    return tile + states + head


def prefill(shape: Shape, setup: Setup, adapter_bytes: int) -> float:
    """Bytes that reading all prompts at once takes, no gradients: the feed-forward part's wide tensors and some states.

    A LoRA adds its own wide output and its sum; a float32 one outside of autocast makes both float32.

    Args:
        adapter_bytes: of a number of the adapter; 0 without one.
    """
    compute = setup.weight if setup.peft else setup.compute  # autocast wraps the model's forward, not the base's
    wide: float = 3 * compute
    if adapter_bytes:
        wide = 2 * compute + 3 * adapter_bytes if adapter_bytes > compute else 4 * compute
    narrow = 12 if adapter_bytes else 4 * compute
    return setup.generated * setup.prompt_tokens * (wide * shape.intermediate + narrow * shape.hidden)


def decoding(shape: Shape, setup: Setup) -> float:
    """Bytes that one token of all completions takes beside the cache.

    Logits as they are, in float32, and as probabilities (transformers/generation/utils.py, `_sample`), a block's keys
    and values while a token is added to them, and repeated for each query head.
    """
    length = setup.prompt_tokens + setup.completion_tokens
    logits = shape.vocabulary * (setup.weight + 3 * 4)
    grown = 2 * length * shape.key * setup.weight
    repeated = 0 if setup.attention.startswith("flash") else 2 * length * shape.query * setup.weight
    return setup.generated * (logits + grown + repeated)


def cache(shape: Shape, setup: Setup) -> int:
    """Bytes of the KV cache at its longest: a key and a value for each token, block and key head, as loaded."""
    length = setup.prompt_tokens + setup.completion_tokens
    return 2 * shape.layers * shape.key * length * setup.generated * setup.weight
