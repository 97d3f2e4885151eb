"""Show what differs in force between two recipes: defaults included, whatever either of them extends.

    python scripts/recipe_diff.py recipes/gsm8k-qwen3-4b-qlora.yaml recipes/gsm8k-qwen3-8b-qlora.yaml
    python scripts/recipe_diff.py runs/a/recipe.yaml recipes/mine.yaml --json

A value that a recipe leaves to TRL or to this project is marked as a default. `output_dir` is left out. Exit codes: 0
compared, whether or not they differ; 2 a recipe is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlvr import console
from rlvr.config import schema
from rlvr.config.recipe import DEFAULTS, Recipe, load_recipe
from rlvr.errors import InputError
from rlvr.formatting import flatten

ABSENT = "–"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=console.HelpFormatter)
    parser.add_argument("recipes", type=Path, nargs=2, metavar="RECIPE", help="YAML file")
    parser.add_argument("--json", action="store_true", help="print one JSON object: by key, both values")
    options = parser.parse_args(words)
    try:
        different = differences(*map(load_recipe, options.recipes))
    except InputError as error:
        console.error(str(error))
        return 2
    if options.json:
        console.info(json.dumps({one.key: one.values for one in different}, indent=1, default=str))
        return 0
    width = max((len(one.key) for one in different), default=0)
    for one in different:
        console.info(f"  {one.key:<{width}}  {' → '.join(map(_text, one.values, one.is_default))}")
    if not different:
        console.info("Both recipes are equal in force.")
    return 0


class Difference(NamedTuple):
    """A dotted key, its value in each recipe (None if it has none), and whether that value is a default."""

    key: str
    values: tuple[Any, Any]
    is_default: tuple[bool, bool]


def differences(one: Recipe, other: Recipe) -> list[Difference]:
    """Compare two recipes key by key, in the order of the first one."""
    defaults = {**schema.defaults(), **DEFAULTS}
    in_force = [dict(flatten({**recipe.as_dict(), "output_dir": None})) for recipe in (one, other)]
    found = []
    for key in dict.fromkeys(key for values in in_force for key in values):
        a, b = (values.get(key, defaults.get(key)) for values in in_force)
        if a != b:
            own = [recipe.lines.get(key, "") != "" for recipe in (one, other)]
            usual = [key in defaults and value == defaults[key] for value in (a, b)]
            found.append(Difference(key, (a, b), (usual[0] and not own[0], usual[1] and not own[1])))
    return found


def _text(value: Any, is_default: bool) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"{ABSENT if value is None else text}{' (default)' if is_default else ''}"


if __name__ == "__main__":
    sys.exit(main())
