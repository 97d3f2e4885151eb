"""Read weights whole that training holds sharded or in 4 bits, for another engine or a copy of the model."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor


def plain_name(name: str) -> str:
    """The name in the base model, without the wrappers of PEFT and of activation checkpointing under FSDP2."""
    for wrapper in ("base_model.model.", "_checkpoint_wrapped_module."):
        name = name.replace(wrapper, "")
    return name.replace(".base_layer", "")


def whole(parameter: Any) -> torch.Tensor:
    """All numbers of a parameter; collective under FSDP2. Under ZeRO-3 it must be gathered."""
    return (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach()


def quantisation(module: torch.nn.Module, weight: Any) -> Any:
    """The state of a module's 4-bit weight; None if it has none.

    A weight that FSDP2 has sharded gets it in the first forward pass of its module.
    """
    return getattr(weight, "quant_state", None) or getattr(module, "quant_state", None)


def dequantised(weight: Any, state: Any) -> torch.Tensor:
    """The numbers that a 4-bit weight stands for, in the type that training computes with; as `whole`."""
    from bitsandbytes import functional

    data = whole(weight) if isinstance(weight, DTensor) else weight.data
    numbers: torch.Tensor = functional.dequantize_4bit(data, state)
    return numbers
