"""Finding, fingerprinting and refusing adapters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlvr.config.recipe import Recipe, load_recipe
from rlvr.modeling import adapters
from rlvr.modeling import loading as models
from tests.conftest import REPOSITORY, TINY_MODEL
from tests.support.input_errors import input_error

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
A_TENSOR = "base_model.model.model.layers.{layer}.self_attn.{name}.lora_{side}.weight"


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(DEMO, ["--load_in_4bit", "false", "--use_bnb_nested_quant", "false"])


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter of the tiny model, as PEFT writes it: rank 4 on the queries of both layers."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": "models/tiny-arithmetic"})
    )
    tensors = {}
    for layer in range(2):
        tensors[A_TENSOR.format(layer=layer, name="q_proj", side="A")] = torch.randn(4, 64)
        tensors[A_TENSOR.format(layer=layer, name="q_proj", side="B")] = torch.zeros(64, 4)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def change(adapter: Path, how: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(adapter / "adapter_model.safetensors")
    how(tensors)
    save_file(tensors, adapter / "adapter_model.safetensors")


def test_an_adapter_that_fits_is_loaded(recipe: Recipe, adapter: Path) -> None:
    models.check_adapter(recipe, adapter)
    model = models.load_model(recipe, models.load_tokenizer(recipe, chat=True), adapter=adapter)
    assert type(model).__name__ == "PeftModelForCausalLM"


@pytest.mark.parametrize(
    ("changes", "says", "why"),
    [
        ({"1A": (4, 896)}, ("layers.1.self_attn.q_proj.lora_A", "(4, 896)", "(4, 64)"), "of a wider model"),
        ({"0B": (896, 4)}, ("layers.0.self_attn.q_proj.lora_B", "(896, 4)", "(64, 4)"), "the same at its exit"),
        ({"2A": (4, 64)}, ("has no model.layers.2.self_attn.q_proj",), "of a deeper model: PEFT would drop the layer"),
        ({"1A": None, "1B": None}, ("no tensor for model.layers.1.self_attn.q_proj", "smaller"), "of fewer layers"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_with_its_tensor_and_shape(
    recipe: Recipe, adapter: Path, changes: dict[str, tuple[int, int] | None], says: tuple[str, ...], why: str
) -> None:
    """`changes` gives some tensors of the adapter another shape, or removes them (None)."""

    def apply(tensors: dict[str, torch.Tensor]) -> None:
        for (layer, side), shape in changes.items():
            name = A_TENSOR.format(layer=layer, name="q_proj", side=side)
            if shape is None:
                del tensors[name]
            else:
                tensors[name] = torch.zeros(shape)

    change(adapter, apply)
    with input_error("adapter-mismatch") as caught:
        models.check_adapter(recipe, adapter)
    assert all(words in str(caught.value) for words in says), (why, str(caught.value))
    assert "\n" not in str(caught.value), "a sentence"


def test_half_of_a_copied_adapter_is_refused(recipe: Recipe, adapter: Path) -> None:
    file = adapter / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with input_error("adapter-mismatch", match="adapter_model.safetensors"):
        models.check_adapter(recipe, adapter)


def test_a_fingerprint_depends_on_contents_and_not_on_folders(adapter: Path, tmp_path: Path) -> None:
    before = adapters.fingerprint(adapter)
    moved = adapter.rename(tmp_path / "elsewhere")
    (moved / "README.md").write_text("words")
    (moved / "optimizer.json").write_text("{}")
    assert adapters.fingerprint(moved) == before
    change(moved, lambda tensors: tensors[A_TENSOR.format(layer=0, name="q_proj", side="B")].add_(1e-6))
    assert adapters.fingerprint(moved) != before


@pytest.mark.parametrize(
    ("said", "model", "other", "why"),
    [
        ("models/tiny-arithmetic", str(TINY_MODEL), False, "the same model in another folder"),
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct", True, "a sibling of the same shapes"),
        ("", "Qwen/Qwen2.5-0.5B", False, "it doesn't say"),
    ],
)
def test_an_adapter_of_another_base_is_recognised_by_its_name(
    adapter: Path, said: str, model: str, other: bool, why: str
) -> None:
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": said}))
    assert (adapters.named_base(adapter, model) is not None) == other, why


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/nowhere/adapter", "a path"),
        ("runs", "neither a folder nor an id"),
        ("nobody/adapter-x", "an id, and no network"),
    ],
)
def test_an_adapter_that_does_not_exist_is_refused_by_its_name(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with input_error("model-not-found", match=name, why=why):
        adapters.find_adapter(name)


def test_a_run_directory_in_place_of_its_adapter_is_refused_with_the_adapter(adapter: Path) -> None:
    with input_error("model-not-found", match=rf"Did you mean {adapter}\?"):
        adapters.find_adapter(str(adapter.parent))
    assert adapters.find_adapter(str(adapter)) == adapter
