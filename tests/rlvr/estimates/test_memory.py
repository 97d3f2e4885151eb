"""Each part of a GPU's memory against numbers that were worked out by hand, or against real tensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.estimates import activations
from rlvr.estimates import parameters as counting
from rlvr.estimates.memory import (
    BUCKET,
    GIB,
    MOMENTS,
    GpuMemory,
    adapter_bytes,
    base_weights,
    memory,
    optimizer,
    reference,
)
from rlvr.estimates.run_setup import RunSetup, read_setup
from tests.support import real_memory as real
from tests.support.model_families import real_config

# 2 x (2 x 256 x 256 + 2 x 64 x 256 + 3 x 704 x 256) in matrices, 1000 x 256 in the shared embedding, and in the rest
# 2 x (256 + 64 + 64) biases and 5 x 256 of norms.
CONFIG = real.small()
WHOLE = counting.count(CONFIG)
MATRICES, EMBEDDING, REST = 1_409_024, 256_000, 2_048
TOTAL = MATRICES + EMBEDDING + REST
LORA = {"use_peft": True, "lora_r": 16, "lora_target_modules": "all-linear"}
# 2 x 16 x (2 x (256 + 256) + 2 x (256 + 64) + 3 x (256 + 704))
LORA_COUNT = 145_408


def a_run(processes: int = 1, launcher: str = "python", config: Any = CONFIG, **settings: Any) -> RunSetup:
    settings = {"model_name_or_path": "m", "max_completion_length": 28, "dtype": "bfloat16", **settings}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
    return read_setup(recipe, config, processes, launcher, 100)


def parts(setup: RunSetup, config: Any = CONFIG) -> GpuMemory:
    """The memory of a GPU of 80 GiB."""
    whole = counting.count(config)
    adapter = counting.adapter(whole, config, setup.settings) if setup.peft else None
    return memory(whole, adapter, counting.shape(config, whole), setup, gpu_memory=80 * GIB)


def bytes_of(memory: GpuMemory, name: str) -> float:
    return sum(part.bytes for part in memory.parts if part.name == name)


def test_the_counts_by_hand_are_those_of_the_configuration() -> None:
    assert (sum(one.count for one in WHOLE.matrices), WHOLE.embeddings, WHOLE.rest) == (MATRICES, EMBEDDING, REST)
    assert counting.adapter(WHOLE, CONFIG, LORA).count == LORA_COUNT


@pytest.mark.parametrize(
    ("setup", "expected", "why"),
    [
        (a_run(dtype="auto"), 4 * TOTAL, "the configuration names no type: float32"),
        (a_run(2, "zero2", dtype="float32"), 2 * TOTAL, "DeepSpeed turns all into 16 bits …"),
        (a_run(2, "zero2", dtype="float32", bf16=False), 4 * TOTAL, "… unless the recipe says bf16: false"),
        (a_run(4, "fsdp2", **LORA), TOTAL / 2, "frozen ones keep their type"),
    ],
)
def test_weights(setup: RunSetup, expected: float, why: str) -> None:
    assert base_weights(WHOLE, setup) == expected, why


@pytest.mark.parametrize(
    ("setup", "weights", "gradients", "states", "why"),
    [
        (a_run(dtype="float32"), 4, 4, 8, "full, float32: 16 bytes a parameter"),
        (a_run(), 2, 2, 4, "full, bfloat16: AdamW's moments have the weights' type"),
        (a_run(2, "ddp", dtype="float32"), 4, 8, 8, "DDP's buckets beside the gradients"),
        (a_run(2, "zero2"), 2, 2 / 2, 12 / 2, "ZeRO-2: all but the weights in halves"),
        (a_run(2, "zero3"), 1, 2 / 2, 12 / 2, "ZeRO-3: the weights too"),
        (a_run(4, "zero3"), 0.5, 2 / 4, 12 / 4, "in quarters"),
        (a_run(2, "zero2_offload"), 2, 0, 0, "neither gradients nor optimizer stay"),
        (a_run(2, "fsdp2"), 2, 2, 4, "FSDP2: float32 in halves"),
    ],
)
def test_full_fine_tuning_in_bytes_a_parameter(
    setup: RunSetup, weights: float, gradients: float, states: float, why: str
) -> None:
    result = parts(setup)
    assert bytes_of(result, "weights") == pytest.approx(weights * TOTAL), why
    assert bytes_of(result, "gradients") == pytest.approx(gradients * TOTAL), why
    assert bytes_of(result, "optimizer") == pytest.approx(states * TOTAL), why


@pytest.mark.parametrize(
    ("setup", "weights", "gradients", "states", "why"),
    [
        (a_run(**LORA), 4, 4, 8, "float32 over 16-bit weights: 16 bytes a number"),
        (a_run(2, "zero2", **LORA), 2, 2 / 2, 12 / 2, "DeepSpeed: 16 bits with float32 masters"),
        (a_run(optim="adamw_bnb_8bit", **LORA), 4, 4, 2 + 8 / 256, "two bytes, and two float32 for each 256"),
        (a_run(optim="an_optimizer_of_tomorrow", **LORA), 4, 4, 8, "unknown: as Adam"),
    ],
)
def test_an_adapter_in_bytes_a_parameter(
    setup: RunSetup, weights: float, gradients: float, states: float, why: str
) -> None:
    result = parts(setup)
    assert bytes_of(result, "adapter") == weights * LORA_COUNT, why
    assert bytes_of(result, "gradients") == gradients * LORA_COUNT, why
    assert bytes_of(result, "optimizer") == pytest.approx(states * LORA_COUNT), why


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"dtype": "float32"}, "full, float32"), ({"dtype": "bfloat16"}, "full, bfloat16"), (LORA, "an adapter")],
)
def test_adamw_keeps_as_many_bytes_as_estimated(settings: dict[str, Any], why: str) -> None:
    case = real.Case(CONFIG, {"dtype": "bfloat16", "bf16": True, **settings})
    trained = case.adapter.count if case.adapter else TOTAL
    model = real.build(case)
    assert optimizer(trained, case.setup) == real.optimizer_bytes(model), why
    if case.adapter:
        assert case.adapter.count * adapter_bytes(case.setup) == real.adapter_bytes_of(model), why


@pytest.mark.parametrize(
    ("setup", "expected", "why"),
    [
        (a_run(beta=0.04), 2 * TOTAL, "a second model"),
        (a_run(beta=0.0), 0, "no penalty"),
        (a_run(beta=0.04, **LORA), 0, "the adapter is switched off instead"),
        (a_run(4, "zero3", beta=0.04), TOTAL / 2, "sharded like the model"),
    ],
)
def test_reference_model(setup: RunSetup, expected: float, why: str) -> None:
    assert reference(WHOLE, setup) == expected, why


def test_zero3_holds_the_whole_model_while_it_generates() -> None:
    gathering, not_gathering = parts(a_run(4, "zero3")), parts(a_run(4, "zero3", ds3_gather_for_generation=False))
    assert bytes_of(gathering, "gathered weights") == pytest.approx(2 * TOTAL)
    # Under a billion numbers DeepSpeed keeps all of them alive in any case.
    assert bytes_of(not_gathering, "gathered weights") == pytest.approx(2 * TOTAL)


@pytest.mark.parametrize(
    ("setup", "moments", "why"),
    [
        (a_run(1, "zero3", **LORA), MOMENTS, "stage 3 keeps it, of full size for the smallest adapter"),
        (a_run(2, "zero2"), ("training", "updating"), "stage 2 makes it for a backward pass"),
        (a_run(2, "zero2_offload"), ("training", "updating"), "offloading keeps it on the GPU"),
        (a_run(2, "ddp"), (), "not DeepSpeed"),
    ],
)
def test_deepspeeds_bucket(setup: RunSetup, moments: tuple[str, ...], why: str) -> None:
    result = parts(setup)
    buckets = [part for part in result.parts if part.name == "bucket of gradients"]
    assert sum(part.bytes for part in buckets) == (2 * BUCKET if moments else 0), why
    assert all(part.moments == set(moments) for part in buckets), why


def test_zero3_without_gathering_keeps_a_billion_numbers_at_most() -> None:
    config = real_config("Qwen/Qwen2.5-7B-Instruct")
    result = parts(a_run(8, "zero3", config, ds3_gather_for_generation=False), config)
    assert bytes_of(result, "gathered weights") == pytest.approx(2e9)


def test_vllm_takes_its_share_of_the_gpu_and_no_cache_is_ours() -> None:
    awake = parts(a_run(use_vllm=True, vllm_gpu_memory_utilization=0.4))
    assert bytes_of(awake, "vLLM's share") == 32 * GIB and bytes_of(awake, "KV cache") == 0
    asleep = parts(a_run(use_vllm=True, vllm_enable_sleep_mode=True))
    assert asleep.at("training") < 24 * GIB < asleep.at("generating")
    assert bytes_of(parts(a_run(use_vllm=True, vllm_mode="server")), "vLLM's share") == 0


@pytest.mark.parametrize(
    ("settings", "base", "rank", "why"),
    [
        ({}, 2 * TOTAL, 0, "no adapter"),
        (LORA, 2 * TOTAL, 16, "a slot for an adapter"),
        ({**LORA, "lora_r": 12}, 2 * TOTAL, 16, "vLLM has no slot of rank 12"),
        ({**LORA, "vllm_weight_sync": "merged"}, 2 * TOTAL, 0, "all weights are sent"),
        ({**LORA, "load_in_4bit": True}, 2 * TOTAL, 16, "the numbers that 4-bit weights stand for"),
        (
            {**LORA, "load_in_4bit": True, "vllm_base_quantization": "bitsandbytes"},
            MATRICES * (0.5 + 4 / 64) + 2 * (EMBEDDING + REST),
            16,
            "vLLM quantises, too: half a byte a number, a float32 for each 64",
        ),
    ],
)
def test_vllm_needs_its_base_a_slot_and_a_cache(settings: dict[str, Any], base: float, rank: int, why: str) -> None:
    slot = 2 * rank * LORA_COUNT / 16
    cache = 2 * 2 * 64 * (100 + 28) / 2 * 2 * 8  # keys and values, layers, width, mean tokens, bytes, completions
    batch = 8192 * (3 * 704 + 4 * 256) * 2 + 8 * 1000 * 6  # tensors of 8,192 tokens; logits of 8 completions
    needs = parts(a_run(use_vllm=True, **settings)).vllm_needs
    assert needs - GIB == pytest.approx(base + slot + cache + batch, rel=1e-3), why
    many = parts(a_run(use_vllm=True, gradient_accumulation_steps=100, **settings)).vllm_needs
    assert many - needs == pytest.approx(cache * 7 + 792 * 1000 * 6), "64 completions at once, and logits of 800"
    fewer = parts(a_run(use_vllm=True, vllm_max_num_batched_tokens=4096, **settings)).vllm_needs
    assert needs - fewer == 4096 * (3 * 704 + 4 * 256) * 2
    share = bytes_of(parts(a_run(use_vllm=True, vllm_gpu_memory_utilization=0.01, **settings)), "vLLM's share")
    assert share == needs, "a share that is too small"


def test_weights_are_loaded_in_16_bits_before_they_are_quantised() -> None:
    """7B in 4 bits: 16.2 GiB of a process on an H100 (nvidia-smi, 2026-11-22)."""
    config = real_config("Qwen/Qwen2.5-7B-Instruct")
    result = parts(a_run(config=config, max_completion_length=256, **LORA, load_in_4bit=True), config)
    assert (result.fullest, result.peak / GIB) == ("loading", pytest.approx(16.2, rel=0.05))
    assert parts(a_run(**LORA)).fullest != "loading"


def test_offloading_takes_16_bytes_a_parameter_of_the_machine() -> None:
    assert parts(a_run(4, "zero2_offload")).offloaded * 4 == 16 * TOTAL
    assert parts(a_run(4, "zero2")).offloaded == 0


@pytest.mark.parametrize(
    ("settings", "there", "why"),
    [
        ({"gradient_accumulation_steps": 4}, False, "a generation an update"),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, True, "two generations an update"),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, False, "two updates a generation"),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2, "num_iterations": 2}, False, "2 x 2 = 4"),
    ],
)
def test_gradients_are_there_while_generating_only_within_an_update(
    settings: dict[str, Any], there: bool, why: str
) -> None:
    gradients = next(part for part in parts(a_run(**settings)).parts if part.name == "gradients")
    assert ("generating" in gradients.moments) == there, why


def test_the_cache_is_as_large_as_the_batch_that_is_generated_at_once() -> None:
    one = bytes_of(parts(a_run(per_device_train_batch_size=8)), "KV cache")
    assert one == 2 * 2 * 64 * (100 + 28) * 8 * 2  # keys and values, layers, width, tokens, rows, bytes
    assert bytes_of(parts(a_run(per_device_train_batch_size=8, gradient_accumulation_steps=4)), "KV cache") == 4 * one


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_cache_takes_the_bytes_of_a_real_one(dtype: str) -> None:
    case = real.Case(CONFIG, {"dtype": dtype, "bf16": False})
    assert activations.cache(case.shape, case.setup) == real.cache_bytes(case)


@pytest.mark.slow
@pytest.mark.parametrize("kind", real.KINDS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_are_those_that_autograd_saves(kind: str, attention: str, checkpointing: bool) -> None:
    settings, launcher = real.KINDS[kind]
    made = {**settings, "attn_implementation": attention, "activation_checkpointing": checkpointing}
    result = {}
    for layers in (1, 2):  # the difference is one block: without what lies before the first and after the last
        case = real.Case(real.small(layers), made, launcher, prompt=8, completion=24)
        estimated = activations.kept(case.shape, case.setup, case.adapter)
        result[layers] = (estimated, real.saved_bytes(case))
    (first, saved_first), (second, saved_second) = result[1], result[2]
    assert second - first == pytest.approx(saved_second - saved_first, rel=0.01)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", ["full, float32", pytest.param("LoRA or QLoRA, bfloat16", marks=pytest.mark.slow)])
def test_the_fullest_moment_of_a_real_step_is_within_a_fifth_of_the_estimate(kind: str, checkpointing: bool) -> None:
    settings, launcher = real.KINDS[kind]
    case = real.Case(real.small(), {**settings, "activation_checkpointing": checkpointing}, launcher, rows=2)
    assert real.expected_step(case) == pytest.approx(real.step_peak(case), rel=0.2)


@pytest.mark.parametrize("kind", ["full, float32", "LoRA or QLoRA, bfloat16", "LoRA or QLoRA, bfloat16, DeepSpeed"])
def test_reading_prompts_takes_what_is_estimated(kind: str) -> None:
    settings, launcher = real.KINDS[kind]
    case = real.Case(real.small(), {**settings, "activation_checkpointing": False}, launcher, prompt=128)
    assert real.expected_prefill(case) == pytest.approx(real.prefill_peak(case), rel=0.15)


@pytest.mark.parametrize("tokens", [100, 5000])
def test_the_tile_of_logits_is_trls(tokens: int) -> None:
    case = real.Case(real.small(hidden=128), {"dtype": "float32", "bf16": False}, rows=1, completion=tokens)
    other = tokens * 128 * (4 + 2 * 4)
    estimated = activations.scoring(case.shape, case.setup, head_trains=False) - other
    assert estimated == real.tile_bytes(tokens)


def test_a_longer_run_never_takes_less() -> None:
    base = a_run(per_device_train_batch_size=8, **LORA)
    for larger in (
        replace(base, rows=16),
        replace(base, generated=64, at_once=64),
        replace(base, prompt_tokens=400),
        replace(base, completion_tokens=400),
        replace(base, loaded=4),
    ):
        assert parts(larger).peak > parts(base).peak
    assert torch.tensor(parts(base).peak).isfinite()
