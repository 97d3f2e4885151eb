"""The folder that a run writes to: made, and an earlier run in it moved aside rather than overwritten."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import console
from rlvr.errors import InputError
from rlvr.recipe import Recipe, write_recipe

if TYPE_CHECKING:
    from accelerate import PartialState


def prepare(recipe: Recipe, state: PartialState, conditions: Mapping[str, str] | None = None) -> None:
    """Makes the run directory, with the resolved recipe in it, and the place that MLflow writes to.

    Args:
        conditions: what the rewards' scores depend on beside the recipe, kept with the libraries' versions.
    """
    if state.is_main_process:
        folder = recipe.output_dir
        if not recipe.settings.get("resume_from_checkpoint"):
            _move_earlier_run(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_recipe(recipe, folder / "recipe.yaml")
            content = {**versions(), **(conditions or {})}
            (folder / "versions.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            reason = f"The run directory {folder} can't be written: {error.strerror}. Set output_dir."
            raise InputError(reason) from error
    _prepare_tracking(recipe, state.is_main_process)
    state.wait_for_everyone()


def versions() -> dict[str, str]:
    """Python and the installed libraries that decide what a run does, by their distribution names."""
    found = {"python": platform.python_version()}
    for name in ("trl", "transformers", "peft", "torch", "accelerate", "deepspeed", "bitsandbytes", "datasets", "vllm"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _move_earlier_run(folder: Path) -> None:
    marker = folder / "recipe.yaml"
    if not marker.is_file():
        return
    stamp = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(marker.stat().st_mtime))
    aside = folder.with_name(f"{folder.name}.{stamp}")
    while aside.exists():  # two runs within a second
        aside = aside.with_name(f"{aside.name}-again")
    folder.rename(aside)
    console.say(f"  the earlier run in {folder} is now {aside}")


def _prepare_tracking(recipe: Recipe, is_main: bool) -> None:
    """A local SQLite store beside the runs, unless MLFLOW_TRACKING_URI names another.

    MLflow's own defaults are a file store that it has put into maintenance mode, and an artifact folder in whatever
    directory the command was started from.
    """
    report_to = recipe.settings.get("report_to")
    if "mlflow" not in ([report_to] if isinstance(report_to, str) else report_to or []):
        return
    os.environ.setdefault("MLFLOW_EXPERIMENT_NAME", "grpo-recipes")
    if "MLFLOW_TRACKING_URI" in os.environ or not is_main:
        return
    store = recipe.output_dir.parent.resolve()
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{store / 'mlflow.db'}"
    from mlflow import MlflowClient

    client = MlflowClient()
    name = os.environ["MLFLOW_EXPERIMENT_NAME"]
    if client.get_experiment_by_name(name) is None:
        client.create_experiment(name, artifact_location=(store / "mlartifacts").as_uri())
