"""Recipes of earlier releases of TRL: each former key has a successor or a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr.config import schema
from rlvr.config.recipe import SECTIONS, RecipeError, load_recipe

Write = Callable[..., Path]

GOOD = "model_name_or_path: m\ntask: {name: arithmetic}\nrewards: [{name: math_correctness}]\n"

# Keys that GRPOConfig, ModelConfig or TRL's scripts had between 0.15 and 1.15, and that TRL 1.16 doesn't have; read off
# their sources. Of transformers' TrainingArguments, those that recipes for TRL use.
OF_TRL = [
    "dataset_config",
    "dataset_name",
    "dataset_streaming",
    "dataset_test_split",
    "dataset_train_split",
    "gradient_checkpointing_use_reentrant",
    "max_prompt_length",
    "reward_funcs",
    "reward_model_name_or_path",
    "torch_dtype",
    "token_entropy_percentile_threshold",
    "use_liger_loss",
    "vllm_device",
    "vllm_dtype",
    "vllm_enable_prefix_caching",
    "vllm_guided_decoding_regex",
    "vllm_max_model_len",
    "wandb_log_unique_prompts",
]
OF_TRANSFORMERS = [
    "evaluation_strategy",
    "group_by_length",
    "logging_dir",
    "no_cuda",
    "overwrite_output_dir",
    "push_to_hub_token",
    "save_safetensors",
    "warmup_ratio",
]


def test_every_key_of_an_earlier_trl_is_refused_with_what_to_do() -> None:
    assert {*OF_TRL, *OF_TRANSFORMERS} <= {*schema.RENAMED, *schema.REMOVED}
    assert all(re.match(r"(Use|Remove it:|Give) \S", advice) for advice in schema.REMOVED.values())


def test_every_successor_is_a_key_of_today() -> None:
    named = {name for advice in schema.REMOVED.values() for name in re.findall(r"Use ([a-z0-9_]+)", advice)}
    successors = {*schema.RENAMED.values(), *(named - {"the"})}
    assert successors <= {*SECTIONS, *schema.fields()}
    assert not successors & {*schema.RENAMED, *schema.REMOVED}


def test_one_pass_reports_all_removed_keys_with_their_lines(write_yaml: Write) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write_yaml(f"{GOOD}max_prompt_length: 256\nwarmup_ratio: 0.1\nno_cuda: true\n"))
    found = [(problem.kind, problem.key, problem.line) for problem in raised.value.problems]
    assert found == [
        ("removed-key", "max_prompt_length", 4),
        ("removed-key", "warmup_ratio", 5),
        ("removed-key", "no_cuda", 6),
    ]
    assert raised.value.problems[2].suggestion == "use_cpu"


@pytest.mark.parametrize("key", ["use_liger_loss", "use_transformers_continuous_batching"])
def test_a_removed_option_is_refused_with_the_reason(write_yaml: Write, key: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write_yaml(f"{GOOD}{key}: 20\n"))
    assert (raised.value.kind, raised.value.key) == ("removed-key", key)
    assert schema.REMOVED[key] in str(raised.value)
