"""Keys of a recipe that can't go together, or not here: with this launcher, these packages, this patience."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from rlvr.config.batch_plan import _patience, batch_of, reward_budget
from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.tracking import trackers
from rlvr.training.curriculum import columns_fault, easy_first

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def combination_faults(recipe: Recipe, config: PretrainedConfig | None, *, here: bool = True) -> list[str]:
    """Keys that can't go together; what depends on the model only where its configuration is known.

    Args:
        here: False for a recipe that is meant for another machine, where other packages are installed.
    """
    settings = recipe.settings
    faults = []
    quantised = settings.get("load_in_4bit") or settings.get("load_in_8bit")
    if quantised and not settings.get("use_peft"):
        faults.append("load_in_4bit without use_peft: quantised weights can't be trained; set use_peft: true (QLoRA).")
    if quantised and settings.get("use_vllm"):
        faults.append(
            "load_in_4bit with use_vllm: TRL can't push a QLoRA adapter's merge into vLLM correctly "
            "(github.com/huggingface/trl issues 4973, 3466, 5975). Set use_vllm: false, or load_in_4bit: false."
        )
    if here and settings.get("use_vllm") and importlib.util.find_spec("vllm") is None:
        faults.append("use_vllm: vllm is not installed here: pip install -e '.[vllm]' in an environment of its own.")
    flash = settings.get("attn_implementation") == "flash_attention_2"
    if here and flash and importlib.util.find_spec("flash_attn") is None:
        faults.append(
            "attn_implementation: flash-attn is not installed here: pip install -e '.[flash-attn]', or use auto."
        )
    if recipe.output_dir.exists() and not recipe.output_dir.is_dir():
        faults.append(f"output_dir: {recipe.output_dir} is a file; name a folder, which is made if it isn't there.")
    if here:
        faults += trackers.tracker_faults(settings.get("report_to"))
    copied = {"lm_head", "embed_tokens"} & set(settings.get("lora_modules_to_save") or [])
    if copied and config is not None and getattr(config.get_text_config(), "tie_word_embeddings", False):
        faults.append(
            f"lora_modules_to_save: {settings['model_name_or_path']} shares its embeddings between input and output; "
            f"saving {' and '.join(sorted(copied))} trains a separate copy that no longer is shared. Remove it."
        )
    return faults


def sampling_faults(recipe: Recipe, task: Task, processes: int) -> list[str]:
    """What of dynamic sampling and a curriculum can't go with the rest of the recipe."""
    settings = recipe.settings
    batch, group, *_ = batch_of(recipe, processes)
    found: list[str] = []
    if settings.get("dynamic_sampling"):
        from rlvr.training.dynamic_sampling import alignment_fault, settings_fault

        faults = (settings_fault(settings), alignment_fault(batch // processes, group))
        found += [fault for fault in faults if fault]
    if settings.get("curriculum", "none") != "none":
        fault = columns_fault(task.train.column_names)
        if fault is None and len(task.train):
            try:
                easy_first(task.train["difficulty"], 1, seed=0)
            except InputError as error:
                fault = str(error).removesuffix(".")
        found += [fault] if fault else []
    return [f"{fault}." for fault in found]


def waiting_faults(recipe: Recipe, processes: int) -> list[str]:
    """Rewards that could outlast the other processes' patience, which would end the run with a timeout of NCCL."""
    faults = []
    budget, deadline = reward_budget(recipe), recipe.settings.get("reward_timeout_s", 30.0)
    if processes > 1 and budget > _patience(recipe) * 2 / 3:
        # The last third is for what else a process may be late by: longer completions, workers that start again.
        faults.append(
            f"reward_batch_timeout_s is {budget:g}, but the other processes wait for at most ddp_timeout = "
            f"{_patience(recipe):g} s, for rewards and completions together: a slow batch would end the run. Set "
            f"ddp_timeout to {budget * 3 / 2:.0f} or more, or lower reward_batch_timeout_s."
        )
    if deadline > budget:
        faults.append(
            f"reward_timeout_s is {deadline:g} for a row, but reward_batch_timeout_s is {budget:g} for a batch: raise "
            "the one or lower the other."
        )
    return faults


def precision_notes(recipe: Recipe) -> list[str]:
    settings = recipe.settings
    if settings.get("use_cpu"):
        return []
    if settings.get("load_in_4bit") and settings.get("dtype") == "float32":
        return [
            "dtype float32 with 4-bit weights: they are computed in float32, which leaves the GPU's 16-bit units idle "
            "and doubles what activations take; the adapter is float32 in any case. Set dtype: bfloat16"
        ]
    deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true"
    if not settings.get("use_peft") and settings.get("dtype") in ("bfloat16", "float16") and not deepspeed:
        return [
            f"dtype {settings['dtype']} without DeepSpeed: there are no float32 masters, so an update below 1/256 of a "
            "weight is rounded away. Set dtype: float32 (bf16: true still computes in 16 bits), or launch with zero2"
        ]
    return []
