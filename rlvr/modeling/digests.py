"""Digests of a base model, by which another one under the same name is noticed."""

from __future__ import annotations

from pathlib import Path

from rlvr.config.recipe import Recipe
from rlvr.modeling import adapters, loading


def base_digests(recipe: Recipe) -> dict[str, str]:
    """What the base is made of: digests of a folder's "weights" and "tokenizer", or its "revision" on the hub."""
    folder = Path(loading.find_model(str(recipe.settings["model_name_or_path"])))
    if folder.is_dir():
        return {"weights": adapters.fingerprint(folder), "tokenizer": adapters.tokenizer_fingerprint(folder)}
    revision = hub_revision(recipe)
    return {} if revision is None else {"revision": revision}


def hub_revision(recipe: Recipe) -> str | None:
    """The commit of a model that was loaded from the hub; None for a folder."""
    from huggingface_hub import try_to_load_from_cache

    name = loading.find_model(str(recipe.settings["model_name_or_path"]))
    if Path(name).is_dir():
        return None
    file = try_to_load_from_cache(name, "config.json", revision=recipe.value("model_revision"))
    return Path(file).parent.name if isinstance(file, str) else None
