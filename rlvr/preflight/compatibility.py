"""Keys of a recipe that can't be combined, or not with this launcher, these packages, this folder."""

from __future__ import annotations

import importlib.util
import os

from rlvr.config.batch_plan import batch_sizes
from rlvr.errors import InputError, Problem
from rlvr.preflight.components import RunComponents
from rlvr.tracking import trackers
from rlvr.training import launch
from rlvr.training.curriculum import columns_fault, easy_first


def check_quantization(components: RunComponents) -> list[Problem]:
    """Quantised weights need an adapter, and can't be combined with vLLM."""
    settings = components.settings
    quantised = [key for key in ("load_in_4bit", "load_in_8bit") if settings.get(key)]
    if not quantised:
        return []
    key, problems = quantised[0], []
    if not settings.get("use_peft"):
        message = f"{key} without use_peft: quantised weights can't be trained. Set use_peft: true (QLoRA)."
        problems.append(Problem(message, "conflicting-keys", key))
    if settings.get("use_vllm"):
        message = (
            f"{key} with use_vllm: TRL can't merge a QLoRA adapter into vLLM correctly (github.com/huggingface/trl "
            f"issues 4973, 3466, 5975). Set use_vllm: false, or {key}: false."
        )
        problems.append(Problem(message, "conflicting-keys", key))
    return problems


def check_optional_packages(components: RunComponents) -> list[Problem]:
    """vLLM and flash-attn must be installed if the recipe uses them."""
    settings, problems = components.settings, []
    if not components.target.is_here:
        return []
    if settings.get("use_vllm") and importlib.util.find_spec("vllm") is None:
        message = "use_vllm: vllm is not installed. Run `pip install -e '.[vllm]'` in an environment of its own."
        problems.append(Problem(message, "package-not-installed", "use_vllm"))
    uses_flash_attention = settings.get("attn_implementation") == "flash_attention_2"
    if uses_flash_attention and importlib.util.find_spec("flash_attn") is None:
        message = "attn_implementation: flash-attn is not installed. Run `pip install -e '.[flash-attn]'`, or use auto."
        problems.append(Problem(message, "package-not-installed", "attn_implementation"))
    return problems


def check_output_dir(components: RunComponents) -> list[Problem]:
    folder = components.recipe.output_dir
    if not folder.exists() or folder.is_dir():
        return []
    return [Problem(f"output_dir: {folder} is a file. Name a folder.", "not-a-folder", "output_dir")]


def check_time_limit(components: RunComponents) -> list[Problem]:
    """The time limit of the environment must be a number of seconds."""
    from rlvr.training.interruption import time_limit

    try:
        time_limit(components.settings.get("max_runtime_s"))
    except InputError as error:
        return list(error.problems)
    return []


def check_trackers(components: RunComponents) -> list[Problem]:
    """The trackers of `report_to` must exist, be installed and have their key."""
    if not components.target.is_here:
        return []
    return trackers.tracker_problems(components.settings.get("report_to"))


def check_tied_embeddings(components: RunComponents) -> list[Problem]:
    """A saved copy of a tied embedding is no longer tied."""
    copied = {"lm_head", "embed_tokens"} & set(components.settings.get("lora_modules_to_save") or [])
    assert components.config is not None
    if not copied or not getattr(components.config.get_text_config(), "tie_word_embeddings", False):
        return []
    message = (
        f"lora_modules_to_save: {components.settings['model_name_or_path']} shares its embeddings between input and "
        f"output; saving {' and '.join(sorted(copied))} would train a separate copy. Remove it."
    )
    return [Problem(message, "tied-embeddings", "lora_modules_to_save")]


def check_launcher(components: RunComponents) -> list[Problem]:
    """What the launcher can't do."""
    return launch.launch_problems(components.recipe, here=components.target.is_here)


def check_dynamic_sampling(components: RunComponents) -> list[Problem]:
    """Dynamic sampling replaces whole groups of a process, and needs a batch from one round."""
    if not components.settings.get("dynamic_sampling"):
        return []
    from rlvr.training.dynamic_sampling import alignment_fault, settings_fault

    sizes = batch_sizes(components.recipe, components.processes)
    faults = (
        settings_fault(components.settings),
        alignment_fault(sizes.completions // components.processes, sizes.group),
    )
    return [Problem(f"{fault}.", "conflicting-keys", "dynamic_sampling") for fault in faults if fault]


def check_curriculum(components: RunComponents) -> list[Problem]:
    """A curriculum needs a column `difficulty` that can be put into an order."""
    train = components.train
    if train is None or components.settings.get("curriculum", "none") == "none":
        return []
    fault = columns_fault(train.column_names)
    if fault is not None:
        return [Problem(f"{fault}.", "missing-column", "difficulty")]
    try:
        easy_first(train["difficulty"], 1, seed=0)
    except InputError as error:
        return list(error.problems)
    return []


def check_precision(components: RunComponents) -> list[Problem]:
    """Note number formats that cost speed or precision without need."""
    settings = components.settings
    if settings.get("use_cpu"):
        return []
    dtype = settings.get("dtype")
    if settings.get("load_in_4bit") and dtype == "float32":
        message = (
            "dtype float32 with 4-bit weights: they are computed in float32, which leaves the GPU's 16-bit units idle "
            "and doubles the memory of activations; the adapter is float32 in any case. Set dtype: bfloat16."
        )
        return [Problem(message, "slow-dtype", "dtype", level="note")]
    deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true"
    if not settings.get("use_peft") and dtype in ("bfloat16", "float16") and not deepspeed:
        message = (
            f"dtype {dtype} without DeepSpeed: there are no float32 masters, so an update below 1/256 of a weight is "
            "rounded away. Set dtype: float32 (bf16: true still computes in 16 bits), or launch with zero2."
        )
        return [Problem(message, "coarse-dtype", "dtype", level="note")]
    return []
