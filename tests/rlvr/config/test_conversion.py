"""Configurations of the AWS sample, open-r1 and `trl grpo` become recipes; a foreign file names its successors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import run_grpo
from rlvr.config import conversion, foreign_keys, schema
from rlvr.config.conversion import convert
from rlvr.config.recipe import SECTIONS, RecipeError, load_recipe
from rlvr.errors import InputError
from scripts import convert_recipe
from tests.support.cases import cases
from tests.support.input_errors import input_error

Write = Callable[..., Path]

AWS = """\
# Model arguments
model_name_or_path: Qwen/Qwen2.5-0.5B
tokenizer_name_or_path: Qwen/Qwen2.5-0.5B
model_revision: main
torch_dtype: bfloat16
attn_implementation: flash_attention_2
bf16: true
tf32: true
output_dir: /opt/ml/model/Qwen2.5-0.5B-RL-VR-GRPO
# Dataset arguments
train_dataset_id_or_path: /opt/ml/input/data/train/dataset.json
test_dataset_id_or_path: /opt/ml/input/data/val/dataset.json
dataset_splits: 'train'
max_seq_length: 2048
log_level: info
packing: true
use_peft: true
load_in_4bit: true
lora_target_modules: ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"]
# important
lora_modules_to_save: ["lm_head", "embed_tokens"] # you might need to change this
lora_r: 16
lora_alpha: 16
num_train_epochs: 2
per_device_train_batch_size: 16
gradient_accumulation_steps: 2
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: True
learning_rate: 1.84e-4 # found by a search
lr_scheduler_type: cosine
warmup_ratio: 0.1
logging_strategy: steps
logging_steps: 5
report_to:
- mlflow
# Hub
save_strategy: "no"
seed: 42
"""
OPEN_R1 = """\
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
torch_dtype: bfloat16
attn_implementation: flash_attention_2
dataset_name: some/problems
dataset_prompt_column: problem
system_prompt: "Think.\\nThen answer: <answer>…</answer>"
chat_template: "{% for message in messages %}…{% endfor %}"
use_vllm: true
vllm_device: auto
gradient_accumulation_steps: 4
gradient_checkpointing: true
max_prompt_length: 512
max_completion_length: 64
num_generations: 4
per_device_train_batch_size: 8
scale_rewards: false
overwrite_output_dir: true
reward_funcs: [accuracy, format, tag_count, repetition_penalty, cosine]
reward_weights: [1.0, 0.5, 0.25, 0.1, 0.1]
repetition_n_grams: 4
repetition_max_penalty: -0.5
cosine_max_len: 900
cosine_max_value_wrong: -1
save_steps: 0.05
wandb_project: open-r1
warmup_ratio: 0.03
"""
TRL = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: some/problems
dataset_test_split: validation
reward_funcs:
  - accuracy_reward
  - think_format_reward
  - get_soft_overlong_punishment
  - my_lib.rewards.custom_reward
num_processes: 4
learning_rate: 1e-5
per_device_train_batch_size: 8
"""
CODEFU = """\
model_id: "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"
per_device_train_batch_size: 64
learning_rate: 1e-5
data_max_response_length: 20480
actor_rollout_ref_actor_kl_loss_coef: 0.001
"""
OPENRLHF = "pretrain: m\nn_samples_per_prompt: 8\nmax_len: 9\nsave_steps: 4\n"
VERL = """\
actor_rollout_ref:
  actor:
    kl_loss_coef: 0.001
    optim: {lr: 1e-6, betas: [0.9, 0.999]}
trainer: {total_epochs: 2, balance_batch: true}
"""


def loaded(write_yaml: Write, text: str) -> tuple[conversion.Conversion, dict[str, Any]]:
    """A conversion, and the content of its recipe, which has no fault."""
    done = convert(write_yaml(text, "theirs.yaml"))
    return done, load_recipe(write_yaml(done.text, "ours.yaml")).as_dict()


def test_the_aws_sample_keeps_its_values_and_its_trl_defaults(write_yaml: Write) -> None:
    done, recipe = loaded(write_yaml, AWS)
    expected = {
        "dtype": "bfloat16",
        "attn_implementation": "auto",
        "warmup_steps": 0.1,
        "learning_rate": 1.84e-4,
        "activation_checkpointing": True,
        "activation_checkpointing_kwargs": {"use_reentrant": True},
        "use_bnb_nested_quant": True,
        "bnb_4bit_quant_storage": "bfloat16",
        "lora_r": 16,
        "report_to": ["mlflow"],
        "max_completion_length": 256,
        "beta": 0.04,
        "loss_type": "bnpo",
        "save_strategy": "no",
        "use_bias_correction_kl": False,
    }
    assert {key: recipe[key] for key in expected} == expected
    assert recipe["task"]["path"].endswith("train/dataset.json") and recipe["task"]["stop_strings"] == ["\nQuestion:"]
    assert [(reward["name"], reward["weight"]) for reward in recipe["rewards"]] == [
        ("math_correctness", 1.0),
        ("answer_format", 0.5),
    ]
    assert {change.key for change in done.dropped} == {
        "tokenizer_name_or_path",
        "output_dir",
        "max_seq_length",
        "log_level",
        "packing",
        "lora_modules_to_save",
    }


def test_the_kl_term_of_trl_0_18_is_kept_where_there_is_one(write_yaml: Write) -> None:
    for beta, kept in (("0.04", {"use_bias_correction_kl": False}), ("0.0", {})):
        _, recipe = loaded(write_yaml, f"{AWS}\nbeta: {beta}\n")
        assert {key: recipe[key] for key in recipe if key == "use_bias_correction_kl"} == kept
    assert "use_bias_correction_kl" not in loaded(write_yaml, TRL)[1], "its TRL has the ratio"


def test_comments_say_where_a_value_comes_from(write_yaml: Write) -> None:
    lines = convert(write_yaml(AWS)).text.splitlines()
    assert any(line.startswith("learning_rate: 1.84e-4 ") and line.endswith("# found by a search") for line in lines)
    assert any(line.startswith("warmup_steps: 0.1 ") and "warmup_ratio" in line for line in lines)
    assert any(line.startswith("# packing: ") for line in lines), "what was dropped stays on record"
    assert not any("important" in line or "# Hub" in line for line in lines), "comments on other lines are left behind"


def test_open_r1_rewards_become_ours_with_their_weights_and_options(write_yaml: Write) -> None:
    done, recipe = loaded(write_yaml, OPEN_R1)
    assert [(one["name"], one["weight"], one.get("options")) for one in recipe["rewards"]] == [
        ("math_correctness", 1.0, None),
        ("tag_format", 0.75, {"answer": True}),  # format and tag_count, of which format has more weight
        ("repetition", 0.1, {"n": 4, "max_penalty": 0.5}),
        (
            "cosine_length",
            0.1,
            {
                "max_len": 900,
                "min_value_wrong": 0.0,
                "max_value_wrong": -1.0,
                "min_value_correct": 0.5,
                "max_value_correct": 1.0,
                "unit": "characters",
            },
        ),
    ]
    (merged,) = [change.text for change in done.open_points if change.key == "rewards"]
    assert "format and tag_count are one entry" in merged and "options of format" in merged
    assert recipe["task"]["columns"] == {"prompt": "problem", "final_answer": "solution"}
    assert recipe["task"]["system"].startswith("Think.\n") and recipe["task"]["style"] == "chat"
    assert recipe["scale_rewards"] is False and recipe["save_steps"] == 0.05 and recipe["vllm_mode"] == "colocate"
    assert {change.key for change in done.dropped} == {
        "chat_template",
        "vllm_device",
        "max_prompt_length",
        "overwrite_output_dir",
        "wandb_project",
    }


def test_trls_rewards_and_import_paths_are_kept(write_yaml: Write) -> None:
    done, recipe = loaded(write_yaml, TRL)
    assert [(one["name"], one.get("options")) for one in recipe["rewards"]] == [
        ("math_correctness", None),
        ("tag_format", None),
        ("reasoning_length", {"longest": 1280, "ramp": 256}),
        ("my_lib.rewards.custom_reward", None),
    ]
    assert "loss_type" not in recipe and "style" not in recipe["task"], "its TRL has our defaults"
    assert {change.key for change in done.dropped} == {"num_processes"}
    assert {"task", "task.columns"} <= {change.key for change in done.open_points}, "a split of another name"


@pytest.mark.parametrize(
    ("text", "key", "expected", "why"),
    [
        ("datasets: [{path: json, data_files: my.jsonl}]", "path", "my.jsonl", "a file for a builder of datasets"),
        ("datasets: [{path: a/b, name: main, split: train_100}]", "train_split", "train_100", "a split of its own"),
        ("dataset_mixture: {datasets: [{id: a/b}, {id: c/d}], test_split_size: 0.2}", "path", "a/b", "the first"),
        ("dataset_mixture: {datasets: [{id: a/b}], test_split_size: 0.2}", "test_fraction", 0.2, "a share held out"),
        ("dataset_name: a/b\ndataset_config: main", "subset", "main", "a configuration"),
    ],
)
def test_data_of_any_form_becomes_a_task(write_yaml: Write, text: str, key: str, expected: Any, why: str) -> None:
    _, recipe = loaded(write_yaml, f"model_name_or_path: m\n{text}\nreward_funcs: [accuracy_reward]\n")
    assert recipe["task"][key] == expected, why


@pytest.mark.parametrize(
    ("reward", "extra", "name", "options"),
    [
        ("binary_code", "", "code_execution", {"all_or_nothing": True}),
        ("cf_code", "", "code_execution", {"all_or_nothing": True}),
        ("cf_code", "code_eval_scoring_mode: partial", "code_execution", None),
        ("code_format", "code_language: cpp", "code_format", {"language": "cpp"}),
        ("soft_overlong_punishment", "", "reasoning_length", {"longest": 16384, "ramp": 4096}),
    ],
)
def test_a_reward_of_open_r1_has_the_options_of_its_keys(
    write_yaml: Write, reward: str, extra: str, name: str, options: dict[str, Any] | None
) -> None:
    conversion, recipe = loaded(
        write_yaml, f"model_name_or_path: m\ndataset_name: a/b\nreward_funcs: [{reward}]\n{extra}\ncosine_max_len: 9\n"
    )
    assert [(one["name"], one.get("options")) for one in recipe["rewards"]] == [(name, options)]
    assert "cosine_max_len" in [change.key for change in conversion.dropped]
    assert extra.partition(":")[0] in [change.key for change in conversion.mapped] or not extra


@pytest.mark.slow
@pytest.mark.parametrize("text", [AWS, OPEN_R1, TRL.replace("  - my_lib.rewards.custom_reward\n", "")])
def test_a_converted_recipe_passes_the_check_with_local_data(write_yaml: Write, tmp_path: Path, text: str) -> None:
    rows = [
        {
            "problem": f"What is {number} + 1?",
            "prompt": f"Question: What is {number} + 1?\nSolution:",
            "solution": str(number + 1),
            "final_answer": f"{number + 1:,}",
        }
        for number in range(900, 1100)
    ]
    for name, part in (("train.json", rows[:150]), ("test.json", rows[150:])):
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in part))
    ours = tmp_path / "ours.yaml"
    assert convert_recipe.main([str(write_yaml(text)), "--out", str(ours)]) == 0
    words = ["--config", str(ours), "--check", "--model_name_or_path", "models/tiny-arithmetic", "--use_cpu", "true"]
    words += ["--task.path", str(tmp_path / "train.json"), "--task.test_path", str(tmp_path / "test.json")]
    words += ["--tf32", "false", "--use_vllm", "false", "--report_to", "none", "--output_dir", str(tmp_path / "run")]
    assert run_grpo.main(words) == 0


def test_a_value_of_another_type_is_dropped_with_the_fault(write_yaml: Write) -> None:
    done, recipe = loaded(write_yaml, TRL.replace("learning_rate: 1e-5", 'learning_rate: "1e-5"') + "torch_dtype: 16\n")
    assert {change.key for change in done.dropped} == {"num_processes", "learning_rate", "torch_dtype"}
    assert not {"learning_rate", "dtype"} & recipe.keys()


def test_an_existing_file_is_not_overwritten(write_yaml: Write, tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("mine")
    assert convert_recipe.main([str(write_yaml(TRL)), "--out", str(tmp_path / "ours.yaml")]) == 2
    assert (tmp_path / "ours.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CODEFU, "recipes/codefu-deepseek-r1"),
        ("model_name_or_path: m\ntask: {name: gsm8k}\nreward_funcs: [accuracy]\n", "already"),
        ("model_name_or_path: m\n", "no key that marks one"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_the_way_on(write_yaml: Write, text: str, words: str) -> None:
    with input_error("not-convertible", match=words):
        convert(write_yaml(text))


# ----------------------------------------------------------------------------------------------------------------------
# A foreign file as a recipe


@pytest.mark.parametrize(("file", "successors"), cases(__file__, "foreign files"))
def test_a_foreign_file_names_its_program_and_the_successor_of_each_key(
    write_yaml: Write, file: str, successors: dict[str, str | None]
) -> None:
    path = write_yaml(globals()[file])
    with pytest.raises(RecipeError) as raised:
        load_recipe(path)
    first, *others = raised.value.problems
    assert first.kind == "foreign-recipe"
    assert ("scripts/convert_recipe.py" in first.message) == (file not in ("CODEFU", "VERL", "OPENRLHF"))
    assert {problem.key or "": problem.suggestion for problem in others} == successors
    for problem in others:
        assert "Did you mean" not in problem.message and problem.kind in ("foreign-key", "removed-key")
        assert problem.key is None or problem.line is not None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("train_grpo_7b_zero2.sh", "set -x\ndeepspeed --pretrain m\n", "maps the flags of OpenRLHF"),
        ("run", "#!/bin/bash\npython3 -m verl.trainer.main_ppo data.seed=1\n", "a shell script"),
        ("zero2.json", '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}', "zero2_offload.yaml"),
        ("zero3.yaml", "compute_environment: LOCAL_MACHINE\nnum_processes: 8\n", "accelerate launch --config_file"),
    ],
)
def test_a_file_for_a_launcher_is_one_problem_that_says_what_to_do(
    write_yaml: Write, name: str, text: str, words: str
) -> None:
    with pytest.raises(InputError, match=words) as raised:
        load_recipe(write_yaml(text, name))
    assert len(raised.value.problems) == 1


def test_keys_of_verl_without_a_successor_are_one_problem(write_yaml: Write) -> None:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write_yaml(VERL))
    (rest,) = (problem for problem in raised.value.problems[1:] if problem.key is None)
    assert "trainer.balance_batch" in rest.message and "actor_rollout_ref.actor.optim.betas" in rest.message


def test_a_foreign_key_in_a_recipe_of_ours_names_its_successor_too(write_yaml: Write) -> None:
    ours = "model_name_or_path: m\ntask: {name: arithmetic}\nrewards: [{name: math_correctness}]\n"
    with input_error("foreign-key", "packing") as error:
        load_recipe(write_yaml(f"{ours}packing: true\n"))
    assert [problem.line for problem in error.value.problems] == [4]


def test_every_successor_of_a_foreign_key_is_a_key_of_today() -> None:
    for program in foreign_keys.programs():
        for key, advice in program.keys.items():
            words = advice.split()
            named = words[0] if len(words) == 1 else words[1].strip(":,") if words[0] == "Use" else None
            plain = {"the", "an", "option", "column", "style"}
            assert named is None or named in {*schema.fields(), *SECTIONS, *plain}, (key, advice)
            assert len(words) == 1 or words[0] in ("Use", "Set") or advice.startswith("Remove it: "), (key, advice)
            assert named not in foreign_keys.removed(), (key, advice)
