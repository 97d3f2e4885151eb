"""Write a recipe with its overrides and defaults, so that it can be run again as it is."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rlvr.config import schema
from rlvr.config.recipe import RESOLVED, Recipe


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
    unchanged = {key: value for key, value in with_defaults({}).items() if content.get(key, value) == value}
    changed = {key: value for key, value in content.items() if key not in unchanged}
    return (
        f"{title}{_yaml(changed)}\n# As TRL and transformers have them by default.\n{_yaml(unchanged)}\n"
        f"# Derived by TRL, transformers, PEFT and bitsandbytes. Ignored in a recipe.\n{_yaml({RESOLVED: resolved})}"
    )


def with_defaults(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a recipe with TRL's defaults for all other keys."""
    refused = {*schema.RENAMED, *schema.REMOVED} - {*schema.FIXED}
    return {key: value for key, value in schema.defaults().items() if key not in refused} | dict(content)


def _yaml(content: Mapping[str, Any]) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    buffer = io.StringIO()
    yaml.dump(content, buffer)
    return buffer.getvalue()
