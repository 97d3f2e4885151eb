"""What the recipe says of the model's modules and sampling, held against the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import Recipe, RewardSpec, TaskSpec
from rlvr.errors import InputError
from rlvr.modeling.generation import LEFT_OPEN, TOLD, own_settings_aside
from rlvr.preflight.lora_targets import target_faults
from rlvr.preflight.sampling_notes import sampling_notes

MODEL = Path(__file__).resolve().parents[3] / "models" / "tiny-arithmetic"


def a_recipe(settings: dict[str, Any]) -> Recipe:
    known = {"model_name_or_path": str(MODEL), "output_dir": "no-such-run", **settings}
    return Recipe(Path("r.yaml"), TaskSpec("t"), (RewardSpec("r"),), None, known)


def test_nothing_of_the_models_own_settings_comes_through_and_all_of_it_is_told() -> None:
    """Held against transformers' own merging: what we set aside is all that it would take, and nothing else."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    values: dict[str, Any] = {**dict.fromkeys((*LEFT_OPEN, *TOLD), 0.5), "num_beams": 4, "top_k": 20}
    values |= {"suppress_tokens": [5], "forced_bos_token_id": 6, "forced_eos_token_id": 6}
    del values["watermarking_config"]  # an object of its own kind
    loaded = AutoModelForCausalLM.from_pretrained(MODEL)
    loaded.generation_config = GenerationConfig(**values)
    as_trl = {**TOLD, "min_p": None, "do_sample": True, "max_new_tokens": 16, "cache_implementation": None}

    def taken() -> set[str]:
        merged, _ = loaded._prepare_generation_config(GenerationConfig(**as_trl))
        return {name for name in values if getattr(merged, name) == values[name]}

    assert taken() == values.keys() - TOLD.keys()
    with own_settings_aside(loaded):
        assert not taken()
    assert taken() == values.keys() - TOLD.keys(), "the model is left as it was"

    [note] = sampling_notes(a_recipe({}), loaded.generation_config)
    assert all(f"{name} {values[name]}" in note for name in values)


@pytest.mark.parametrize(
    ("file", "settings", "said", "why"),
    [
        ({}, {}, [], "a model that asks for nothing"),
        ({"eos_token_id": [1, 2], "do_sample": True, "temperature": 1.0}, {}, [], "what TRL does anyway"),
        ({"temperature": 0.6}, {"temperature": 0.6}, [], "the recipe says the same"),
        ({"temperature": 0.6}, {}, ["temperature 0.6 (generation_config.json) is not used"], "another temperature"),
        ({"min_p": 0.05}, {}, ["sampled with min_p 0.0"], "TRL leaves it open, we don't"),
        ({"min_p": 0.05}, {"min_p": 0.1}, ["sampled with min_p 0.1"], "the recipe says another"),
        ({"min_p": 0.05}, {"generation_kwargs": {"min_p": 0.05}}, [], "the recipe says the same in another place"),
        ({"suppress_tokens": [5]}, {}, ["sampled with nothing of the kind"], "no neutral value"),
    ],
)
def test_the_models_own_generation_settings_are_told_where_they_matter(
    file: dict[str, Any], settings: dict[str, Any], said: list[str], why: str
) -> None:
    from transformers import GenerationConfig

    notes = sampling_notes(a_recipe(settings), GenerationConfig(**file))
    assert len(notes) == len(said), why
    assert all(words in note for words, note in zip(said, notes, strict=True)), why


def test_an_adapter_on_the_hub_is_told_from_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the hub's client would have downloaded it: nothing is asked of the network."""
    import huggingface_hub.constants

    from rlvr.modeling import loading

    kept = tmp_path / "models--someone--adapter"
    (kept / "snapshots" / "1").mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("1")
    adapter = kept / "snapshots" / "1" / "adapter_config.json"
    adapter.write_text('{"base_model_name_or_path": "Qwen/Qwen2.5-0.5B"}')
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="someone/adapter is an adapter.*model_name_or_path: Qwen/Qwen2.5-0.5B for"):
        loading.load_config(a_recipe({"model_name_or_path": "someone/adapter"}))
    adapter.unlink()
    with pytest.raises(InputError, match="could not be reached to download"):
        loading.load_config(a_recipe({"model_name_or_path": "someone/adapter"}))


@pytest.mark.parametrize(
    ("settings", "said", "why"),
    [
        ({"lora_target_modules": "all-linear"}, None, "all but the head"),
        ({"lora_target_modules": None}, None, "PEFT knows Qwen2's"),
        ({"lora_target_modules": ["q_proj", "v_proj"]}, None, "names"),
        ({"lora_target_modules": [".*_proj"]}, None, "a pattern"),
        ({"lora_target_modules": ["q_proj", "v_prj"]}, "no module v_prj (did you mean v_proj?)", "passed over by PEFT"),
        ({"lora_target_modules": ["q_proj"]}, "alone is a pattern of whole names", "a list of one is none for TRL"),
        ({"lora_target_modules": "*proj"}, "is no regular expression", "no pattern"),
        ({"lora_target_modules": ["q_proj", "self_attn"]}, "self_attn is no linear layer", "a block"),
        ({"lora_target_modules": "model.*"}, "no linear layer", "all blocks"),
        ({"lora_target_modules": r".*(_proj|head)"}, "a LoRA on lm_head", "the head among others"),
        (
            {"lora_target_modules": ["lm_head"], "trust_remote_code": True},
            "a LoRA on lm_head",
            "code of the model's own",
        ),
        ({"lora_modules_to_save": ["lm_hed"]}, "no module lm_hed", "passed over by PEFT"),
        ({"lora_modules_to_save": ["norm"]}, None, "a module that there is"),
    ],
)
def test_an_adapter_that_would_not_sit_where_the_recipe_says_is_refused(
    settings: dict[str, Any], said: str | None, why: str
) -> None:
    from transformers import AutoConfig

    faults = target_faults(a_recipe({"use_peft": True, **settings}), AutoConfig.from_pretrained(MODEL))
    assert len(faults) == (said is not None) and all(str(said) in fault for fault in faults), why


def test_a_model_that_writes_no_text_is_refused(tmp_path: Path) -> None:
    from transformers import AutoConfig

    [fault] = target_faults(a_recipe({}), AutoConfig.for_model("clip"))
    assert "is of the kind clip" in fault and "writes text" in fault
