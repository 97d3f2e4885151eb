"""Convert a recipe to TRL's configuration, and run TRL's own checks before a weight is loaded.

A module of its own, so that a check doesn't import the trainer. It imports TRL, so it is imported late.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config
from trl import GRPOConfig, ModelConfig, get_peft_config

from rlvr.artifacts.metrics import validation_metric
from rlvr.config import schema
from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec
from rlvr.errors import InputError
from rlvr.modeling import loading as models
from rlvr.scoring.reward import Reward
from rlvr.tracking import trackers

if TYPE_CHECKING:
    from peft import PeftConfig

LESS_IS_BETTER = ("cut_off", "unscored", "mean_length")  # of a validation's metrics (rlvr/training/train.py)


def training_config(
    recipe: Recipe, rewards: Sequence[Reward | RewardSpec], stop_strings: tuple[str, ...]
) -> GRPOConfig:
    """Build TRL's `GRPOConfig` for the recipe.

    It adds the rewards' weights, how the model is loaded, whether activation checkpointing is reentrant, and vLLM's
    stop strings. Under ZeRO-3 models are loaded whole until `load_in_shares`.
    """
    settings = recipe.settings_for("training")
    if settings.get("scale_rewards") == "adaptive":
        settings["scale_rewards"] = "group"  # TRL computes these first; RecipeTrainer replaces them
    # Checkpoints are rotated once the new one is complete (rlvr/training/checkpoint_writer.py), MLflow is ours
    # (rlvr/tracking/mlflow_tracker.py), as is validation, which makes one completion a row.
    settings["save_total_limit"] = None
    names = trackers.tracker_names(settings.get("report_to"))
    settings["report_to"] = [name for name in names if name != "mlflow"] or "none"
    settings["run_name"] = settings.get("run_name") or recipe.output_dir.name
    settings["num_generations_eval"] = 1
    settings["push_to_hub"] = False  # rlvr/export/publish.py does it once, after the report
    settings["reward_weights"] = [reward.weight for reward in rewards]
    settings["model_init_kwargs"] = models.model_init_options(recipe)
    if settings.get("metric_for_best_model"):
        settings |= _best_model(settings)
    # callbacks.Progress shows the progress; transformers' bar prints a dictionary a step.
    settings["disable_tqdm"] = True
    if settings["activation_checkpointing"]:
        # PEFT under ZeRO-3 needs the reentrant kind (huggingface/trl#2514); elsewhere PyTorch advises against it.
        zero3 = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"
        settings["activation_checkpointing_kwargs"] = {
            "use_reentrant": zero3,
            **(settings.get("activation_checkpointing_kwargs") or {}),
        }
    if settings.get("use_vllm") and stop_strings:
        settings["generation_kwargs"] = {
            "stop": list(stop_strings),
            "include_stop_str_in_output": True,
            **(settings.get("generation_kwargs") or {}),
        }
    config = GRPOConfig(**settings)
    unset_hf_deepspeed_config()
    return config


def _best_model(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Whether more is better, by the metric: transformers assumes it for all, and its scheduler that less is."""
    metric = validation_metric(settings["metric_for_best_model"])
    greater = settings.get("greater_is_better")
    if greater is None:
        greater = metric.removeprefix("eval_").rpartition("/")[2] not in LESS_IS_BETTER
    best = {"metric_for_best_model": metric, "greater_is_better": greater}
    if settings.get("lr_scheduler_type") == "reduce_lr_on_plateau":
        mode = {"mode": "max" if greater else "min"}
        best["lr_scheduler_kwargs"] = {**mode, **(settings.get("lr_scheduler_kwargs") or {})}
    return best


def load_in_shares(config: GRPOConfig) -> None:
    """Let the next model be loaded in shares if the launcher uses ZeRO-3."""
    if config.deepspeed_plugin is not None:
        set_hf_deepspeed_config(config.deepspeed_plugin.dschf)


def check_config(recipe: Recipe, stop_strings: tuple[str, ...], *, elsewhere: int | None = None) -> None:
    """Run TRL's own checks of the recipe before anything is loaded.

    Args:
        stop_strings: of the task.
        elsewhere: how many processes will train on another machine: the local number and GPUs don't matter then.

    Raises:
        InputError: TRL, transformers or PEFT refuse the recipe, or the optimizer can't be made of it.
    """
    if elsewhere is not None:
        changes = {"use_cpu": True, "bf16": False, "fp16": False, "tf32": None}
        changes["per_device_train_batch_size"] = recipe.value("per_device_train_batch_size") * elsewhere
        recipe = replace(recipe, settings={**recipe.settings, **changes})
    try:
        config = training_config(recipe, recipe.rewards, stop_strings)
        get_peft_config(ModelConfig(**models.model_settings(recipe)))
    except (ValueError, TypeError, ImportError) as error:
        if "need to assign use_cpu" in str(error):
            raise InputError(
                "No GPU here can compute in bf16, the default of a recipe. On a CPU: use_cpu: true, bf16: false and "
                "dtype: float32. On an older GPU: bf16: false and fp16: true. For another machine: --check --machine "
                "NAME.",
                kind="unsupported-precision",
                key="bf16",
            ) from error
        # transformers' error for a value that is none of an enumeration, such as an optimizer, lists all values.
        if match := re.fullmatch(r"(\S+) is not a valid \w+, please select one of \[(.+)\]", str(error)):
            key = next((key for key, value in recipe.settings.items() if value == match[1]), None)
            fault = schema.choice_fault(match[1], re.findall(r"'([^']+)'", match[2]))
            raise InputError(f"{key or 'A value'} {fault.text}", kind=fault.kind, key=key) from error
        key = _key_of_argument(recipe, str(error))
        raise InputError(f"TRL refuses this recipe: {error}", kind="refused-by-trl", key=key) from error
    if elsewhere is None:
        _check_optimizer(config)


def _check_optimizer(config: GRPOConfig) -> None:
    """Find a missing package or a wrong option of the optimizer, which is made only after the base was measured."""
    if config.optim_args is None and config.optim.value in ("adamw_torch", "adamw_torch_fused"):
        return  # PyTorch has these; to import the trainer takes a second
    from transformers import Trainer

    try:
        # A few optimizers take their layers from the model.
        Trainer.get_optimizer_cls_and_kwargs(config, torch.nn.Linear(1, 1))
    except (ImportError, ValueError, TypeError) as error:
        # A ValueError may be about optim_target_modules, which this model lacks.
        if isinstance(error, ValueError) and config.optim_target_modules is not None:
            return
        message = f"transformers can't make the optimizer {config.optim.value}: {error}"
        if isinstance(error, ImportError) or not config.optim_args:
            raise InputError(message, kind="package-not-installed", key="optim") from error
        message += f". optim_args is {config.optim_args!r}: write name=value, with commas between several."
        raise InputError(message, kind="wrong-type", key="optim_args") from error


def _key_of_argument(recipe: Recipe, message: str) -> str | None:
    """The dotted key of an argument that a constructor does not take, such as one of `accelerator_config`."""
    match = re.search(r"unexpected keyword argument '(\w+)'", message)
    holders = (key for key, value in recipe.settings.items() if isinstance(value, dict) and match and match[1] in value)
    key = next(holders, None)
    return f"{key}.{match[1]}" if match and key else None


def resolved_settings(recipe: Recipe, config: GRPOConfig) -> dict[str, Any]:
    """Return what TRL, transformers, PEFT and bitsandbytes derive from a recipe, for the recipe.yaml of a run.

    Args:
        config: as `training_config` returns it.

    Returns:
        "training": values of `GRPOConfig` that neither the recipe nor a default gives; "lora" and "quantization": all
        values of `LoraConfig` and `BitsAndBytesConfig`, if the recipe has them, with the modules that LoRA adapts.
        Values are plain.
    """
    known = {**schema.defaults(), **recipe.settings}
    values = {field.name: _plain(getattr(config, field.name)) for field in fields(config)}
    derived = {name for name, value in values.items() if name not in known or value != known[name]} - _NOT_DERIVED
    resolved = {"training": {name: value for name, value in values.items() if name in derived}}
    lora = get_peft_config(ModelConfig(**models.model_settings(recipe)))
    unnamed = lora is not None and lora.target_modules in (None, "all-linear")
    if unnamed and not recipe.settings.get("trust_remote_code"):
        lora.target_modules = _modules_chosen_by_peft(recipe, lora)
    quantization = models.quantization(recipe)
    for name, library_config in (("lora", lora), ("quantization", quantization)):
        if library_config is not None:
            resolved[name] = _plain(library_config.to_dict())
    return resolved


def _modules_chosen_by_peft(recipe: Recipe, lora: PeftConfig) -> list[str]:
    """The last part of the names of the modules that PEFT adapts: it tries them on the model without weights."""
    from peft import get_peft_model

    model = get_peft_model(models.skeleton(recipe, models.load_config(recipe)), copy(lora), low_cpu_mem_usage=True)
    return sorted({name.rpartition(".")[2] for name in model.targeted_module_names})


# What `training_config` sets, and deprecated copies of other fields.
_NOT_DERIVED = {"scale_rewards", "save_total_limit", "report_to", "run_name", "disable_tqdm", "resume_from_checkpoint"}
_NOT_DERIVED |= {
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "hub_token",
    "push_to_hub_token",
    "push_to_hub",
}


def _plain(value: Any) -> Any:
    """Convert a value of a configuration to what YAML holds: enumerations to text, sets to lists."""

    def convert(item: Any) -> Any:
        if isinstance(item, set):
            return sorted(item)
        return asdict(item) if is_dataclass(item) and not isinstance(item, type) else str(item)

    return json.loads(json.dumps(value, default=convert))
