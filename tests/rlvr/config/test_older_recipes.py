"""A recipe that was written for an older release: every key that is gone is named, with what to do in its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr.config import schema
from rlvr.config.recipe import SECTIONS, load_recipe
from rlvr.errors import InputError

# Keys that GRPOConfig, ModelConfig or TRL's scripts had between 0.15 and 1.15, and that TRL 1.16 doesn't have; read off
# their sources. Of transformers' TrainingArguments, those that recipes for TRL use.
OF_TRL = [
    "dataset_config", "dataset_name", "dataset_streaming", "dataset_test_split", "dataset_train_split",
    "gradient_checkpointing_use_reentrant", "max_prompt_length", "reward_funcs", "reward_model_name_or_path",
    "torch_dtype", "token_entropy_percentile_threshold", "use_liger_loss", "vllm_device", "vllm_dtype",
    "vllm_enable_prefix_caching", "vllm_guided_decoding_regex", "vllm_max_model_len", "wandb_log_unique_prompts",
]  # fmt: skip
OF_TRANSFORMERS = [
    "evaluation_strategy", "group_by_length", "logging_dir", "no_cuda", "overwrite_output_dir", "push_to_hub_token",
    "save_safetensors", "warmup_ratio",
]  # fmt: skip


@pytest.mark.parametrize("key", [*OF_TRL, *OF_TRANSFORMERS])
def test_a_key_of_an_older_release_is_refused_with_its_successor(key: str) -> None:
    assert key in schema.REMOVED
    assert re.match(r"(Use|Remove it|Give) ?\S", schema.REMOVED[key])


@pytest.mark.parametrize("key", sorted(schema.REMOVED))
def test_what_a_sentence_says_to_use_is_a_key(key: str) -> None:
    """The word behind "use" is a key that the recipe may have, so that nobody is sent from one gone key to the next."""
    for name in re.findall(r"\b[Uu]se ([a-z0-9_]+)", schema.REMOVED[key]):
        words = {"the", "accelerate", "optim"}
        assert name in words or name in SECTIONS or name in schema.fields(), name
        assert name not in schema.REMOVED, name


def test_all_gone_keys_of_a_recipe_are_told_at_once_with_their_lines(write_yaml: Callable[..., Path]) -> None:
    path = write_yaml(
        "model_name_or_path: m\ntask: {name: arithmetic}\nrewards: [{name: math_correctness}]\n"
        "max_prompt_length: 256\nwarmup_ratio: 0.1\nno_cuda: true\n"
    )
    with pytest.raises(InputError) as raised:
        load_recipe(path)
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    for line, key, number in zip(lines, ("max_prompt_length", "warmup_ratio", "no_cuda"), (4, 5, 6), strict=True):
        assert key in line and schema.REMOVED[key] in line and f"line {number}" in line


@pytest.mark.parametrize(
    ("key", "value", "successor", "expected"),
    [
        ("resume", "never", "resume_from_checkpoint", "never"),
        ("reward_faults", "stop", "on_reward_error", "raise"),
        ("reward_faults", "mask", "on_reward_error", "mask"),
        ("reward_deadline_s", 7.0, "reward_timeout_s", 7.0),
        ("reward_budget_s", 7.0, "reward_batch_timeout_s", 7.0),
        ("reward_outage_s", 7.0, "reward_outage_timeout_s", 7.0),
    ],
)
def test_a_former_key_of_ours_still_works_and_a_warning_names_its_successor(
    write_yaml: Callable[..., Path], key: str, value: object, successor: str, expected: object
) -> None:
    good = "model_name_or_path: m\ntask: {name: arithmetic}\nrewards: [{name: math_correctness}]\n"
    for recipe in (
        load_recipe(write_yaml(f"{good}{key}: {value}\n")),
        load_recipe(write_yaml(good), [f"--{key}={value}"]),
    ):
        assert recipe.settings[successor] == expected and key not in recipe.settings
        [warning] = recipe.warnings
        assert key in warning and successor in warning
    assert set(schema.DEPRECATED) == {
        "resume",
        "reward_faults",
        "reward_deadline_s",
        "reward_budget_s",
        "reward_outage_s",
    }


def test_a_resolved_recipe_of_an_earlier_release_loads(write_yaml: Callable[..., Path]) -> None:
    recipe = load_recipe(
        write_yaml(
            "model_name_or_path: m\ntask: {name: arithmetic}\nrewards: [{name: math_correctness}]\nresume: auto\n"
            "reward_faults: stop\nreward_deadline_s: 30.0\nreward_budget_s:\nreward_outage_s: 1800.0\nreward_hedge_s:\n"
        )
    )
    assert not {"reward_hedge_s", *schema.DEPRECATED} & set(recipe.settings)


@pytest.mark.parametrize("key", ["reward_hedge_s", "use_transformers_continuous_batching"])
def test_a_removed_option_is_refused_with_the_reason(write_yaml: Callable[..., Path], key: str) -> None:
    good = "model_name_or_path: m\ntask: {name: arithmetic}\nrewards: [{name: math_correctness}]\n"
    with pytest.raises(InputError) as raised:
        load_recipe(write_yaml(f"{good}{key}: 20\n"))
    assert schema.REMOVED[key] in str(raised.value)
