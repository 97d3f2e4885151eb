"""Write weights: an adapter merged into its base, as the run computed it, or the adapter alone.

A quantised base is dequantised before the merge, and not replaced by the weights from before quantisation: the adapter
was trained on the quantised ones, and on others it answers differently. PEFT's own merge into a 4-bit base would
round the sum to 4 bits again.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from peft import PeftModel

from rlvr.artifacts.directory import write_json
from rlvr.artifacts.finished_run import FinishedRun
from rlvr.errors import InputError
from rlvr.modeling import loading

DTYPES = ("float32", "bfloat16", "float16")
# Of a model's folder; not the pickled arguments of the training, which run code when they are loaded.
MODEL_FILES = (".json", ".jinja", ".safetensors", ".model", ".txt")
_NOT_COPIED = ("trainer_state.json", "complete.json")


def merged_dtype(run: FinishedRun, wanted: str | None) -> tuple[str, str]:
    """The dtype of the merged weights, and the reason.

    Raises:
        InputError: a whole model is copied, and has the dtype that it has.
    """
    own = str(run.recipe.settings.get("dtype") or "float32")
    if own not in DTYPES:  # "auto"
        own = str(loading.load_config(run.recipe).dtype).removeprefix("torch.")
    if wanted is None or wanted == own:
        return own, "the run computed in it"
    if not run.is_adapter:
        message = f"--dtype {wanted}: {run.weights} is a whole model in {own}, which is copied. Remove --dtype."
        raise InputError(message, kind="invalid-flag", key="--dtype")
    return wanted, f"--dtype; the run computed in {own}"


def write_merged(run: FinishedRun, folder: Path, dtype: str) -> None:
    """Write weights (safetensors, with an index if there are several files), tokenizer, chat template and generation
    settings. Tied embeddings are written once."""
    if not run.is_adapter:
        copy_model(run.weights, folder)
        return
    recipe = replace(run.recipe, settings={**run.recipe.settings, "dtype": dtype})
    tokenizer = loading.load_tokenizer(recipe, chat=False)
    model = loading.load_model(recipe, tokenizer)
    loading.check_adapter(recipe, run.weights)
    if getattr(model, "is_quantized", False):
        model = model.dequantize(getattr(torch, dtype))
    merged = PeftModel.from_pretrained(model, str(run.weights)).merge_and_unload(safe_merge=True)
    merged.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def copy_model(source: Path, folder: Path) -> None:
    """Copy the files of a model or an adapter."""
    for path in sorted(source.iterdir()):
        if path.suffix in MODEL_FILES and path.name not in _NOT_COPIED:
            shutil.copyfile(path, folder / path.name)


def write_adapter(run: FinishedRun, folder: Path) -> None:
    """Copy the adapter in PEFT's layout, with the name and revision of its base for PEFT and vLLM.

    Raises:
        InputError: the run trained all weights.
    """
    if not run.is_adapter:
        message = f"{run.folder} trained all weights and has no adapter. Use --to merged."
        raise InputError(message, kind="not-an-adapter", key="--to")
    copy_model(run.weights, folder)
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    config |= {"base_model_name_or_path": run.base["name"], "revision": run.base["revision"]}
    write_json(folder / "adapter_config.json", config)
