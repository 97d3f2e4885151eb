"""The folder that a run writes to: made, and an earlier run in it moved aside rather than overwritten.

`run.json` says how far the run has come: `status` is "running", "interrupted" (it can be continued), "failed",
"trained" (only the evaluation is left) or "done". `format` counts the forms that run directories have had.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.config.recipe import Recipe, resolved_text, write_recipe
from rlvr.errors import InputError

if TYPE_CHECKING:
    from accelerate import PartialState

STATUS = "run.json"
# Of a run directory and of the checkpoints in it. It goes up when an older version would misread what a newer one has
# written; what has no format was written before there was one, and is read as format 1.
FORMAT = 1
ANSWERS = "answers"  # of evaluations, kept as they come


def prepare(
    recipe: Recipe, state: PartialState, conditions: Mapping[str, str] | None = None, *, fresh: bool = True
) -> None:
    """Makes the run directory, with the resolved recipe in it.

    Args:
        conditions: what the rewards' scores depend on beside the recipe, kept with the libraries' versions.
        fresh: whether the run begins at step 0; what an earlier one left is then moved aside.
    """
    if state.is_main_process:
        folder = recipe.output_dir
        if fresh:
            _move_earlier_run(folder, recipe)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_recipe(recipe, folder / "recipe.yaml")
            write_json(folder / "versions.json", {**versions(), **(conditions or {})})
            (folder / "failure.txt").unlink(missing_ok=True)
        except OSError as error:
            reason = f"The run directory {folder} can't be written: {error.strerror}. Set output_dir."
            raise InputError(reason) from error
    state.wait_for_everyone()


def read_status(folder: Path) -> dict[str, Any] | None:
    """What run.json says; None where it is not there or is half written.

    Raises:
        InputError: a later version of the project wrote it.
    """
    try:
        content = json.loads((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    check_format(content.pop("format", 1), folder)
    return content if "status" in content else None


def check_format(format: object, folder: Path) -> None:
    """Refuses what a later version of the project has written, of which this one can't know what it means.

    Raises:
        InputError: it is of a later format.
    """
    if isinstance(format, int) and format > FORMAT:
        raise InputError(
            f"{folder} was written by a later version of grpo-recipes: its format is {format}, and this version reads "
            f"up to {FORMAT}. Update the project to read or continue it; a new run needs another output_dir."
        )


def write_status(folder: Path, status: str, **facts: Any) -> None:
    """Writes how far the run has come, in the place of what was said before; from the main process only."""
    write_json(folder / STATUS, {"format": FORMAT, "status": status, **facts})


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file whole or not at all, whenever the process may be killed."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)


def versions() -> dict[str, str]:
    """Python and the installed libraries that decide what a run does, by their distribution names."""
    found = {"python": platform.python_version()}
    for name in ("trl", "transformers", "peft", "torch", "accelerate", "deepspeed", "bitsandbytes", "datasets", "vllm"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _is_barely_begun(folder: Path, status: Mapping[str, Any] | None, recipe: Recipe) -> bool:
    """Whether the same run was stopped before it had measured or trained anything: then it goes on where it is."""
    if status is None or status["status"] != "interrupted":
        return False
    made = ("metrics.jsonl", "evaluation.json", "completions", "checkpoint-*")
    written = (folder / "recipe.yaml").read_text(encoding="utf-8", errors="replace")
    return written == resolved_text(recipe) and not any(any(folder.glob(name)) for name in made)


def _move_earlier_run(folder: Path, recipe: Recipe) -> None:
    """Answers of an evaluation that was cut short go over to the new run, which asks the same model for the rest."""
    marker = folder / "recipe.yaml"
    if not marker.is_file():
        return
    status = read_status(folder)
    if _is_barely_begun(folder, status, recipe):
        return
    stamp = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(marker.stat().st_mtime))
    aside = folder.with_name(f"{folder.name}.{stamp}")
    while aside.exists():  # two runs within a second
        aside = aside.with_name(f"{aside.name}-again")
    folder.rename(aside)
    if status is not None and status["status"] != "done" and (aside / ANSWERS).is_dir():
        folder.mkdir()
        (aside / ANSWERS).rename(folder / ANSWERS)
    console.info(f"  the earlier run in {folder} is now {aside}")
