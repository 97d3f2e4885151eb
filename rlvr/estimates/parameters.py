"""Count the parameters of a model and its adapter, from the model's configuration.

The model is built on PyTorch's `meta` device, with shapes but without numbers, in a fifth of a second for 7 billion
parameters. So no formula guesses, and unknown architectures are counted correctly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import value_of
from rlvr.errors import InputError

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer of the model: module name, inputs and outputs."""

    name: str
    inputs: int
    outputs: int

    @property
    def count(self) -> int:
        return self.inputs * self.outputs


@dataclass(frozen=True)
class Parameters:
    """A model's parameters by kind."""

    matrices: tuple[LinearLayer, ...]  # the linear layers that bitsandbytes quantises: all except the output embedding
    embeddings: int  # numbers of the input embedding, and of the output embedding unless both are tied
    rest: int  # biases, norms, and the experts of a mixture, which are not quantised
    sizes: Mapping[str, int]  # of each named parameter, for `lora_modules_to_save`

    @property
    def total(self) -> int:
        return sum(matrix.count for matrix in self.matrices) + self.embeddings + self.rest

    @property
    def computed(self) -> int:
        """The numbers that each token is multiplied with, without the output embedding: the N of 6 N D."""
        return sum(matrix.count for matrix in self.matrices) + self.rest


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter: its numbers, its target matrices, and their rank."""

    count: int
    targets: tuple[LinearLayer, ...]
    rank: int


@dataclass(frozen=True)
class Shape:
    """The dimensions that activations and the KV cache depend on, named as in the configuration."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head: int  # `head_dim`
    vocabulary: int  # rows of the output embedding
    gated: bool  # whether the feed-forward part multiplies two projections (all models since Llama), or has one
    dense: bool  # False for mixtures of experts, whose activations are counted as if there were one expert

    @property
    def query(self) -> int:
        """The width of all queries; not always the hidden size."""
        return self.heads * self.head

    @property
    def key(self) -> int:
        """The width of all keys, or of all values."""
        return self.kv_heads * self.head


def count(config: PretrainedConfig) -> Parameters:
    """Count the parameters of a model.

    Raises:
        InputError: of kind "unknown-architecture".
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise InputError(
            f"The memory can't be estimated: transformers can't build a causal language model of type "
            f"{config.model_type}: {error}",
            kind="unknown-architecture",
            key="model_name_or_path",
        ) from error
    head = model.get_output_embeddings()
    embeddings = {id(module.weight): module.weight.numel() for module in (model.get_input_embeddings(), head) if module}
    matrices, quantised = [], set()
    for name, module in model.named_modules():
        transposed = type(module).__name__ == "Conv1D"  # GPT-2's
        if module is not head and (transposed or isinstance(module, torch.nn.Linear)):
            inputs, outputs = module.weight.shape if transposed else reversed(module.weight.shape)
            matrices.append(LinearLayer(name, inputs, outputs))
            quantised.add(id(module.weight))
    rest = sum(
        parameter.numel()
        for parameter in model.parameters()
        if id(parameter) not in quantised and id(parameter) not in embeddings
    )
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters(remove_duplicate=False)}
    return Parameters(tuple(matrices), sum(embeddings.values()), rest, sizes)


def adapter(parameters: Parameters, config: PretrainedConfig, settings: Mapping[str, Any]) -> Adapter:
    """Count PEFT's parameters: rank x (inputs + outputs) for each target (LoRA, arXiv:2106.09685, section 4.1).

    Targets match as in PEFT: a list by the end of the module's name, a text as a regular expression for the whole name,
    `all-linear` for every matrix, nothing for PEFT's default for the architecture. DoRA adds one number an output.
    """
    rank = int(value_of(settings, "lora_r"))
    wanted = settings.get("lora_target_modules")
    if isinstance(wanted, list) and len(wanted) == 1:  # TRL's ModelConfig takes a list of one for a text
        wanted = wanted[0]
    targets = tuple(matrix for matrix in parameters.matrices if _is_target(matrix.name, wanted, config))
    numbers = sum(rank * (matrix.inputs + matrix.outputs) for matrix in targets)
    if settings.get("use_dora"):
        numbers += sum(matrix.outputs for matrix in targets)
    for name, size in parameters.sizes.items():
        if any(_is_inside(name, kept) for kept in settings.get("lora_modules_to_save") or []):
            numbers += size
    return Adapter(numbers, targets, rank)


def shape(config: PretrainedConfig, parameters: Parameters) -> Shape:
    """Read the dimensions of a decoder from its configuration."""
    text = config.get_text_config()
    hidden, heads = text.hidden_size, text.num_attention_heads
    ends = {matrix.name.rpartition(".")[2] for matrix in parameters.matrices}
    experts = any(getattr(text, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))
    return Shape(
        hidden=hidden,
        intermediate=getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * hidden,
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head=getattr(text, "head_dim", None) or hidden // heads,
        vocabulary=text.vocab_size,
        gated=bool(ends & {"gate_proj", "gate_up_proj", "w1"}) or experts,
        dense=not experts,
    )


def _is_target(name: str, wanted: str | Sequence[str] | None, config: PretrainedConfig) -> bool:
    if wanted is None:
        from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

        wanted = list(TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(config.model_type, ()))
    if isinstance(wanted, str):
        return wanted.lower() == "all-linear" or re.fullmatch(wanted, name) is not None
    return any(name == end or name.endswith(f".{end}") for end in wanted)


def _is_inside(parameter: str, kept: str) -> bool:
    """Whether a parameter belongs to a module whose name ends with `kept`, as in PEFT's `modules_to_save`."""
    parts = parameter.split(".")[:-1]
    return any(".".join(parts[:end]).endswith(kept) for end in range(1, len(parts) + 1))


def bytes_in_4_bits(parameters: Parameters, *, nested: bool) -> tuple[int, int]:
    """Bytes of the matrices in 4 bits, and of their scales: QLoRA, arXiv:2305.14314, section 3.

    A block of 64 numbers shares a float32 maximum: 0.5 bits a number. Double quantisation stores these maxima in 8
    bits, with a float32 maximum for each 256 and an offset: 0.127 bits. Each matrix has code books of 16 and 256
    float32 numbers (bitsandbytes/functional.py, `QuantState`).

    Returns:
        The 4-bit numbers, which can be sharded, and the maxima and code books, which can't.
    """
    packed = scales = 0
    for matrix in parameters.matrices:
        packed += math.ceil(matrix.count / 2)
        blocks = math.ceil(matrix.count / 64)
        scales += 16 * 4
        scales += blocks + math.ceil(blocks / 256) * 4 + 256 * 4 + 4 if nested else blocks * 4
    return packed, scales
