"""Find and load a model, its tokenizer and an adapter, in the same way for training and evaluation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.config import project, schema
from rlvr.config.recipe import Recipe
from rlvr.data import hub
from rlvr.errors import InputError
from rlvr.modeling import adapters, threads

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_ADAPTER = "adapter_config.json"
# Options of `from_pretrained` that have another name in a recipe.
_RECIPE_KEYS = {"revision": "model_revision", "torch_dtype": "dtype", "quantization_config": "load_in_4bit"}


def find_model(name: str) -> str:
    """Resolve a model's name for `from_pretrained`: a folder, relative to here or to the project, or a hub id.

    Raises:
        InputError: the name can only be a folder, and there is none; or the folder holds an adapter.
    """
    for root in project.roots():
        folder = root / name
        if (folder / _ADAPTER).is_file():
            raise _adapter_instead(name, folder / _ADAPTER)
        if (folder / "config.json").is_file():
            return str(folder)
        if folder.is_dir() and (root == Path.cwd() or name.startswith("models/")):
            raise _model_error("model-not-found", f"model_name_or_path: the folder {folder} holds no config.json.")
        if (root / "models" / name / "config.json").is_file():
            message = f"model_name_or_path: there is no folder {folder}. Did you mean models/{name}?"
            raise _model_error("model-not-found", message)
    if name.startswith((".", "/", "~", "models/")) or name.count("/") > 1:
        parents = [(root / name).parent for root in project.roots()]
        models = [file.parent.name for folder in parents for file in folder.glob("*/config.json")]
        close = schema.nearest(Path(name).name, models)
        searched = " and ".join(map(str, project.roots()))
        hint = f" Did you mean {Path(name).with_name(close[0])}?" if close else ""
        message = f"model_name_or_path: there is no folder {name} (searched in {searched}).{hint}"
        raise _model_error("model-not-found", message)
    return name


def _model_error(kind: str, message: str) -> InputError:
    return InputError(message, kind=kind, key="model_name_or_path")


def _adapter_instead(name: str, file: Path) -> InputError:
    """The error for an adapter in place of a model: transformers would load it with every weight frozen."""
    try:
        base = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError):
        base = None
    return _model_error(
        "adapter-as-model",
        f"model_name_or_path: {name} is an adapter, not a whole model: all its weights would be frozen"
        + (f". For a new adapter of its base, set model_name_or_path: {base}" if base else "")
        + ". To train the adapter further, continue its run (docs/training.md), or merge it into its base "
        "(merge_and_unload of PEFT, then save_pretrained with the tokenizer) and name the merged folder.",
    )


def load_config(recipe: Recipe) -> PretrainedConfig:
    """Load the model's configuration, without its weights, changed by `model_init_kwargs`.

    Raises:
        InputError: the model doesn't exist, needs permission, or can't be downloaded; an option that a recipe key sets,
            or of a wrong type.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    options = recipe.settings.get("model_init_kwargs") or {}
    for name in options:
        if (key := _RECIPE_KEYS.get(name, name)) in schema.fields():
            message = f"model_init_kwargs: {name} is the recipe's key {key}. Set that one."
            raise InputError(message, kind="conflicting-keys", key="model_init_kwargs")
    try:
        with _explain_hub_errors(recipe):
            return AutoConfig.from_pretrained(find_model(_name(recipe)), **{**options, **_hub_options(recipe)})
    except StrictDataclassError as error:
        message = f"model_init_kwargs: {' '.join(str(error).split())}."
        raise InputError(message, kind="wrong-type", key="model_init_kwargs") from error


def load_generation_config(recipe: Recipe, config: PretrainedConfig) -> GenerationConfig:
    """Load the model's generation settings: its generation_config.json, or else its configuration."""
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(find_model(_name(recipe)), **_hub_options(recipe))
    except (OSError, InputError):
        return GenerationConfig.from_model_config(config)


def skeleton(recipe: Recipe, config: PretrainedConfig) -> PreTrainedModel:
    """Build the model without its weights: modules and shapes alone.

    Raises:
        InputError: the model is of a kind that generates no text.
    """
    import torch
    from transformers import AutoModelForCausalLM

    remote = bool(recipe.value("trust_remote_code"))
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=remote)
    except ValueError as error:
        raise _model_error(
            "unsupported-model",
            f"model_name_or_path: {_name(recipe)} is of the type {config.model_type}, which is no causal language "
            f"model in transformers: {adapters.first_line(error)}",
        ) from error


def load_tokenizer(recipe: Recipe, *, chat: bool) -> PreTrainedTokenizerBase:
    """Load the model's tokenizer, padding on the left, with a pad token.

    Args:
        recipe: names the model.
        chat: whether the task's prompts are chat messages, which need a chat template.

    Raises:
        InputError: as `load_config`; no chat template for chat prompts; no end-of-sequence token.
    """
    from transformers import AutoTokenizer

    with _explain_hub_errors(recipe):
        tokenizer = AutoTokenizer.from_pretrained(
            find_model(_name(recipe)), padding_side="left", **_hub_options(recipe)
        )
    if chat and not tokenizer.chat_template:
        raise _model_error(
            "missing-chat-template",
            f"{_name(recipe)} has no chat template, but the task's prompts are chat messages. Base models need "
            "plain-text prompts (task: {style: text} where the task has it). Or train the model's -Instruct variant.",
        )
    if tokenizer.eos_token_id is None:
        raise _model_error(
            "missing-eos-token",
            f"The tokenizer of {_name(recipe)} has no end-of-sequence token, so no completion would ever end. "
            "Set eos_token in its tokenizer_config.json.",
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, *, adapter: Path | str | None = None
) -> PreTrainedModel:
    """Load the model in evaluation mode, quantised as in training, with a saved adapter if one is given.

    Args:
        recipe: names the model, its dtype and its quantisation.
        tokenizer: as `load_tokenizer` returns it; the model gets its pad token.
        adapter: a folder written by `save_pretrained` of a PEFT model, or a whole model that was fully fine-tuned.
    """
    from transformers import AutoModelForCausalLM

    source = find_model(_name(recipe))
    if adapter is not None and not (adapters.find_adapter(str(adapter)) / _ADAPTER).is_file():
        source, adapter = str(adapter), None
    with _explain_hub_errors(recipe):
        own = {"quantization_config": quantization(recipe), "device_map": {"": device(recipe)}}
        try:
            model = AutoModelForCausalLM.from_pretrained(source, **{**model_init_options(recipe), **own})
        except TypeError as error:
            if not recipe.settings.get("model_init_kwargs"):
                raise
            message = f"{_name(recipe)} can't be loaded with these model_init_kwargs: {error}. Correct or remove them."
            raise InputError(message, kind="refused-by-trl", key="model_init_kwargs") from error
    if adapter is not None:
        from peft import PeftModel

        _check_fit(recipe, adapter, model)
        try:
            model = PeftModel.from_pretrained(model, str(adapter))
        except (RuntimeError, ValueError, OSError) as error:
            raise InputError(
                f"The adapter {adapter} doesn't fit {_name(recipe)}: {' '.join(str(error).split())[:300]}",
                kind="adapter-mismatch",
                path=adapter,
            ) from error
    keep_4bit_trainable_on_cpu(model)
    if model.device.type == "cpu":
        threads.set_threads(model.config)
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    return model.eval()


def check_adapter(recipe: Recipe, adapter: Path | str) -> None:
    """Check, without loading a weight, that an adapter fits the recipe's model.

    Raises:
        InputError: it doesn't; names the first tensor that doesn't fit.
    """
    if not (Path(adapter) / _ADAPTER).is_file():
        return
    _check_fit(recipe, adapter, skeleton(recipe, load_config(recipe)))


def _check_fit(recipe: Recipe, adapter: Path | str, model: torch.nn.Module) -> None:
    mismatch = adapters.find_mismatch(Path(adapter), model)
    if mismatch is not None:
        raise InputError(
            f"The adapter {adapter} doesn't fit {_name(recipe)}: {mismatch}. Name the model that it was trained on "
            "(base_model_name_or_path in its adapter_config.json), or another adapter.",
            kind="adapter-mismatch",
            path=adapter,
        )


def device(recipe: Recipe) -> torch.device:
    """The device of this process: its own GPU, or the CPU if there is none or the recipe says `use_cpu`."""
    from accelerate import PartialState

    return PartialState(cpu=bool(recipe.value("use_cpu"))).device


def model_init_options(recipe: Recipe) -> dict[str, Any]:
    """Keyword arguments of `from_pretrained` that training and evaluation share."""
    return {
        **(recipe.settings.get("model_init_kwargs") or {}),
        **_hub_options(recipe),
        "dtype": recipe.value("dtype"),  # TRL's default too
        "attn_implementation": attention(recipe)[0],
    }


def quantization(recipe: Recipe) -> Any:
    """TRL's own `BitsAndBytesConfig` for the recipe, or None."""
    if not recipe.settings.get("load_in_4bit"):
        return None  # as TRL does too, which takes seconds to import
    from trl import ModelConfig, get_quantization_config

    return get_quantization_config(ModelConfig(**model_settings(recipe)))


def model_settings(recipe: Recipe) -> dict[str, Any]:
    """The recipe's keys for TRL's `ModelConfig`, with `attn_implementation: auto` resolved and the model found."""
    settings = recipe.settings_for("model")
    settings["attn_implementation"] = attention(recipe)[0]
    settings["model_name_or_path"] = find_model(_name(recipe))
    return settings


def attention(recipe: Recipe) -> tuple[str | None, str]:
    """Choose the attention implementation; return it and the reason, for the log.

    `auto` (and nothing) means FlashAttention 2 where the package is installed, the GPU has it (compute capability 8.0
    and up) and the weights are 16-bit; else PyTorch's own `scaled_dot_product_attention`.
    """
    wanted = recipe.settings.get("attn_implementation") or "auto"
    if wanted != "auto":
        return wanted, f"{wanted}, as the recipe says"
    import torch
    from transformers.utils import is_flash_attn_2_available

    if recipe.settings.get("use_cpu") or not torch.cuda.is_available():
        return "sdpa", "sdpa (no GPU)"
    if not is_flash_attn_2_available():
        return "sdpa", "sdpa (flash-attn is not installed)"
    if torch.cuda.get_device_capability()[0] < 8:
        return "sdpa", f"sdpa ({torch.cuda.get_device_name()} is too old for FlashAttention 2)"
    if recipe.settings.get("dtype") not in ("bfloat16", "float16"):
        return "sdpa", "sdpa (FlashAttention 2 wants dtype bfloat16 or float16)"
    return "flash_attention_2", "FlashAttention 2"


def keep_4bit_trainable_on_cpu(model: torch.nn.Module) -> None:
    """Keep bitsandbytes from repacking 4-bit weights into an inference-only layout on CPUs with AVX512-bf16.

    There, one forward in evaluation mode repacks every `Linear4bit` for good, and the next training forward fails with
    "a view of a leaf Variable that requires grad is being used in an in-place operation". Seen with bitsandbytes
    0.50.2; tests/rlvr/modeling/test_loading.py shows that training goes on after a forward in evaluation mode. No
    effect on GPUs.
    """
    bnb = sys.modules.get("bitsandbytes")
    if bnb is None:
        return  # no layer of it exists, and it takes seconds to import
    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):
            module.support_avx512bf16_for_cpu = False


def _name(recipe: Recipe) -> str:
    return str(recipe.settings["model_name_or_path"])


def _hub_options(recipe: Recipe) -> dict[str, Any]:
    return {
        "revision": recipe.value("model_revision"),
        "trust_remote_code": bool(recipe.value("trust_remote_code")),
    }


@contextmanager
def _explain_hub_errors(recipe: Recipe) -> Iterator[None]:
    """Turn errors of the hub client into one that names what was tried and the fix."""
    name = _name(recipe)
    if not Path(name).exists():
        hub.try_once()
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError) as error:
        chain = _chain(error)
        kinds = {type(item).__name__ for item in chain}
        if "GatedRepoError" in kinds:
            raise _model_error(
                "gated-model",
                f"The model {name} is gated: accept its terms at https://huggingface.co/{name}, then log in with "
                "`hf auth login`.",
            ) from error
        if kinds & {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectionError", "ConnectError"} or any(
            "couldn't connect" in str(item).lower() or "offline" in str(item).lower() for item in chain
        ):
            raise _model_error(
                "hub-unreachable",
                f"The model {name} is not in the local cache, and the Hugging Face hub could not be reached to "
                "download it. On a machine with a connection run `hf download "
                f"{name} --local-dir models/{name.rpartition('/')[2]}`, copy the folder here and set "
                f"model_name_or_path: models/{name.rpartition('/')[2]}. If HF_HUB_OFFLINE is set, unset it to allow "
                "the download.",
            ) from error
        if kinds & {"RepositoryNotFoundError", "HFValidationError", "RevisionNotFoundError"} or isinstance(
            error, OSError
        ):
            raise _model_error(
                "model-not-found",
                f"The model {name} can't be loaded: there is no such folder and no such public model on the Hugging "
                "Face hub (an adapter is none), or it needs a login (`hf auth login`). The hub client: "
                f"{adapters.first_line(error)}",
            ) from error
        raise


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain
