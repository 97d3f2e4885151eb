"""Write a recipe with its overrides and defaults, so that it can be run again as it is."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from rlvr.config import schema
from rlvr.config.recipe import RESOLVED, Recipe

_COLUMN = 40  # of comments behind values


def write_recipe(recipe: Recipe, path: Path, resolved: Mapping[str, Any] | None = None) -> None:
    """Write the recipe with its overrides and our defaults, so that it can be run again as it is.

    Args:
        resolved: what libraries derived from it, for its section `resolved`. Then TRL's defaults are written too.
    """
    path.write_text(resolved_text(recipe, resolved), encoding="utf-8")


def resolved_text(recipe: Recipe, resolved: Mapping[str, Any] | None = None) -> str:
    """Return what `write_recipe` writes."""
    title, content = f"# {recipe.path.name} as it ran: overrides and defaults included.\n", recipe.as_dict()
    if resolved is None:
        return title + _yaml(content)
    refused = schema.REFUSED - schema.FIXED
    unchanged = {
        key: value
        for key, value in schema.defaults().items()
        if key not in refused and content.get(key, value) == value
    }
    changed = {key: value for key, value in content.items() if key not in unchanged}
    return (
        f"{title}{_yaml(changed)}\n# As TRL and transformers have them by default.\n{_yaml(unchanged)}\n"
        f"# Derived by TRL, transformers, PEFT and bitsandbytes. Ignored in a recipe.\n{_yaml({RESOLVED: resolved})}"
    )


def text_in_full(recipe: Recipe) -> str:
    """Format the keys of a recipe and of what it extends as YAML, each with the files that its values are from.

    Keys that no file has, such as defaults, are left out.
    """
    folder = recipe.path.parent
    sources: dict[str, dict[str, None]] = {}
    for key, at in recipe.lines.items():
        name = "command line" if at is None else os.path.relpath(at.path, folder)
        sources.setdefault(key.partition(".")[0], {})[name] = None
    written = CommentedMap({key: value for key, value in recipe.as_dict().items() if key in sources})
    for key in written:
        if [*sources[key]] != [recipe.path.name]:
            written.yaml_add_eol_comment(", ".join(sources[key]), key, column=_COLUMN)
    return f"# The recipe in full\n{_yaml(written)}"


def _yaml(content: Mapping[str, Any]) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    buffer = io.StringIO()
    yaml.dump(content, buffer)
    return buffer.getvalue()
