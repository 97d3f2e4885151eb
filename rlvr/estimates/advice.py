"""Propose recipe changes that make a run fit, each estimated by the same functions as the run.

The order is that of their cost: first changes that only slow the training down, then changes of the training itself. A
change is proposed only if it saves memory. The next one is estimated on top of the earlier ones, until the run fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlvr.estimates.run_setup import RunSetup

# Minimum bytes that a proposed change saves.
MIN_SAVING = 0.25 * 2**30


@dataclass(frozen=True)
class RecipeChange:
    """A change: in words, the keys it sets, the launcher it uses, and the bytes it saves."""

    words: str
    keys: Mapping[str, Any]
    launcher: str
    saves: float = 0.0


def advise(
    setup: RunSetup, room: float, peak: Callable[[Mapping[str, Any], str], float]
) -> tuple[tuple[RecipeChange, ...], float]:
    """Find changes that make a run fit, or come as close as possible.

    Args:
        setup: the run without changes.
        room: bytes of the GPU.
        peak: estimates the peak bytes with changed keys and a launcher.

    Returns:
        The changes, each with its saving on top of the earlier ones, and the peak bytes with all of them.
    """
    keys: dict[str, Any] = {}
    launcher, needed = setup.launcher, peak({}, setup.launcher)
    accepted: dict[object, RecipeChange] = {}
    while needed > room:
        now = {**setup.settings, **keys}
        for change in _candidates(now, launcher, setup):
            after = peak({**keys, **change.keys}, change.launcher)
            if needed - after >= MIN_SAVING:
                keys |= change.keys
                launcher = change.launcher
                # A further change of the same keys takes the place of the earlier one.
                name = tuple(change.keys) or change.words
                earlier = accepted.get(name)
                accepted[name] = replace(change, saves=needed - after + (earlier.saves if earlier else 0))
                needed = after
                break
        else:
            break
    return tuple(accepted.values()), needed


def _candidates(now: Mapping[str, Any], launcher: str, setup: RunSetup) -> Iterator[RecipeChange]:
    def setting(**keys: Any) -> RecipeChange:
        return RecipeChange(", ".join(f"{key}: {str(value).lower()}" for key, value in keys.items()), keys, launcher)

    def launch(kind: str) -> RecipeChange:
        return RecipeChange(f"launch with accelerate_configs/{kind}.yaml", {}, kind)

    rows = int(now.get("per_device_train_batch_size", 8))
    accumulation = int(now.get("gradient_accumulation_steps", 1))
    steps = now.get("steps_per_generation")
    peft, vllm = bool(now.get("use_peft")), bool(now.get("use_vllm"))
    quantised = bool(now.get("load_in_4bit"))

    # Changes that only slow the training down.
    if not now.get("activation_checkpointing", True):
        yield setting(activation_checkpointing=True)
    if now.get("attn_implementation") == "eager":
        yield setting(attn_implementation="sdpa")
    if vllm and now.get("vllm_mode", "colocate") == "colocate":
        share = round((now.get("vllm_gpu_memory_utilization") or 0.3) - 0.05, 2)
        if not peft and not now.get("vllm_enable_sleep_mode"):
            yield setting(vllm_enable_sleep_mode=True)  # refused with an adapter
        if share > 0:
            yield setting(vllm_gpu_memory_utilization=share)
    if rows % 2 == 0:
        # The number of completions per generation and update stays.
        halves = {"per_device_train_batch_size": rows // 2, "gradient_accumulation_steps": accumulation * 2}
        yield setting(**halves, **({"steps_per_generation": steps * 2} if steps else {}))
    if setup.processes > 1 and launcher in ("ddp", "zero1", "zero2"):
        yield launch("zero2" if launcher != "zero2" and not peft else "zero3")
    if launcher in ("zero2", "zero3") and setup.processes > 1 and not peft:
        yield launch("zero2_offload")
    if not now.get("optim") and not peft and not launcher.startswith("zero"):
        yield setting(optim="adamw_bnb_8bit")
    if vllm:
        yield RecipeChange("rollouts: transformers", {"rollouts": "transformers", "use_vllm": False}, launcher)
    # Changes of the training itself.
    if peft and not quantised and not vllm:
        yield setting(load_in_4bit=True, use_bnb_nested_quant=True)
    if now.get("beta") and not peft:
        yield setting(beta=0.0)
    if not peft:
        adapter = setting(use_peft=True, lora_target_modules="all-linear", dtype="bfloat16")
        yield replace(adapter, launcher=launcher.removesuffix("_offload"))
    longest = int(now.get("max_completion_length") or 512)
    if longest >= 128:
        yield setting(max_completion_length=longest // 2)
