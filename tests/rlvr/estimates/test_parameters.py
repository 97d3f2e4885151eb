"""Parameters are counted exactly, from the configuration alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, MixtralConfig, ViTConfig

from rlvr.errors import InputError
from rlvr.estimates import parameters as counting
from tests.support import real_memory as real
from tests.support.model_families import real_config

MODEL = Path(__file__).resolve().parents[3] / "models" / "tiny-arithmetic"
ALL_SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.mark.parametrize(
    ("model", "total", "why"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768, "as its weights' index says"),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, "the same"),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, "embeddings that are not shared"),
    ],
)
def test_published_models_have_as_many_parameters_as_published(model: str, total: int, why: str) -> None:
    assert counting.count(real_config(model)).total == total, why


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (AutoConfig.from_pretrained(MODEL), "the model that ships here"),
        (real.small(), "grouped queries, shared embeddings"),
        (
            LlamaConfig(
                hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=99
            ),
            "no biases, two embeddings",
        ),
        (GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=99), "Conv1D for linear layers, positions as weights"),
        (
            MixtralConfig(
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                vocab_size=99,
                num_local_experts=4,
            ),
            "experts are no linear layers",
        ),
    ],
)
def test_counts_are_those_of_the_real_model(config: Any, why: str) -> None:
    counted = counting.count(config)
    model = AutoModelForCausalLM.from_config(config)
    assert counted.total == sum(parameter.numel() for parameter in model.parameters()), why
    assert counted.total == sum(matrix.count for matrix in counted.matrices) + counted.embeddings + counted.rest


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"lora_target_modules": ALL_SEVEN}, "names"),
        ({"lora_target_modules": ["q_proj"]}, "a list of one, which TRL takes for a regular expression: no match"),
        ({"lora_target_modules": "all-linear"}, "all but the output embedding"),
        ({"lora_target_modules": r".*layers\.1\..*_proj"}, "a regular expression, one layer of two"),
        ({}, "PEFT's own choice for the architecture"),
        ({"lora_target_modules": ALL_SEVEN, "lora_r": 7}, "an odd rank"),
        ({"lora_target_modules": ["q_proj", "v_proj"], "use_dora": True}, "a magnitude for each output"),
        ({"lora_target_modules": ["q_proj", "v_proj"], "lora_modules_to_save": ["norm"]}, "copies that are trained"),
    ],
)
def test_an_adapter_is_counted_as_peft_makes_it(settings: dict[str, Any], why: str) -> None:
    config = real.small()
    wanted = settings.get("lora_target_modules")
    peft = LoraConfig(
        r=settings.get("lora_r", 16),
        target_modules=wanted[0] if isinstance(wanted, list) and len(wanted) == 1 else wanted,
        use_dora=settings.get("use_dora", False),
        modules_to_save=settings.get("lora_modules_to_save"),
        task_type="CAUSAL_LM",
    )
    counted = counting.adapter(counting.count(config), config, settings)
    try:
        model = get_peft_model(AutoModelForCausalLM.from_config(config), peft)
    except ValueError:  # PEFT: no module of that name
        assert counted.count == 0, why
        return
    assert counted.count == sum(one.numel() for one in model.parameters() if one.requires_grad), why


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["uint8", "bfloat16"])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("hidden", [256, 384])
def test_4_bit_weights_take_the_bytes_that_bitsandbytes_takes(hidden: int, nested: bool, storage: str) -> None:
    settings = {"load_in_4bit": True, "use_bnb_nested_quant": nested, "bnb_4bit_quant_storage": storage}
    config = real.small(hidden=hidden)
    model = real.quantise(AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16), settings, torch.bfloat16)
    counted = counting.count(config)
    packed, scales = counting.bytes_in_4_bits(counted, nested=nested)
    assert packed + scales + 2 * (counted.embeddings + counted.rest) == real.weight_bytes(model)


@pytest.mark.slow
def test_an_architecture_that_is_no_language_model_is_said_so() -> None:
    with pytest.raises(InputError, match="vit"):
        counting.count(ViTConfig())
