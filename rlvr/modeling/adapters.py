"""Find a saved adapter or model, fingerprint it, and check that it fits its base.

An adapter has adapter_config.json beside its weights; a whole model (fully trained, or merged) has config.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.config.recipe import value_of
from rlvr.data import hub
from rlvr.errors import InputError

if TYPE_CHECKING:
    import torch

CONFIGS = ("adapter_config.json", "config.json")
WEIGHTS = (".safetensors", ".bin", ".pt")
TOKENIZER_FILES = (
    *("tokenizer*", "chat_template*", "additional_chat_templates/*", "special_tokens_map.json", "added_tokens.json"),
    *("vocab*", "merges.txt", "*.model"),
)
_PREFIX = "base_model.model."


def find_adapter(name: str) -> Path:
    """Find the folder of an adapter or a whole model: a local folder, or the download of a hub id.

    Raises:
        InputError: it is neither, or the hub doesn't provide it.
    """
    folder = Path(name)
    if folder.is_dir():
        if not any((folder / config).is_file() for config in CONFIGS):
            inside = [path.parent for config in CONFIGS for path in sorted(folder.glob(f"*/{config}"))]
            hint = f" Did you mean {inside[0]}?" if inside else ""
            raise _not_found(f"{name} holds neither an adapter (adapter_config.json) nor a model (config.json).{hint}")
        return folder
    if folder.exists() or name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise _not_found(
            f"There is no adapter or model {name}: it is neither a folder nor an id on the hub (owner/name)."
        )
    from huggingface_hub import snapshot_download

    hub.try_once()
    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", *(f"*{suffix}" for suffix in WEIGHTS)]))
    except Exception as error:  # some twenty classes, of the hub client, the network and the cache
        raise _not_found(
            f"There is no folder {name}, and the Hugging Face hub did not provide it ({first_line(error)}). Name the "
            "folder of a run, such as runs/NAME/adapter. For an id on the hub: check that it exists, and unset "
            "HF_HUB_OFFLINE."
        ) from error


def _not_found(message: str) -> InputError:
    return InputError(message, kind="model-not-found", key="--adapter")


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def fingerprint(folder: Path) -> str:
    """A checksum of a model's configuration and weights, whatever the folder's name."""
    return _checksum_of(
        path
        for path in folder.iterdir()
        if path.name in CONFIGS or (path.suffix in WEIGHTS and path.name != "training_args.bin")
    )


def tokenizer_fingerprint(folder: Path) -> str:
    """A checksum of a model's tokenizer and chat templates, whatever the folder's name."""
    files = {path for pattern in TOKENIZER_FILES for path in folder.glob(pattern) if path.is_file()}
    return _checksum_of(files)


def _checksum_of(files: Iterable[Path]) -> str:
    return _checksum(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(files)))


@lru_cache(maxsize=16)
def _checksum(files: tuple[tuple[Path, int, int], ...]) -> str:
    """A checksum of names and contents; an unchanged file is not read twice."""
    digest = hashlib.blake2b(digest_size=12)
    for path, size, _ in files:
        digest.update(f"\0{path.name} {size}\0".encode())
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def named_base(folder: Path, model: str) -> str | None:
    """The base that an adapter names, if it is not `model`."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    base = str(config.get("base_model_name_or_path") or "")
    # The same model has other folders on other machines, so only the last part of the name is compared.
    last = [name.rstrip("/").rpartition("/")[2].lower() for name in (base, model)]
    return base if base and last[0] != last[1] else None


def find_mismatch(folder: Path, base: torch.nn.Module) -> str | None:
    """Describe the first tensor of an adapter that doesn't fit a base; None if all fit.

    Names and shapes are read from the head of its file.
    """
    from safetensors import SafetensorError, safe_open

    file = folder / "adapter_model.safetensors"
    if not file.is_file():
        return None  # an older format, which PEFT reads by itself
    try:
        with safe_open(file, framework="pt") as opened:
            shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        return f"its file adapter_model.safetensors can't be read ({error}): its copy may be incomplete"
    modules = dict(base.named_modules())
    for name, shape in shapes.items():
        layer, _, part = name.removeprefix(_PREFIX).partition(".lora_")
        side = part[:1]
        if side not in ("A", "B"):
            continue
        module = modules.get(layer)
        if module is None:
            return f"it has a tensor {name}, but the model has no {layer}"
        width = getattr(module, "in_features" if side == "A" else "out_features", None)
        axis = 1 if side == "A" else 0
        if isinstance(width, int) and len(shape) == 2 and shape[axis] != width:
            needed = (shape[0], width) if side == "A" else (width, shape[1])
            return f"its tensor {name} has the shape {shape}, where the model needs {needed}"
    return _find_missing(folder, shapes, modules)


def _find_missing(folder: Path, shapes: dict[str, tuple[int, ...]], modules: dict[str, torch.nn.Module]) -> str | None:
    """Describe a layer that the adapter's configuration names but its file lacks; PEFT would skip it silently."""
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    targets = config.get("target_modules")
    partial = config.get("layers_to_transform") or config.get("exclude_modules")
    if config.get("peft_type") != "LORA" or not isinstance(targets, list) or partial:
        return None
    layers = {name.removeprefix(_PREFIX).partition(".lora_")[0] for name in shapes}
    for module in modules:
        is_target = any(module == target or module.endswith(f".{target}") for target in targets)
        if is_target and module not in layers:
            return f"it has no tensor for {module}, which its adapter_config.json names: it is of a smaller model"
    return None


def unmergeable(settings: Mapping[str, Any]) -> str | None:
    """The recipe key that keeps rollouts from a merged copy of the model; None if there is none.

    With dropout training samples and scores with dropout, which a copy has not. A copy ties the embeddings that the
    base ties, so it can't hold an adapter of one of them.
    """
    for key in ("use_dora", "lora_modules_to_save", "lora_target_parameters", "lora_dropout"):
        if value_of(settings, key):
            return key
    targets = settings.get("lora_target_modules") or ()
    return "lora_target_modules" if {"embed_tokens", "lm_head"}.intersection(targets) else None
