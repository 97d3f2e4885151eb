"""What training and evaluation share in their use of vLLM."""

from __future__ import annotations

import gc
from typing import Any

# The ranks that vLLM makes room for; an adapter takes the next larger one (vllm.config.lora.MaxLoRARanks).
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
MAX_RANK = _RANKS[-1]


def room_for_rank(rank: int) -> int:
    """The `max_lora_rank` with which vLLM takes an adapter of a rank, which is at most `MAX_RANK`."""
    return next(room for room in _RANKS if room >= rank)


def end_engine(engine: Any) -> None:
    """End the engine of a `vllm.LLM`, with its processes; its memory is free once the last reference is gone."""
    engine.llm_engine.engine_core.shutdown()
    gc.unfreeze()  # vLLM froze all objects when it started, and frozen ones are never collected
