"""Show what differs in force between two recipes: defaults included, whatever either of them extends.

    python scripts/recipe_diff.py recipes/gsm8k-qwen3-4b-qlora.yaml recipes/gsm8k-qwen3-8b-qlora.yaml
    python scripts/recipe_diff.py runs/a/recipe.yaml recipes/mine.yaml --json

A value that a recipe leaves to TRL, to this project or to a plug-in is marked as a default. Plug-ins of an import path
are not imported for it. `output_dir` is left out. Exit codes: 0 compared, whether or not they differ; 2 a recipe is
wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rlvr import console  # not found: run `make install`, then `. .venv/bin/activate`
from rlvr.config import schema
from rlvr.config.recipe import DEFAULTS, Recipe, load_recipe
from rlvr.config.specs import EvaluationSpec
from rlvr.errors import InputError
from rlvr.formatting import flatten
from rlvr.scoring.registry import find_plugin, runs_in_trainer

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
    defaults = [_defaults(recipe) for recipe in (one, other)]
    flat = (flatten({**recipe.as_dict(), "output_dir": None}) for recipe in (one, other))
    in_force = [{key: value for key, value in pairs if value != {}} for pairs in flat]
    found = []
    for key in dict.fromkeys(key for values in in_force for key in values):
        a, b = (values.get(key, usual.get(key)) for values, usual in zip(in_force, defaults, strict=True))
        if a != b:
            own = [recipe.lines.get(key, "") != "" for recipe in (one, other)]
            usual = [key in of and value == of[key] for of, value in zip(defaults, (a, b), strict=True)]
            found.append(Difference(key, (a, b), (usual[0] and not own[0], usual[1] and not own[1])))
    return found


def _defaults(recipe: Recipe) -> dict[str, Any]:
    """What holds for keys that a recipe does not have, by dotted key."""
    task = recipe.task
    tasks = [
        {"label": each.label, "name": each.name, **_options(_plugin("task", "tasks", each.name))}
        for each in task.parts or (task,)
    ]
    plugins: dict[str, Any] = {"tasks": tasks} if task.parts else {"task": tasks[0]}
    plugins["rewards"] = []
    for spec in recipe.rewards:
        reward = _plugin("reward", "rewards", spec.name)
        where = "trainer" if reward is not None and runs_in_trainer(reward) else "local"
        plugins["rewards"].append({"name": spec.name, "where": where, "options": _options(reward)})
    environments = [
        {"name": each.name, "options": _options(_plugin("environment", "environments", each.name))}
        for each in recipe.environments
    ]
    plugins["environment"] = environments[0] if len(environments) == 1 else environments
    if recipe.evaluation is not None:
        metric = max(recipe.rewards, key=lambda spec: spec.weight).name
        length = recipe.settings.get("max_completion_length", schema.defaults()["max_completion_length"])
        plugins["evaluation"] = {**asdict(EvaluationSpec()), "metric": metric, "max_new_tokens": length}
    return {**schema.defaults(), **DEFAULTS, **dict(flatten(plugins))}


def _plugin(kind: str, folder: str, name: str) -> Callable[..., Any] | None:
    """The function or class of a plug-in; None if its file is missing or fails to import."""
    if "." in name and not name.partition(":")[0].endswith(".py"):
        return None  # may import torch
    with contextlib.suppress(InputError):
        return find_plugin(kind, folder, name, own_class=kind == "environment")[0]
    return None


def _options(plugin: Callable[..., Any] | None) -> dict[str, Any]:
    """The defaults in a signature, by option."""
    parameters = inspect.signature(plugin).parameters if plugin is not None else {}
    return {key: one.default for key, one in parameters.items() if one.default is not one.empty}


def _text(value: Any, is_default: bool) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    shown = ABSENT if value is None else text.replace("\n", " ⏎ ")
    return f"{shown}{' (default)' if is_default else ''}"


if __name__ == "__main__":
    sys.exit(main())
