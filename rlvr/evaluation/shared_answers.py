"""Keep the base model's answers on disk for other runs, so that a sweep measures its base once.

A set of answers is used as a whole or not at all. Even a greedy answer depends on the batch that it was generated in:
the batch decides the rounding. So the key of a set is made from all of its batches and all that decides an answer.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from rlvr import console
from rlvr.artifacts.directory import installed, is_sealed, machine, read_json, seal, versions
from rlvr.artifacts.sealed_json import file_digest
from rlvr.config.recipe import Recipe
from rlvr.evaluation.engines import Decoding
from rlvr.modeling import loading, threads
from rlvr.modeling.digests import base_digests
from rlvr.scoring.source_files import project_digest

FORMAT = 1  # of the files; another format is never read
FOLDER = "GRPO_RECIPES_ANSWERS"  # the environment variable that names the folder
MAX_BYTES = 256 * 2**20  # of all sets together
_PACKAGES = ("tokenizers", "flash-attn", "kernels")  # besides the libraries in versions.json
_ADAPTER_KEYS = ("use_peft", "lora_", "use_rslora", "use_dora")
_UNTRACKED_KEYS = ("trust_remote_code", "model_init_kwargs")  # may name code or weights that no digest covers

Line = dict[str, Any]


def shared_folder() -> Path | None:
    """Return $GRPO_RECIPES_ANSWERS, else a folder in the user's cache; None if the variable is empty.

    It is not in the judge's cache: compilers of judged programs can read that.
    """
    chosen = os.environ.get(FOLDER)
    if chosen is not None:
        return Path(chosen) if chosen else None
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return None if cache.startswith("~") else Path(cache) / "grpo-recipes-answers"  # a user without a home


def conditions(recipe: Recipe, decoding: Decoding) -> dict[str, Any] | None:
    """Return all that decides the base's answers on this process beside its batches; None if that can't be told.

    Environments may read anything, so their conversations are never shared.
    """
    base = base_digests(recipe)
    if not base or recipe.environments or any(recipe.settings.get(key) for key in _UNTRACKED_KEYS):
        return None
    generation_config = Path(loading.find_model(str(recipe.settings["model_name_or_path"])), "generation_config.json")
    model = {k: v for k, v in recipe.settings_for("model").items() if not k.startswith(_ADAPTER_KEYS)}
    return {
        "base": base,
        "generation_config": file_digest(generation_config) if generation_config.is_file() else None,
        "model": {**model, "attn_implementation": loading.attention(recipe)[0]},
        "decoding": {**asdict(decoding), "seed": None if decoding.sampling is None else decoding.seed},
        "device": _device(recipe),
        "versions": {**versions(), **installed(_PACKAGES)},
        "project": project_digest(),
    }


def _device(recipe: Recipe) -> list[Any]:
    """The kind of this process's device, and the settings of the process that change its rounding."""
    import torch

    device = loading.device(recipe)
    if device.type == "cuda":
        matmul = torch.backends.cuda.matmul
        precision = getattr(matmul, "fp32_precision", None) or matmul.allow_tf32  # torch 2.8 has only the latter
        return [torch.cuda.get_device_name(device), precision]
    cpu = [machine(gpus=False)["cpu"], torch.backends.cpu.get_cpu_capability()]
    return [device.type, *cpu, os.environ.get("OMP_NUM_THREADS"), threads.available_cores()]


class SharedAnswers:
    """One set of answers in the shared folder. Neither reading nor writing it ever fails a run.

    Args:
        key: all that decides the answers.
    """

    def __init__(self, key: Any) -> None:
        text = json.dumps(key, sort_keys=True, default=str)
        self._key = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        folder = shared_folder()
        self._path = None if folder is None else folder / f"answers-{self._key}.json"

    def read(self) -> list[Line] | None:
        """Return the set; None if it is missing, damaged or unreadable."""
        if self._path is None:
            return None
        content = read_json(self._path)
        if content.get("sha256") is None or not is_sealed(content):
            return None
        if (content.get("format"), content.get("key")) != (FORMAT, self._key):
            return None
        with suppress(OSError):  # a folder that may only be read
            os.utime(self._path)
        lines: list[Line] = content["answers"]
        console.info(f"  {len(lines):,} answers of the base come from {self._path}")
        return lines

    def write(self, lines: list[Line]) -> None:
        """Write the set, whole or not at all, and remove the sets that were used least recently beyond MAX_BYTES."""
        if self._path is None:
            return
        text = json.dumps(seal({"key": self._key, "answers": lines}, FORMAT))
        try:
            folder = self._path.parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Several runs may write the same set at a time, each with a name of its own. That of a killed run looks
            # like a set to `_remove_oldest`.
            with NamedTemporaryFile("w", prefix="answers-", suffix=".tmp", dir=folder, delete=False) as file:
                try:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                    Path(file.name).replace(self._path)
                except OSError:
                    Path(file.name).unlink(missing_ok=True)
                    raise
            _remove_oldest(folder)
        except OSError as error:
            console.error(f"  Other runs can't use this run's base answers: {self._path}: {error.strerror}.")


def _remove_oldest(folder: Path) -> None:
    found = []
    for path in folder.glob("answers-*"):
        with suppress(FileNotFoundError):  # another run has removed it
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > MAX_BYTES:
            path.unlink(missing_ok=True)
