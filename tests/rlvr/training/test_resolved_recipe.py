"""The recipe.yaml of a run holds every value that was in force, and is a recipe that gives the same run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from ruamel.yaml import YAML
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, ModelConfig, get_peft_config

import run_grpo
from rlvr.artifacts.identity import Identity
from rlvr.config import schema
from rlvr.config.recipe import Recipe, load_recipe
from rlvr.config.recipe_writer import write_recipe
from rlvr.modeling.loading import model_init_options, model_settings
from rlvr.training.trl_config import resolved_settings, training_config
from tests.conftest import REPOSITORY, TINY_MODEL

RECIPES = sorted((REPOSITORY / "recipes").glob("*.yaml"))
DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
CPU = ["--use_cpu", "true", "--bf16", "false", "--use_vllm", "false"]


def written(recipe: Recipe, path: Path) -> Path:
    write_recipe(recipe, path, resolved_settings(recipe, training_config(recipe, recipe.rewards, ())))
    return path


def values(recipe: Recipe) -> dict[str, Any]:
    config = training_config(recipe, recipe.rewards, ())
    return {field.name: getattr(config, field.name) for field in fields(config)}


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_written_recipe_is_the_same_recipe(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path, CPU)
    if recipe.settings.get("lora_target_modules") == "all-linear":  # which they are is read from the model
        recipe = load_recipe(path, [*CPU, "--model_name_or_path", str(TINY_MODEL)])
    again = load_recipe(written(recipe, tmp_path / "recipe.yaml"))
    assert values(again) == values(recipe)
    assert ModelConfig(**model_settings(again)) == ModelConfig(**model_settings(recipe))
    assert model_init_options(again) == model_init_options(recipe)
    assert (again.tasks, again.rewards, again.evaluation) == (recipe.tasks, recipe.rewards, recipe.evaluation)
    rows = Dataset.from_dict({"prompt": ["p"]})
    identities = [Identity.of(one, rows, 1, "python") for one in (recipe, again)]
    assert identities[0].differences(identities[1]) == identities[1].differences(identities[0]) == []


@pytest.mark.parametrize(
    ("metric", "name", "greater", "mode"),
    [
        ("rewards/math_correctness/mean", "math_correctness", True, "max"),
        ("eval_accuracy", "eval_accuracy", True, "max"),
        ("cut_off", "cut_off", False, "min"),
        ("eval_easy/unscored", "eval_easy/unscored", False, "min"),
    ],
)
def test_the_best_checkpoint_and_the_scheduler_follow_the_metric(
    metric: str, name: str, greater: bool, mode: str
) -> None:
    words = [*CPU, "--metric_for_best_model", metric, "--lr_scheduler_type", "reduce_lr_on_plateau"]
    recipe = load_recipe(DEMO, [*words, "--eval_strategy", "steps", "--lr_scheduler_kwargs", "{factor: 0.5}"])
    config = training_config(recipe, recipe.rewards, ())
    assert (config.metric_for_best_model, config.greater_is_better) == (name, greater)
    assert config.lr_scheduler_kwargs == {"mode": mode, "factor": 0.5}


def test_a_written_recipe_has_the_values_of_every_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    path = written(load_recipe(DEMO), tmp_path / "recipe.yaml")
    content = YAML(typ="safe").load(path)
    resolved = content.pop("resolved")
    keys = {field.name for config in (GRPOConfig, ModelConfig) for field in fields(config)}
    assert keys - (schema.REFUSED - schema.FIXED) <= {*content, *resolved["training"]}
    assert {field.name for field in fields(LoraConfig)} - {"runtime_config"} <= set(resolved["lora"])
    assert resolved["lora"]["r"] == content["lora_r"] and resolved["lora"]["bias"] == "none"
    assert resolved["quantization"]["bnb_4bit_quant_storage"] == "uint8"
    assert (resolved["training"]["generation_batch_size"], content["top_p"]) == (64, 1.0)
    text = path.read_text()
    assert "hf_verysecret" not in text and "hub_token" not in text and str(REPOSITORY) not in text


@pytest.mark.parametrize("words", [(), ("--lora_target_modules", "null"), ("--lora_target_modules", "v_proj,o_proj")])
def test_a_written_recipe_lists_the_modules_that_are_adapted(words: tuple[str, ...], tmp_path: Path) -> None:
    recipe = load_recipe(DEMO, words)
    adapter = get_peft_model(
        AutoModelForCausalLM.from_pretrained(TINY_MODEL), get_peft_config(ModelConfig(**model_settings(recipe)))
    )
    adapted = {name.rpartition(".")[2] for name in adapter.targeted_module_names}
    lora = YAML(typ="safe").load(written(recipe, tmp_path / "recipe.yaml"))["resolved"]["lora"]
    assert set(lora["target_modules"]) == adapted and len(adapted) == (2 if words else 7)


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_the_recipe_of_a_run_gives_the_same_run(tmp_path: Path) -> None:
    words = ["--max_steps", "1", "--warmup_steps", "0", "--evaluation", "null", "--report_to", "none"]
    runs = [tmp_path / "one", tmp_path / "two"]
    assert run_grpo.main(["--config", str(DEMO), "--output_dir", str(runs[0]), *words]) == 0
    assert run_grpo.main(["--config", str(runs[0] / "recipe.yaml"), "--output_dir", str(runs[1])]) == 0
    recipes = [YAML(typ="safe").load(run / "recipe.yaml") | {"output_dir": None} for run in runs]
    assert recipes[0] == recipes[1]
    adapters = [(run / "adapter" / "adapter_model.safetensors").read_bytes() for run in runs]
    assert adapters[0] == adapters[1]
