"""Hours and dollars by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.estimates import parameters as counting
from rlvr.estimates.machines import GPUS, Gpu, find_machine
from rlvr.estimates.run_setup import RunSetup, read_setup
from rlvr.estimates.run_time import FAST, SLOW, RunTime, Utilisation, generation_seconds, run_time, training_seconds
from tests.support import real_memory as real
from tests.support.model_families import real_config

CONFIG = real.small()
WHOLE = counting.count(CONFIG)
SHAPE = counting.shape(CONFIG, WHOLE)
# As test_memory.py counts them: matrices, norms and biases, and the output embedding.
MATRICES, REST, HEAD = 1_409_024, 2_048, 256_000
# A GPU that moves a GB and does a GFLOP a second, and a program that uses all of it.
PLAIN = Gpu("plain", 1, 1, 0.001)
PERFECT = Utilisation(1, 1, 0, 0, adapter_launch_ms=0, vllm_adapter_launch_ms=0, length=1)


def a_run(config: Any = CONFIG, prompt: int = 100, **settings: Any) -> RunSetup:
    settings = {"max_completion_length": 28, "dtype": "bfloat16", "activation_checkpointing": False, **settings}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
    return read_setup(recipe, config, 1, "python", prompt)


def test_a_token_of_vllm_takes_as_long_as_moving_weights_and_cache() -> None:
    swift = Gpu("all arithmetic", 1000, 1, 1e9)
    filled = 2 * 2 * 64 * 8 * 2 * (100 + 28 / 2)  # the cache is half full of completions on average
    by_hand = 28 * (2 * (MATRICES + REST + HEAD) + filled) / 1e9
    setup = a_run(use_vllm=True, load_in_4bit=True)  # vLLM's base is in 16 bits in any case
    assert generation_seconds(WHOLE, None, SHAPE, setup, swift, PERFECT) == pytest.approx(by_hand)


def test_transformers_moves_the_cache_several_times_and_the_logits() -> None:
    swift = Gpu("all arithmetic", 1, 1, 1e9)
    filled = 2 * 2 * 64 * 8 * 2 * (100 + 28 / 2)
    logits = 8 * 1000 * (2 + 12)
    for attention, passes in (("sdpa", 2 + 2 * 4), ("flash_attention_2", 3)):  # four query heads for a key
        by_hand = 28 * (2 * (MATRICES + REST + HEAD) + passes * filled + 2 * logits) / 1e9
        setup = a_run(attn_implementation=attention)
        assert generation_seconds(WHOLE, None, SHAPE, setup, swift, PERFECT) == pytest.approx(by_hand)


def test_a_token_takes_at_least_as_long_as_starting_its_kernels() -> None:
    slow_start = Utilisation(1, 1, 1000, 10, adapter_launch_ms=500, vllm_adapter_launch_ms=5, length=0.5)
    swift = Gpu("all", 1, 1e9, 1e9)
    for settings, seconds in (
        ({}, 28 * 1.0),  # until the longest completion ends
        ({"per_device_generation_batch_size": 3}, 3 * 28 * 1.0),  # three rounds
        ({"use_peft": True}, 28 * 1.5),
        ({"use_vllm": True, "vllm_gpu_memory_utilization": 1000}, 14 * 0.01),  # the mean length
        ({"use_vllm": True, "vllm_gpu_memory_utilization": 1000, "use_peft": True}, 14 * 0.015),
        ({"use_vllm": True, "vllm_gpu_memory_utilization": 1e-9}, 8 * 14 * 0.01),  # one after the other: eight waves
    ):
        setup = a_run(**settings)
        assert generation_seconds(WHOLE, None, SHAPE, setup, swift, slow_start) == pytest.approx(2 * seconds)
    # Forward, and a backward pass of two; an old-probability pass with vLLM.
    assert training_seconds(WHOLE, None, SHAPE, a_run(), swift, slow_start) == pytest.approx(3 * 2 * 1.0)


# Seconds measured on an H100 with QLoRA of rank 16 on Qwen2.5-0.5B's shape, 2026-11-22 and 2026-11-26.
@pytest.mark.parametrize(
    ("rows", "prompt", "tokens", "seconds"), [(512, 206, 400, 34.0), (16, 300, 256, 16.0)], ids=["512", "16"]
)
def test_the_middle_of_the_range_is_near_what_was_measured(rows: int, prompt: int, tokens: int, seconds: float) -> None:
    config = real_config("Qwen/Qwen2.5-0.5B-Instruct")
    whole = counting.count(config)
    settings = {"load_in_4bit": True, "use_peft": True, "lora_target_modules": "all-linear"}
    settings |= {"max_completion_length": tokens, "per_device_train_batch_size": rows}
    setup = a_run(config, prompt, **settings)
    shape, gpu = counting.shape(config, whole), GPUS["H100-80GB"]
    estimated = [generation_seconds(whole, None, shape, setup, gpu, pace) for pace in (FAST, SLOW)]
    assert sum(estimated) / 2 == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "passes", "head_passes", "why"),
    [
        ({}, 3, 4, "forward, and twice that backward: 6 N D; each tile of logits once more"),
        ({"activation_checkpointing": True}, 4, 4, "a forward again: 8 N D"),
        ({"use_peft": True, "lora_target_modules": "all-linear"}, 2, 3, "no gradients of frozen weights: 4 N D"),
        ({"beta": 0.04}, 4, 5, "the reference's forward"),
        ({"steps_per_generation": 2}, 4, 5, "old probabilities, since a generation serves two updates"),
        ({"gradient_accumulation_steps": 2}, 3, 4, "generations and updates in step: none needed"),
    ],
)
def test_training_in_operations(settings: dict[str, Any], passes: int, head_passes: int, why: str) -> None:
    setup = a_run(**settings)
    adapter = counting.adapter(WHOLE, CONFIG, settings) if setup.peft else None
    tokens = 8 * (100 + 28)
    attention = 2 * (2 * 2 * 256 * (100 + 28) / 2) * tokens  # two products, of which half is masked
    body, head = 2 * (MATRICES + REST) * tokens + attention, 2 * HEAD * 8 * 28
    by_hand = (body * passes + head * head_passes) / 1e9
    assert training_seconds(WHOLE, adapter, SHAPE, setup, PLAIN, PERFECT) == pytest.approx(by_hand), why


@pytest.mark.parametrize(
    ("settings", "width", "why"),
    [
        ({"gradient_accumulation_steps": 2}, 14, "similar completions share a micro-batch"),
        ({}, 28, "a micro-batch is a whole update, with its longest completion"),
        ({"gradient_accumulation_steps": 2, "loss_type": "bnpo"}, 28, "its rows are not sorted"),
    ],
)
def test_a_micro_batch_is_as_wide_as_its_longest_completion(settings: dict[str, Any], width: int, why: str) -> None:
    half = Utilisation(1, 1, 0, 0, adapter_launch_ms=0, vllm_adapter_launch_ms=0, length=0.5)
    found = training_seconds(WHOLE, None, SHAPE, a_run(**settings), PLAIN, half)
    whole = {**settings, "max_completion_length": width}
    assert found == pytest.approx(training_seconds(WHOLE, None, SHAPE, a_run(**whole), PLAIN, PERFECT)), why


def test_twice_the_updates_take_twice_as_long_and_the_range_is_one() -> None:
    once, twice = (run_time(WHOLE, None, SHAPE, a_run(), GPUS["H100-80GB"], steps=steps) for steps in (50, 100))
    assert once is not None and twice is not None
    assert twice.total == pytest.approx([2 * hour for hour in once.total])
    assert once.total[0] < once.total[1]
    assert all(generating < total for generating, total in zip(once.generating, once.total, strict=True))


def test_a_generation_that_serves_two_updates_is_made_half_as_often() -> None:
    every, other = a_run(), a_run(steps_per_generation=2, per_device_train_batch_size=8)
    gpu = GPUS["L4-24GB"]
    first, second = (run_time(WHOLE, None, SHAPE, setup, gpu, steps=100) for setup in (every, other))
    assert first is not None and second is not None
    assert second.generating[0] == pytest.approx(first.generating[0] / 2, rel=0.05)


def test_an_unknown_gpu_has_no_hours() -> None:
    assert run_time(WHOLE, None, SHAPE, a_run(), Gpu("of tomorrow", 500, 0, 0), steps=10) is None


@pytest.mark.parametrize(
    ("machine", "processes", "dollars", "why"),
    [
        ("ml.g6e.12xlarge", 4, (13.12, 26.24), "one machine"),
        ("ml.g6e.12xlarge", 2, (13.12, 26.24), "rented whole"),
        ("ml.g6e.12xlarge", 8, (26.24, 52.48), "two"),
        ("ml.p5en.48xlarge", 8, None, "no price was found"),
        ("H100", 1, None, "a GPU has no price"),
    ],
)
def test_dollars(machine: str, processes: int, dollars: tuple[float, float] | None, why: str) -> None:
    estimated = RunTime((1.0, 2.0), (0.5, 1.0)).dollars(find_machine(machine), processes)
    assert estimated == (pytest.approx(dollars) if dollars else None), why
