"""A trained model as `save_pretrained` left it: where it is, what is in it, and whether it fits its base.

It is an adapter (adapter_config.json beside its weights), or a whole model (config.json): fully trained, or merged.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.errors import InputError

if TYPE_CHECKING:
    import torch

CONFIGS = ("adapter_config.json", "config.json")
WEIGHTS = (".safetensors", ".bin", ".pt")
_PREFIX = "base_model.model."


def find_adapter(name: str) -> Path:
    """The folder of an adapter or a whole model: a folder that is there, or the download of a hub id.

    Raises:
        InputError: it is neither, or the hub can't give it.
    """
    folder = Path(name)
    if folder.is_dir():
        if not any((folder / config).is_file() for config in CONFIGS):
            inside = [path.parent for config in CONFIGS for path in sorted(folder.glob(f"*/{config}"))]
            hint = f" Did you mean {inside[0]}?" if inside else ""
            raise InputError(
                f"{name} holds neither an adapter (adapter_config.json) nor a model (config.json).{hint}",
                kind="model-not-found",
                key="--adapter",
                path=folder,
            )
        return folder
    if folder.exists() or name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise InputError(
            f"There is no adapter or model {name}: it is neither a folder nor an id on the hub (owner/name).",
            kind="model-not-found",
            key="--adapter",
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", *(f"*{suffix}" for suffix in WEIGHTS)]))
    except Exception as error:  # of some twenty kinds, by way of the hub's, the network's and the cache's
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"There is no folder {name}, and the Hugging Face hub did not provide it ({first}). Name the folder of a "
            "run, such as runs/NAME/adapter. For an id on the hub: check that it exists, and unset HF_HUB_OFFLINE.",
            kind="model-not-found",
            key="--adapter",
        ) from error


def fingerprint(folder: Path) -> str:
    """A checksum of what decides a model's answers: its configuration and its weights, whatever the folder's name."""
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.name in CONFIGS or (path.suffix in WEIGHTS and path.name != "training_args.bin")
    ]
    return _checksum(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files))


@lru_cache(maxsize=16)
def _checksum(files: tuple[tuple[Path, int, int], ...]) -> str:
    """Of the files' names and contents; a file that hasn't changed is not read twice."""
    digest = hashlib.blake2b(digest_size=12)
    for path, size, _ in files:
        digest.update(f"\0{path.name} {size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def named_base(folder: Path, model: str) -> str | None:
    """The base that an adapter says it was trained on, if that is another than `model`."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    said = str(config.get("base_model_name_or_path") or "")
    # The same model lies in other folders on other machines: its last name is what can be compared.
    last = [name.rstrip("/").rpartition("/")[2].lower() for name in (said, model)]
    return said if said and last[0] != last[1] else None


def misfit(folder: Path, base: torch.nn.Module) -> str | None:
    """Why an adapter can't be put onto a base: the first of its tensors that has no place there; or None.

    Looked at are the names and shapes of its tensors, which stand in the head of its file.
    """
    from safetensors import SafetensorError, safe_open

    file = folder / "adapter_model.safetensors"
    if not file.is_file():
        return None  # an older format, which PEFT reads by itself
    try:
        with safe_open(file, framework="pt") as opened:
            shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        return f"its file adapter_model.safetensors can't be read ({error}): it may be half of a copy"
    modules = dict(base.named_modules())
    for name, shape in shapes.items():
        place, _, part = name.removeprefix(_PREFIX).partition(".lora_")
        side = part[:1]
        if side not in ("A", "B"):
            continue
        module = modules.get(place)
        if module is None:
            return f"it has a tensor {name}, but the model has no {place}"
        wide = getattr(module, "in_features" if side == "A" else "out_features", None)
        axis = 1 if side == "A" else 0
        if isinstance(wide, int) and len(shape) == 2 and shape[axis] != wide:
            needed = (shape[0], wide) if side == "A" else (wide, shape[1])
            return f"its tensor {name} has the shape {shape}, where the model needs {needed}"
    return _missing(folder, shapes, modules)


def _missing(folder: Path, shapes: dict[str, tuple[int, ...]], modules: dict[str, torch.nn.Module]) -> str | None:
    """A layer that the adapter's own configuration names and its file has nothing for; PEFT would leave it as it is."""
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    targets = config.get("target_modules")
    partial = config.get("layers_to_transform") or config.get("exclude_modules")
    if config.get("peft_type") != "LORA" or not isinstance(targets, list) or partial:
        return None
    there = {name.removeprefix(_PREFIX).partition(".lora_")[0] for name in shapes}
    for place in modules:
        if any(place == target or place.endswith(f".{target}") for target in targets) and place not in there:
            return f"it has no tensor for {place}, which its adapter_config.json names: it is of a smaller model"
    return None
