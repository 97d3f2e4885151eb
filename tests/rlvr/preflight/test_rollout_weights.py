"""`rollout_weights: auto` takes a merged copy only where it can be made and fits, and continues what a run had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoConfig

from rlvr.config.recipe import load_recipe
from rlvr.data.task import Task
from rlvr.preflight import rollout_weights
from rlvr.preflight.components import RunComponents, TargetMachine
from rlvr.preflight.rollout_weights import as_merged, check_rollout_weights, choose_weights
from tests.conftest import REPOSITORY
from tests.support.model_families import real_config

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
GPU = REPOSITORY / "recipes" / "gsm8k-qwen2.5-7b-instruct-qlora.yaml"


def components(*words: str, **more: Any) -> RunComponents:
    return RunComponents(load_recipe(DEMO, words), **more)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("--use_dora", "true"), "use_dora"),
        (("--lora_modules_to_save", "lm_head"), "lora_modules_to_save"),
        (("--lora_target_parameters", "x"), "lora_target_parameters"),
        (("--lora_dropout", "0.1"), "lora_dropout"),
        (("--lora_target_modules", "q_proj,embed_tokens"), "lora_target_modules"),
        (("--use_peft", "false", "--load_in_4bit", "false"), "rollout_weights"),
    ],
)
def test_what_cannot_be_merged_is_refused_and_auto_takes_the_adapter(words: tuple[str, ...], key: str) -> None:
    (problem,) = check_rollout_weights(components(*words, "--rollout_weights", "merged"))
    assert (problem.kind, problem.key, problem.level) == ("conflicting-keys", key, "error")
    assert not list(check_rollout_weights(components(*words)))
    if key != "rollout_weights":
        assert choose_weights(components(*words)) == ("adapter", f"{key} can't be merged")


def test_vllm_does_not_ask() -> None:
    assert not list(check_rollout_weights(components("--rollout_weights", "merged", "--rollouts", "vllm")))


@pytest.mark.parametrize(("free", "chosen"), [(2**30, "auto"), (2**20, "adapter")])
def test_on_a_cpu_the_copies_take_a_quarter_of_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, free: int, chosen: str
) -> None:
    monkeypatch.setattr(rollout_weights.psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    config = AutoConfig.from_pretrained(REPOSITORY / "models" / "tiny-arithmetic")
    assert choose_weights(components(config=config))[0] == chosen


@pytest.mark.parametrize(("machine", "chosen"), [("ml.g6e.xlarge", "auto"), ("ml.g6.xlarge", "adapter")])
def test_on_a_gpu_the_estimate_with_a_copy_must_fit(machine: str, chosen: str) -> None:
    config = real_config("Qwen/Qwen2.5-7B-Instruct")
    rows = Dataset.from_dict({"prompt": ["x"] * 1000})
    task = Task(train=rows, validation=rows.select([]), test=rows.select([]))
    whole = RunComponents(load_recipe(GPU, []), TargetMachine(machine=machine), 1, task=task, config=config)
    assert choose_weights(whole)[0] == chosen
    merged = whole.estimate(as_merged(whole.recipe))
    assert merged is not None
    parts = {part.name: part for part in merged.memory.parts}
    assert parts["merged copy"].bytes > 2 * 7.6e9 and parts["merged copy"].moments == {"generating"}


def test_a_continuation_keeps_what_its_run_had() -> None:
    assert choose_weights(components(), earlier="adapter")[0] == "adapter"
    assert choose_weights(components("--lora_dropout", "0.1"), earlier="auto")[0] == "auto"
