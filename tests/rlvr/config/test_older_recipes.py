"""Recipes of earlier releases, of TRL's and of ours: each former key has a successor or a reason."""

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
    "dataset_config", "dataset_name", "dataset_streaming", "dataset_test_split", "dataset_train_split",
    "gradient_checkpointing_use_reentrant", "max_prompt_length", "reward_funcs", "reward_model_name_or_path",
    "torch_dtype", "token_entropy_percentile_threshold", "use_liger_loss", "vllm_device", "vllm_dtype",
    "vllm_enable_prefix_caching", "vllm_guided_decoding_regex", "vllm_max_model_len", "wandb_log_unique_prompts",
]  # fmt: skip
OF_TRANSFORMERS = [
    "evaluation_strategy", "group_by_length", "logging_dir", "no_cuda", "overwrite_output_dir", "push_to_hub_token",
    "save_safetensors", "warmup_ratio",
]  # fmt: skip


def test_every_key_of_an_earlier_trl_is_refused_with_what_to_do() -> None:
    assert {*OF_TRL, *OF_TRANSFORMERS} <= {*schema.RENAMED, *schema.REMOVED}
    assert all(re.match(r"(Use|Remove it:|Give) \S", advice) for advice in schema.REMOVED.values())


def test_every_successor_is_a_key_of_today() -> None:
    named = {name for advice in schema.REMOVED.values() for name in re.findall(r"Use ([a-z0-9_]+)", advice)}
    successors = {*schema.RENAMED.values(), *schema.DEPRECATED.values(), *(named - {"the"})}
    assert successors <= {*SECTIONS, *schema.fields()}
    assert not successors & {*schema.RENAMED, *schema.REMOVED, *schema.DEPRECATED}


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


@pytest.mark.parametrize("key", ["reward_hedge_s", "use_transformers_continuous_batching"])
def test_a_removed_option_is_refused_with_the_reason(write_yaml: Write, key: str) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write_yaml(f"{GOOD}{key}: 20\n"))
    assert (raised.value.kind, raised.value.key) == ("removed-key", key)
    assert schema.REMOVED[key] in str(raised.value)


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
def test_a_deprecated_key_works_and_a_warning_names_its_successor(
    write_yaml: Write, key: str, value: object, successor: str, expected: object
) -> None:
    in_file = load_recipe(write_yaml(f"{GOOD}{key}: {value}\n"))
    on_command_line = load_recipe(write_yaml(GOOD), [f"--{key}={value}"])
    for recipe, line in ((in_file, 4), (on_command_line, None)):
        assert recipe.settings[successor] == expected and key not in recipe.settings
        [warning] = recipe.warnings
        assert (warning.kind, warning.level) == ("deprecated-key", "warning")
        assert (warning.key, warning.suggestion, warning.line) == (key, successor, line)


def test_the_command_line_wins_over_the_file_whichever_name_either_uses(write_yaml: Write) -> None:
    for in_file, word in (("resume: auto", "--resume_from_checkpoint"), ("resume_from_checkpoint: auto", "--resume")):
        assert load_recipe(write_yaml(f"{GOOD}{in_file}\n"), [word, "x"]).settings["resume_from_checkpoint"] == "x"


def test_both_names_of_a_key_in_one_file_are_refused(write_yaml: Write) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write_yaml(f"{GOOD}resume: auto\nresume_from_checkpoint: never\n"))
    assert (raised.value.kind, raised.value.key) == ("conflicting-keys", "resume")


def test_a_resolved_recipe_of_an_earlier_release_loads(write_yaml: Write) -> None:
    former = "resume: auto\nreward_faults: stop\nreward_deadline_s: 30.0\nreward_budget_s:\nreward_hedge_s:\n"
    recipe = load_recipe(write_yaml(GOOD + former))
    assert not {"reward_hedge_s", *schema.DEPRECATED} & set(recipe.settings)
