"""Versions that are not supported, and keys that don't fit each other, this launcher, these packages, this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement

from rlvr.artifacts.metrics import validation_metric
from rlvr.config import schema
from rlvr.config.batch_plan import batch_sizes
from rlvr.config.recipe import value_of
from rlvr.errors import InputError, Problem
from rlvr.export.settings import check_id, find_token
from rlvr.preflight.components import RunComponents
from rlvr.tracking import trackers
from rlvr.training import launch
from rlvr.training.curriculum import easy_first
from rlvr.training.dynamic_sampling import sampling_problems

PROJECT = "grpo-recipes"
MIN_BF16_RATE = 3e-5  # Adam changes a weight by about the rate; weights near 0.02 lie 1.2e-4 apart, near 0.01 half that


def check_versions(_: object, installed: Callable[[str], str] = metadata.version) -> Iterator[Problem]:
    """Compare the installed packages with the requirements of pyproject.toml, if this project is installed.

    Args:
        installed: returns a package's version, or raises `PackageNotFoundError`.
    """
    fix = "Run `pip install -e . -c constraints.txt`."
    try:
        required = [Requirement(line) for line in metadata.requires(PROJECT) or []]
    except metadata.PackageNotFoundError:
        return
    for requirement in required:
        name = requirement.name
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = installed(name)
        except metadata.PackageNotFoundError:
            yield Problem(f"{name} is not installed. {fix}", "package-not-installed", name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            message = f"{name} {version} is installed, but this project supports {requirement.specifier}. {fix}"
            yield Problem(message, "unsupported-version", name)


def check_quantization(components: RunComponents) -> Iterator[Problem]:
    """Quantised weights need an adapter."""
    settings = components.settings
    if settings.get("load_in_4bit") and not settings.get("use_peft"):
        message = "load_in_4bit without use_peft: quantised weights can't be trained. Set use_peft: true (QLoRA)."
        yield Problem(message, "conflicting-keys", "load_in_4bit")
    if settings.get("load_in_4bit") and settings.get("dtype") == "auto":
        message = "dtype: auto with load_in_4bit: 4-bit weights are computed in dtype. Set dtype: bfloat16."
        yield Problem(message, "conflicting-keys", "dtype")


def check_precision(components: RunComponents) -> Iterator[Problem]:
    """Warn of a GPU that only emulates bfloat16, and of bfloat16 weights that the learning rate does not change."""
    import torch

    settings = components.settings
    on_gpu = components.target.is_here and torch.cuda.is_available()
    if on_gpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        yield from emulated_bf16(settings, torch.cuda.get_device_name())
    dtype, rate = settings.get("dtype"), value_of(settings, "learning_rate")
    if dtype == "auto" and components.config is not None:
        dtype = str(components.config.dtype).removeprefix("torch.")
    keeps_float32 = launch.launcher().startswith("zero")  # masters of the weights
    if dtype == "bfloat16" and rate < MIN_BF16_RATE and not settings.get("use_peft") and not keeps_float32:
        message = (
            f"learning_rate: {rate:g} with bfloat16 weights: a change below 6e-5 of a weight near 0.02 is rounded "
            "away. Set dtype: float32, or use zero2 or zero3, which keep float32 weights."
        )
        yield Problem(message, "rounded-updates", "dtype", level="warning")


def emulated_bf16(settings: Mapping[str, Any], gpu: str) -> Iterator[Problem]:
    """The warning for a recipe in bfloat16 on a GPU older than Ampere."""
    uses = settings.get("bf16", not settings.get("fp16")) or settings.get("dtype") == "bfloat16"
    if uses and not settings.get("use_cpu"):
        message = (
            f"{gpu} has no bfloat16 and emulates it slowly. Set bf16: false, fp16: true, and dtype: float16 (float32 "
            "without an adapter)."
        )
        yield Problem(message, "emulated-bf16", "bf16", level="warning")


VALIDATION_METRICS = ("reward", "accuracy", "cut_off", "unscored", "mean_length", "rows")  # rlvr/training/train.py


def check_best_checkpoint(components: RunComponents) -> Iterator[Problem]:
    """What compares validations needs one, and a metric that it has: transformers asks for it at the first one."""
    settings = components.settings
    uses = {
        "load_best_model_at_end": settings.get("load_best_model_at_end"),
        "save_strategy": settings.get("save_strategy") == "best",
        "lr_scheduler_type": settings.get("lr_scheduler_type") == "reduce_lr_on_plateau",
    }
    key = next((key for key, uses_it in uses.items() if uses_it), None)
    if key is None:
        return
    metric = validation_metric(str(settings.get("metric_for_best_model") or "")).removeprefix("eval_")
    names = [*VALIDATION_METRICS, *(reward.label for reward in components.all_rewards)]
    what = f"{key}: {str(settings[key]).lower()}"
    if value_of(settings, "eval_strategy") == "no":
        message = f"{what} compares validations, but eval_strategy is no. Set eval_strategy: steps, or another {key}."
        yield Problem(message, "missing-key", key)
    elif not metric:
        message = f"{what} needs metric_for_best_model. Set it to eval_reward, or use another {key}."
        yield Problem(message, "missing-key", key)
    elif metric.rpartition("/")[2] not in names:  # before the slash stands a source or a task
        message = f"metric_for_best_model: a validation has no {metric}. {schema.hint(metric, names)}"
        yield Problem(message, "unknown-choice", "metric_for_best_model")


def check_trackers(components: RunComponents) -> Iterable[Problem]:
    """The trackers of `report_to` must exist, be installed and have their key."""
    return trackers.tracker_problems(components.settings.get("report_to")) if components.target.is_here else ()


def check_publishing(components: RunComponents) -> Iterator[Problem]:
    """The keys of `push_to_hub`, and the token, if the run pushes from this machine."""
    settings = components.settings
    if not settings.get("push_to_hub"):
        return
    if not settings.get("hub_model_id"):
        message = "push_to_hub: hub_model_id is missing. Set it to the repository to publish in, as user/name."
        yield Problem(message, "missing-key", "hub_model_id")
    else:
        try:
            check_id(str(settings["hub_model_id"]))
        except InputError as error:
            yield Problem(f"hub_model_id: {error}", error.kind, "hub_model_id")
    if components.target.is_here:
        try:
            find_token()
        except InputError as error:
            later = "Or set push_to_hub: false, and publish after the run with scripts/publish.py."
            yield Problem(f"push_to_hub: {error} {later}", error.kind, "push_to_hub")


def check_launcher(components: RunComponents) -> Iterable[Problem]:
    """What the launcher can't do."""
    return launch.launch_problems(components.recipe, here=components.target.is_here)


def check_cispo(components: RunComponents) -> Iterator[Problem]:
    """CISPO's weights are cut at `epsilon_high`, whose default is meant for other losses."""
    settings = components.settings
    bound = settings.get("epsilon_high") or value_of(settings, "epsilon")
    if settings.get("loss_type") == "cispo" and bound < 1:
        message = (
            f"loss_type: cispo cuts weights at {bound}, so those near 1 are all {bound}. Set epsilon_high: 5.0 "
            "(docs/algorithms.md)."
        )
        yield Problem(message, "out-of-range", "epsilon_high", level="warning")


def check_vespo(components: RunComponents) -> Iterator[Problem]:
    """VESPO multiplies vLLM's ratios of all tokens; a ratio of the sequence would count once for each token.

    TRL checks it while it starts vLLM, which rlvr/training/train.py leaves out.
    """
    settings = {**schema.defaults(), **components.settings}
    key = "vllm_importance_sampling_mode"
    corrects = settings["use_vllm"] and settings["vllm_importance_sampling_correction"]
    if settings["loss_type"] == "vespo" and corrects and not settings[key].startswith("token_"):
        message = f"{key}: {settings[key]} with loss_type: vespo, which needs the ratio of each token."
        yield Problem(f"{message} Set token_truncate.", "conflicting-keys", key)


def check_late_conflicts(components: RunComponents) -> Iterator[Problem]:
    """Keys that TRL refuses only after the base model has been measured, or that would have no effect."""
    settings, config = {**schema.defaults(), **components.settings}, components.config
    syncs, is_adapter = settings["sync_ref_model"], settings["use_peft"]
    is_tied = config is not None and getattr(config, "tie_word_embeddings", False)
    for key, applies, why in (
        ("sync_ref_model", syncs and is_adapter, "an adapter has no reference model of its own. Set it to false"),
        ("sync_ref_model", syncs and not settings["beta"], "beta: 0 needs no reference model. Set beta above 0"),
        (
            "cast_lm_head_to_fp32",
            settings["cast_lm_head_to_fp32"] and is_adapter and is_tied,
            "TRL can't cast a head that shares its weights with the embeddings below an adapter. Set it to false",
        ),
        (
            "multi_objective_aggregation",
            settings["multi_objective_aggregation"] != "sum_then_normalize" and settings["scale_rewards"] == "adaptive",
            "scale_rewards: adaptive normalises the sum. Set scale_rewards: group",
        ),
    ):
        if applies:
            yield Problem(f"{key}: {settings[key]} can't be used: {why}.", "conflicting-keys", key)


def check_dynamic_sampling(components: RunComponents) -> list[Problem]:
    """Dynamic sampling replaces whole groups of a process, and needs a batch from one round."""
    if not components.settings.get("dynamic_sampling"):
        return []
    sizes = batch_sizes(components.recipe, components.processes)
    return sampling_problems(components.settings, sizes.completions // components.processes, sizes.group)


def check_mixture(components: RunComponents) -> Iterator[Problem]:
    """What several tasks of a run exclude."""
    settings = components.settings
    for key, is_set, reason, fix in (
        ("environment", components.recipe.environments, "each rollout of a run plays one", "Remove it"),
        (
            "dynamic_sampling",
            settings.get("dynamic_sampling"),
            "it judges all groups by one reward, and tasks have different ones",
            "Set it to 0",
        ),
        (
            "curriculum",
            value_of(settings, "curriculum") != "none",
            "the difficulties of different tasks have no common order",
            "Set it to none",
        ),
    ):
        if components.recipe.is_mixture and is_set:
            yield Problem(f"{key} does not work with tasks:, since {reason}. {fix}.", "conflicting-keys", key)


def check_curriculum(components: RunComponents) -> Sequence[Problem]:
    """A curriculum needs a column `difficulty` that can be put into an order."""
    single = not components.recipe.is_mixture
    if single and components.train is not None and components.recipe.value("curriculum") != "none":
        easy_first(components.train, 1, seed=0)
    return ()
