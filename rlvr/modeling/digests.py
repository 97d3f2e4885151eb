"""Digests of a base model, by which another one under the same name is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.config.recipe import Recipe
from rlvr.modeling import adapters, loading

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def base_digests(recipe: Recipe, config: PretrainedConfig | None = None) -> dict[str, str]:
    """What the base is made of: digests of a folder's "weights" and "tokenizer", or its "revision" on the hub.

    Args:
        config: the base's, which knows the revision; read if it is needed and not given.
    """
    folder = Path(loading.find_model(str(recipe.settings["model_name_or_path"])))
    if folder.is_dir():
        return {"weights": adapters.fingerprint(folder), "tokenizer": adapters.tokenizer_fingerprint(folder)}
    revision = getattr(config or loading.load_config(recipe), "_commit_hash", None)
    return {} if revision is None else {"revision": revision}
