"""A recipe that was written for an older release: every key that is gone is named, with what to do in its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr.config import schema
from rlvr.config.recipe import SECTIONS, load_recipe
from rlvr.errors import InputError

# Keys that GRPOConfig, ModelConfig or TRL's scripts had between 0.14 (the first with GRPO) and 1.15, and
# TrainingArguments between 4.46 and 4.57, and that TRL 1.16 and transformers 5.23 don't have; read off their sources.
OF_TRL = [
    "dataset_config", "dataset_name", "dataset_streaming", "dataset_test_split", "dataset_train_split",
    "ignore_bias_buffers", "gradient_checkpointing_use_reentrant", "max_prompt_length", "reward_funcs",
    "reward_model_name_or_path", "torch_dtype", "token_entropy_percentile_threshold", "use_liger_loss", "vllm_device",
    "vllm_dtype", "vllm_enable_prefix_caching", "vllm_guided_decoding_regex", "vllm_max_model_len",
    "wandb_log_unique_prompts",
]  # fmt: skip
OF_TRANSFORMERS = [
    "adafactor", "dispatch_batches", "evaluation_strategy", "fp16_backend", "fp16_opt_level", "fsdp_min_num_params",
    "fsdp_transformer_layer_cls_to_wrap", "group_by_length", "half_precision_backend", "include_inputs_for_metrics",
    "include_tokens_per_second", "jit_mode_eval", "logging_dir", "mp_parameters", "no_cuda", "overwrite_output_dir",
    "past_index", "per_gpu_eval_batch_size", "per_gpu_train_batch_size", "push_to_hub_model_id",
    "push_to_hub_organization", "push_to_hub_token", "ray_scope", "save_safetensors", "split_batches", "torchdynamo",
    "tpu_metrics_debug", "tpu_num_cores", "use_ipex", "use_legacy_prediction_loop", "use_mps_device", "warmup_ratio",
]  # fmt: skip


@pytest.mark.parametrize("key", [*OF_TRL, *OF_TRANSFORMERS])
def test_a_key_of_an_older_release_is_refused_with_its_successor(key: str) -> None:
    assert key in schema.RENAMED
    assert re.match(r"(use|remove it|give) ?\S", schema.RENAMED[key])


@pytest.mark.parametrize("key", sorted(schema.RENAMED))
def test_what_a_sentence_says_to_use_is_a_key(key: str) -> None:
    """The word behind "use" is a key that the recipe may have, so that nobody is sent from one gone key to the next."""
    for name in re.findall(r"\buse ([a-z0-9_]+)", schema.RENAMED[key]):
        words = {"the", "accelerate", "optim"}
        assert name in words or name in SECTIONS or name in schema.fields(), name
        assert name not in schema.RENAMED, name


def test_all_gone_keys_of_a_recipe_are_told_at_once_with_their_lines(write_yaml: Callable[..., Path]) -> None:
    path = write_yaml(
        "model_name_or_path: m\ntask: {name: arithmetic}\nrewards: [{name: math_correctness}]\n"
        "max_prompt_length: 256\nwarmup_ratio: 0.1\nadafactor: true\n"
    )
    with pytest.raises(InputError) as raised:
        load_recipe(path)
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    for line, key, number in zip(lines, ("max_prompt_length", "warmup_ratio", "adafactor"), (4, 5, 6), strict=True):
        assert key in line and schema.RENAMED[key] in line and f"line {number}" in line


def test_an_empty_removed_key_is_accepted_since_resolved_recipes_of_earlier_runs_hold_some(
    write_yaml: Callable[..., Path],
) -> None:
    text = "model_name_or_path: m\ntask: {name: arithmetic}\nrewards: [{name: math_correctness}]\n"
    assert "reward_hedge_s" not in load_recipe(write_yaml(f"{text}reward_hedge_s: null\n")).settings
    with pytest.raises(InputError):
        load_recipe(write_yaml(f"{text}reward_hedge_s: 60\n"))
