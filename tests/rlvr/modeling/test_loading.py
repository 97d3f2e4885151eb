"""The model is found, loaded as in training, and what is missing is said in words."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.modeling import loading as models
from rlvr.modeling.digests import base_digests
from tests.support.input_errors import input_error

TINY = Path(__file__).resolve().parents[3] / "models" / "tiny-arithmetic"


def recipe(name: str | Path = TINY, **settings: Any) -> Recipe:
    settings = {"model_name_or_path": str(name), "use_cpu": True, **settings}
    return Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)


QLORA = {"use_peft": True, "load_in_4bit": True, "use_bnb_nested_quant": True}


def test_a_model_of_the_project_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(models.find_model("models/tiny-arithmetic")) == TINY


def test_the_revision_of_a_model_is_the_commit_that_was_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, commit = tmp_path / "models--owner--name", "0123456789abcdef0123456789abcdef01234567"
    for file, text in (("refs/main", commit), (f"snapshots/{commit}/config.json", "{}")):
        (cached / file).parent.mkdir(parents=True)
        (cached / file).write_text(text)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert base_digests(recipe("owner/name")) == {"revision": commit}


def test_an_evaluation_loads_the_model_with_the_options_of_training() -> None:
    changed = recipe(model_init_kwargs={"attention_dropout": 0.25, "max_position_embeddings": 99, "device_map": "auto"})
    config = models.load_model(changed, models.load_tokenizer(changed, chat=False)).config
    assert (config.attention_dropout, config.max_position_embeddings) == (0.25, 99)
    assert models.load_config(changed).max_position_embeddings == 99


@pytest.mark.parametrize(
    ("name", "said", "why"),
    [
        ("./nowhere", "there is no folder ./nowhere", "a path"),
        ("models/nothing", "there is no folder models/nothing", "a path below models/"),
        ("a/b/c", "there is no folder a/b/c", "no hub id has two slashes"),
        ("models/tiny-aritmetic", "Did you mean models/tiny-arithmetic?", "a letter left out"),
        ("recipes", "holds no config.json", "a folder that is no model"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(name: str, said: str, why: str) -> None:
    with input_error("model-not-found", match=re.escape(said), why=why):
        models.find_model(name)


def test_offline_with_nothing_cached_says_how_to_do_without() -> None:
    with input_error("hub-unreachable", "model_name_or_path", match="hf download Qwen/Qwen2.5-0.5B-not-here") as error:
        models.load_config(recipe("Qwen/Qwen2.5-0.5B-not-here"))
    assert "HF_HUB_OFFLINE" in str(error.value)


def test_a_tokenizer_without_template_pad_or_eos_is_handled(tmp_path: Path) -> None:
    folder = tmp_path / "base-model"
    shutil.copytree(TINY, folder)
    (folder / "chat_template.jinja").unlink()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)

    with input_error("missing-chat-template"):
        models.load_tokenizer(recipe(folder), chat=True)
    loaded = models.load_tokenizer(recipe(folder), chat=False)
    assert loaded.pad_token == loaded.eos_token and loaded.padding_side == "left"

    loaded.eos_token = None
    loaded.save_pretrained(folder)
    with input_error("missing-eos-token"):
        models.load_tokenizer(recipe(folder), chat=False)


def test_attention_is_sdpa_without_a_gpu_and_says_why() -> None:
    assert models.attention(recipe()) == ("sdpa", "sdpa (no GPU)")
    assert models.attention(recipe(attn_implementation="eager"))[0] == "eager"


def test_a_4bit_model_can_train_after_a_forward_in_evaluation_mode() -> None:
    """On CPUs with AVX512-bf16 bitsandbytes would repack the weights for good (see keep_4bit_trainable_on_cpu)."""
    settings = recipe(**QLORA)
    tokenizer = models.load_tokenizer(settings, chat=True)
    model = get_peft_model(models.load_model(settings, tokenizer), LoraConfig(target_modules="all-linear"))
    ids = torch.tensor([[5, 6, 7, 8]])
    model.eval()
    with torch.no_grad():
        before = model(ids).logits
    model.train()
    model(ids, labels=ids).loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.requires_grad]
    assert all(gradient is not None for gradient in gradients)
    assert any(gradient.abs().sum() > 0 for gradient in gradients)
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before)


def test_4bit_weights_really_are_4bit() -> None:
    settings = recipe(**QLORA, dtype="float32")
    model = models.load_model(settings, models.load_tokenizer(settings, chat=True))
    packed = model.model.layers[0].mlp.up_proj.weight
    assert packed.dtype == torch.uint8 and packed.numel() * 2 == 192 * 64


def test_a_folder_that_is_no_adapter_is_refused(tmp_path: Path) -> None:
    settings = recipe()
    with input_error("model-not-found"):
        models.load_model(settings, models.load_tokenizer(settings, chat=True), adapter=tmp_path)
