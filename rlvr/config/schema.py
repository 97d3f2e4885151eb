"""The keys of a recipe, their types, choices and ranges.

rlvr/config/recipe.py refuses unknown keys, and sections.py those of the sections.

A recipe uses the field names of `trl.GRPOConfig` and `trl.ModelConfig`. They are in trl_keys.json, which trl_keys.py
writes; `tests/rlvr/config/test_schema.py` compares the file with the installed TRL.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.config.value_types import PLAIN_TYPES, type_mismatch, types_of
from rlvr.formatting import is_secret_key

# Our own keys: annotation, default, and what `--keys` says. They are keys of the run, and none of TRL's
# classes gets them.
OWN: dict[str, tuple[str, Any, str]] = {
    "resume_from_checkpoint": ("str", "auto", "auto, never, or the folder of a checkpoint."),
    "max_runtime_s": ("float | None", None, "Seconds after which the run saves a checkpoint and ends."),
    "on_reward_error": ("str", "raise", "After a failed reward: end the run (raise), or leave the row out (mask)."),
    "reward_timeout_s": ("float", 30.0, "Seconds that a reward may take per row."),
    "reward_batch_timeout_s": ("float | None", None, "Seconds per batch of rewards; default: ddp_timeout / 3."),
    "reward_outage_timeout_s": ("float", 1800.0, "Seconds without any reward server after which the run ends."),
    "adaptive_threshold": ("float", 0.1, "The least standard deviation that scale_rewards: adaptive divides by."),
    "dynamic_sampling": ("int", 0, "Further generations per step that replace groups with equal rewards."),
    "curriculum": ("str", "none", "easy_first sorts the prompts by the column difficulty."),
    "rollouts": ("str", "transformers", "The engine that generates; auto takes vLLM where possible."),
    "rollout_weights": ("str", "auto", "Weights that transformers generates from: the adapter or a merged copy."),
    "per_device_generation_batch_size": ("int | None", None, "Completions generated at once; default: what fits."),
    "tool_timeout_s": ("float", 30.0, "Seconds that a tool may take per call."),
    "tool_budget_s": ("float", 120.0, "Seconds that all tool calls of a completion may take."),
    "max_tool_output": ("int", 4000, "Characters of a tool's result that the model sees."),
    "vllm_weight_sync": ("str", "adapter", "What vLLM receives after an update: the adapter, or merged weights."),
    "vllm_base_quantization": ("str", "none", "bitsandbytes: vLLM holds the base model in 4 bits."),
    "vllm_max_num_batched_tokens": ("int", 8192, "Tokens that vLLM computes at once."),
    "rollout_check_steps": ("int", 10, "Steps between checks that the engine samples from the policy; 0: none."),
}

# Fields of TRL's classes that always have their default; recipe.yaml of a run has them.
FIXED = frozenset(
    {
        *("ignore_data_skip", "label_smoothing_factor", "load_in_8bit", "neftune_noise_alpha"),
        *("remove_unused_columns", "save_only_model"),
    }
)
# Those and others that a recipe can't have; foreign_keys.yaml says what to do instead.
REFUSED = FIXED | frozenset(
    {
        *("enable_jit_checkpoint", "gradient_checkpointing", "gradient_checkpointing_kwargs", "hub_token"),
        *("num_generations_eval", "reward_weights", "transformers_continuous_batching_config"),
        "use_transformers_continuous_batching",
    }
)

# Algorithms that other programs name as a loss, and that are other keys here.
_NOT_A_LOSS = {
    "gspo": "GSPO is importance_sampling_level: sequence, with loss_type: grpo (docs/algorithms.md)",
    "gdpo": "GDPO is multi_objective_aggregation: normalize_then_sum, with any loss (docs/algorithms.md)",
}
# TRL declares these as plain `str` and checks most values only after the first generation. Each tuple has the values
# that the code of TRL 1.16 compares with.
CHOICES: dict[str, tuple[Any, ...]] = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "scale_rewards": ("group", "batch", "none", "adaptive", True, False),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_mode": ("colocate", "server"),
    "vllm_importance_sampling_mode": ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"),
    "dtype": ("auto", "bfloat16", "float16", "float32"),
    "bnb_4bit_quant_type": ("nf4", "fp4"),
    "lora_task_type": ("CAUSAL_LM",),
    "save_strategy": ("no", "steps", "epoch", "best"),
    "eval_strategy": ("no", "steps", "epoch"),
    "logging_strategy": ("no", "steps", "epoch"),
    **dict.fromkeys(
        ("log_level", "log_level_replica"), ("detail", "debug", "info", "warning", "error", "critical", "passive")
    ),
    "on_reward_error": ("raise", "mask"),
    "curriculum": ("none", "easy_first"),
    "rollouts": ("auto", "vllm", "transformers"),
    "rollout_weights": ("auto", "merged", "adapter"),
    "vllm_weight_sync": ("adapter", "merged"),
    "vllm_base_quantization": ("none", "bitsandbytes"),
    "lr_scheduler_type": (
        *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"),
        *("reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay"),
    ),
}


class Range(NamedTuple):
    """Bounds of a number, both allowed; `above` and `below` exclude their own values."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def __str__(self) -> str:
        bounds = {"above": self.above, "at least": self.least, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {bound}" for words, bound in bounds.items() if bound is not None)

    def __contains__(self, value: Any) -> bool:
        return not (
            (self.least is not None and value < self.least)
            or (self.above is not None and value <= self.above)
            or (self.most is not None and value > self.most)
            or (self.below is not None and value >= self.below)
        )


# Bounds of numbers that TRL and transformers do not check.
_RANGES: dict[Range, tuple[str, ...]] = {
    Range(least=1): (
        *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
        *("generation_batch_size", "steps_per_generation", "num_iterations", "max_completion_length"),
        *("lora_r", "lora_alpha", "max_tool_calling_iterations", "max_tool_output"),
        *("per_device_generation_batch_size", "vllm_max_num_batched_tokens"),
    ),
    Range(least=2): ("num_generations",),
    Range(least=0): (
        "warmup_steps",
        "max_grad_norm",
        "weight_decay",
        "dataloader_num_workers",
        "beta",
        "epsilon",
        "reward_outage_timeout_s",
        "adaptive_threshold",
        "dynamic_sampling",
        "rollout_check_steps",
    ),
    Range(above=0): (
        "num_train_epochs",
        "logging_steps",
        "save_steps",
        "learning_rate",
        "temperature",
        "repetition_penalty",
        "max_runtime_s",
        "reward_timeout_s",
        "reward_batch_timeout_s",
        "tool_timeout_s",
        "tool_budget_s",
        "adam_epsilon",
        "sapo_temperature_neg",
        "sapo_temperature_pos",
        "delta",
        "off_policy_mask_threshold",
    ),
    Range(above=0, most=1): ("top_p",),
    Range(least=0, most=1): ("min_p", "top_entropy_quantile", "vllm_gpu_memory_utilization"),
    Range(least=0, below=1): ("lora_dropout", "adam_beta1", "adam_beta2"),
    Range(least=0, most=2**32 - 1): ("seed",),
    Range(most=10**9): ("max_steps",),
    Range(least=-1): ("top_k",),
}
RANGES = {key: bounds for bounds, keys in _RANGES.items() for key in keys}

_NAMES = re.compile(r"\s*[\w.-]+(\s*,\s*[\w.-]+)+\s*")  # several, with commas
# TRL's `ModelConfig` declares `list[str]` and accepts a single string.
_ALSO_TEXT = {"lora_target_modules", "lora_modules_to_save", "lora_target_parameters"}


_NO_DEFAULT = object()


@dataclass(frozen=True)
class Field:
    """One flat recipe key.

    Attributes:
        belongs_to: "training", "model", or "run" for our own.
        annotation: its type as text.
        default: the default, if it is a plain value.
        help: one sentence.
    """

    belongs_to: str
    annotation: str
    default: Any = _NO_DEFAULT
    help: str = ""

    @property
    def has_default(self) -> bool:
        return self.default is not _NO_DEFAULT


@functools.cache
def fields() -> dict[str, Field]:
    """Return all flat keys, TRL's and ours, by name."""
    written = json.loads(Path(__file__).with_name("trl_keys.json").read_text(encoding="utf-8"))
    declared = {name: Field(**key) for name, key in written.items()}
    return declared | {name: Field("run", *key) for name, key in OWN.items()}


def defaults() -> dict[str, Any]:
    """Return the default of each key whose default is a plain value."""
    return {name: field.default for name, field in fields().items() if field.has_default}


def nearest(name: str, known: Iterable[str], *, count: int = 1) -> list[str]:
    """Return the known names that are nearest to a misspelt `name`, best first.

    A name that begins with another letter must be nearer: a far suggestion costs more than none.
    """
    close = difflib.get_close_matches(name, list(known), n=3 * count, cutoff=0.6)
    near = set(difflib.get_close_matches(name, close, n=3 * count, cutoff=0.75))
    return [one for one in close if one[:1] == name[:1] or one in near][:count]


def hint(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest of the known names, or with all of them."""
    known = sorted(known)
    close = nearest(name, known)
    return f"Did you mean {close[0]}?" if close else f"There are: {', '.join(known) or 'none'}."


class ValueFault(NamedTuple):
    """What is wrong with a value: a kind of `Problem`, and the rest of a sentence that begins with the key."""

    kind: str
    text: str


def value_fault(key: str, value: Any) -> ValueFault | None:
    """Check the value of a flat key against its type, its choices and its range."""
    field = fields()[key]
    options = value.items() if isinstance(value, dict) else ()
    secret = next((name for name, item in options if isinstance(item, str) and is_secret_key(str(name))), None)
    if secret is not None:
        fix = "A recipe is copied to logs and jobs, and must hold no secret. Set HF_TOKEN or run `hf auth login`."
        return ValueFault("removed-key", f"has the key {secret}. {fix}")
    if key in CHOICES and value is not None:
        if any(value is choice or (value == choice and isinstance(value, str)) for choice in CHOICES[key]):
            return None
        if key == "loss_type" and str(value).lower() in _NOT_A_LOSS:
            return ValueFault("unknown-choice", f"is {value!r}, which is no loss. {_NOT_A_LOSS[str(value).lower()]}.")
        return choice_fault(value, [str(choice).lower() for choice in CHOICES[key]])
    # A type that is not plain is an enumeration of strings in transformers. "False" is a choice.
    types = {name if name in (*PLAIN_TYPES, "False") else "str" for name in types_of(field.annotation)}
    text = type_mismatch(value, types | ({"str"} if key in _ALSO_TEXT else set()))
    if text is not None:
        return ValueFault("wrong-type", f"{text}.")
    if isinstance(value, list) and "list[str]" in field.annotation:
        odd = next((item for item in value if not isinstance(item, str)), None)
        if odd is not None:
            return ValueFault("wrong-type", f"has the item {odd!r}, but should be a list of texts.")
    if key == "max_completion_length" and value is None:
        return ValueFault("wrong-type", "has no value, but needs a number: it limits memory and time.")
    text = _out_of_range(key, value)
    return ValueFault("out-of-range", f"{text}.") if text is not None else None


def choice_fault(value: Any, choices: Sequence[str]) -> ValueFault:
    """A value that is none of the choices of its key."""
    close = [one for one in choices if one.startswith(str(value).lower())] or nearest(str(value), choices)
    fix = f"is none of its values. Did you mean {close[0]}?" if close else f"is none of these: {', '.join(choices)}."
    return ValueFault("unknown-choice", f"is {value!r}, which {fix}")


def takes_flag(key: str) -> bool:
    """Whether `--key` alone may mean true; for keys of sections and unknown ones, it may."""
    return key not in fields() or "bool" in types_of(fields()[key].annotation)


def as_its_type(key: str, value: Any) -> Any:
    """Convert a value to the type that TRL and transformers want.

    - `q_proj, v_proj` is a list, where a list is allowed. A regular expression stays as it is, and `norm` where no
      regular expression is allowed is a list of one.
    - `temperature: 3` is a float. Keys that count steps stay whole: below 1 they would be a share of all steps.
    """
    is_list_only = key in ("lora_modules_to_save", "lora_target_parameters")  # PEFT reads text as a list of letters
    is_list = is_list_only or "list" in types_of(fields()[key].annotation)
    if isinstance(value, str) and is_list and (is_list_only or _NAMES.fullmatch(value)):
        return [name.strip() for name in value.split(",")]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or key.endswith("_steps") or types_of(fields()[key].annotation) - {"None"} != {"float"}:
        return value
    return float(value)


def _out_of_range(key: str, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        return f"is {value}, but should be a finite number"
    if key == "max_steps" and (value == 0 or value < -1):
        return f"is {value}, but should be at least 1, or -1 for num_train_epochs to decide"
    bounds = RANGES.get(key, Range())
    return None if value in bounds else f"is {value}, but should be {bounds}"
