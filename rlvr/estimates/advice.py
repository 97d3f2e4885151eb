"""What to change where a run doesn't fit, each change weighed by the same functions as the run itself.

The changes are tried in the order of what they cost: first those that train the same thing more slowly, then those that
train something else. A change is proposed only if it saves; the next one is weighed on top of those before it, until
the run fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlvr.estimates.setup import Setup

# A change that saves less than this is no advice.
LEAST = 0.25 * 2**30


@dataclass(frozen=True)
class Change:
    """One change: in words, the keys that it sets, the launcher that it takes instead, and the bytes that it saves."""

    words: str
    keys: Mapping[str, Any]
    launcher: str
    saves: float = 0.0


def advise(
    setup: Setup, room: float, peak: Callable[[Mapping[str, Any], str], float]
) -> tuple[tuple[Change, ...], float]:
    """The changes that make a run fit, or as much of it as can be had.

    Args:
        setup: the run as it is.
        room: bytes of the GPU.
        peak: bytes at the fullest moment, with these keys in the place of the recipe's and this launcher.

    Returns:
        The changes, each with what it saves on top of those before it, and the bytes that are left needed after all.
    """
    keys: dict[str, Any] = {}
    launcher, needed = setup.launcher, peak({}, setup.launcher)
    taken: list[Change] = []
    while needed > room:
        now = {**setup.settings, **keys}
        for change in _candidates(now, launcher, setup):
            after = peak({**keys, **change.keys}, change.launcher)
            if needed - after >= LEAST:
                keys |= change.keys
                launcher = change.launcher
                _add(taken, replace(change, saves=needed - after))
                needed = after
                break
        else:
            break
    return tuple(taken), needed


def _add(taken: list[Change], change: Change) -> None:
    """Adds a change; one that sets the same keys as an earlier one takes its place, with what both save."""
    for number, earlier in enumerate(taken):
        if change.keys and change.keys.keys() == earlier.keys.keys():
            taken[number] = replace(change, saves=earlier.saves + change.saves)
            return
    taken.append(change)


def _candidates(now: Mapping[str, Any], launcher: str, setup: Setup) -> Iterator[Change]:
    def change(words: str, keys: Mapping[str, Any], new_launcher: str = launcher) -> Change:
        return Change(words, keys, new_launcher)

    def setting(**keys: Any) -> Change:
        return change(", ".join(f"{key}: {str(value).lower()}" for key, value in keys.items()), keys)

    rows = int(now.get("per_device_train_batch_size", 8))
    accumulation = int(now.get("gradient_accumulation_steps", 1))
    group = int(now.get("num_generations") or 8)
    cycle = int(now.get("steps_per_generation") or accumulation)
    peft, vllm = bool(now.get("use_peft")), bool(now.get("use_vllm"))
    quantised = bool(now.get("load_in_4bit") or now.get("load_in_8bit"))

    # The same training, more slowly.
    if not now.get("activation_checkpointing", True):
        yield setting(activation_checkpointing=True)
    if now.get("attn_implementation") == "eager":
        yield setting(attn_implementation="sdpa")
    if vllm and now.get("vllm_mode", "colocate") == "colocate" and not now.get("vllm_enable_sleep_mode"):
        yield setting(vllm_enable_sleep_mode=True)
    if rows % 2 == 0 and not now.get("generation_batch_size"):
        # As many completions a generation and an update as before.
        halves = {"per_device_train_batch_size": rows // 2, "gradient_accumulation_steps": accumulation * 2}
        yield setting(**halves, **({"steps_per_generation": cycle * 2} if now.get("steps_per_generation") else {}))
    if setup.processes > 1 and launcher in ("ddp", "zero1", "zero2"):
        kind = "zero2" if launcher != "zero2" and not peft else "zero3"
        yield change(f"launch with accelerate_configs/{kind}.yaml", {}, kind)
    if launcher in ("zero2", "zero3") and setup.processes > 1 and not peft:
        yield change("launch with accelerate_configs/zero2_offload.yaml", {}, "zero2_offload")
    fewer = cycle // 2
    if cycle % 2 == 0 and not now.get("generation_batch_size") and rows * setup.processes * fewer % group == 0:
        yield setting(steps_per_generation=fewer)
    if not now.get("optim") and not peft and not launcher.startswith("zero"):
        yield setting(optim="adamw_bnb_8bit")
    # Other training.
    if peft and not quantised and not vllm:
        yield setting(load_in_4bit=True, use_bnb_nested_quant=True)
    if now.get("beta") and not peft:
        yield setting(beta=0.0)
    if not peft:
        keys = {"use_peft": True, "lora_target_modules": "all-linear", "dtype": "bfloat16"}
        words = ", ".join(f"{key}: {str(value).lower()}" for key, value in keys.items())
        yield change(words, keys, launcher.removesuffix("_offload"))
    longest = int(now.get("max_completion_length") or 512)
    if longest >= 128:
        yield setting(max_completion_length=longest // 2)
