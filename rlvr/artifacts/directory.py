"""The run directory: create it, rename an earlier run in it, read and write run.json.

`status` in run.json is "running", "interrupted" (it can be continued), "failed", "trained" (only the evaluation is
left) or "done". `format` counts the versions of the directory's layout.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.config.recipe_writer import resolved_text, write_recipe
from rlvr.errors import InputError, writing
from rlvr.formatting import count, mapping

if TYPE_CHECKING:
    from accelerate import PartialState

STATUS = "run.json"
# Of a run directory and its checkpoints. Increase it if an older version would misread what a newer one writes.
FORMAT = 1
LIBRARIES = ("trl", "transformers", "peft", "torch", "accelerate", "deepspeed", "bitsandbytes", "datasets", "vllm")
ANSWERS = "answers"  # folder of an evaluation's answers, written while it runs


def prepare(
    recipe: Recipe,
    state: PartialState,
    environment: Mapping[str, str] | None = None,
    *,
    resolved: Mapping[str, Any] | None = None,
    fresh: bool = True,
) -> None:
    """Create the run directory and write the resolved recipe into it.

    Args:
        resolved: values that libraries derived from the recipe (`rlvr.training.trl_config.resolved_settings`).
        environment: what the scores depend on besides the recipe; written with the versions of the libraries.
        fresh: whether the run begins at step 0. An earlier run in the folder is then renamed.

    Raises:
        InputError: of kind "unwritable".
    """
    if state.is_main_process:
        folder = recipe.output_dir
        if fresh:
            _rename_earlier_run(folder, resolved_text(recipe, resolved))
        with writing(folder, "Set output_dir.", key="output_dir"):
            folder.mkdir(parents=True, exist_ok=True)
            write_recipe(recipe, folder / "recipe.yaml", resolved)
            write_json(folder / "versions.json", {**versions(), **(environment or {})})
            (folder / "failure.txt").unlink(missing_ok=True)
    state.wait_for_everyone()


def read_status(folder: Path) -> dict[str, Any] | None:
    """Read run.json; None if it is missing or can't be read.

    Raises:
        InputError: of kind "later-format".
    """
    content = dict(read_json(folder / STATUS))
    check_format(content.pop("format", FORMAT), folder / STATUS)
    content.pop("sha256", None)
    return content if "status" in content else None


def check_format(format: object, folder: Path) -> None:
    """Refuse what a later version of the project wrote.

    Raises:
        InputError: of kind "later-format".
    """
    if isinstance(format, int) and format > FORMAT:
        raise InputError(
            f"{folder} was written by a later version of grpo-recipes: its format is {format}, and this version reads "
            f"up to {FORMAT}. Update the project, or choose another output_dir for a new run.",
            kind="later-format",
            path=folder,
        )


def write_status(folder: Path, status: str, **facts: Any) -> None:
    """Replace run.json. Call it in the main process only."""
    write_json(folder / STATUS, seal({"status": status, **facts}, FORMAT))


def content_digest(content: Any) -> str:
    """sha256 of the canonical JSON of a content, as it is read back from a file: keys are texts."""
    content = json.loads(json.dumps(content, default=str))
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def seal(content: Mapping[str, Any], format: int) -> dict[str, Any]:
    """Add `format` and `sha256`."""
    content = {"format": format, **content}
    return {**content, "sha256": content_digest(content)}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Whether a content fits its `sha256`; earlier versions wrote none."""
    return content.get("sha256") in (None, content_digest({key: content[key] for key in content if key != "sha256"}))


def read_json(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file; empty if the file is missing or damaged."""
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8", errors="replace")))
    except (OSError, ValueError, RecursionError):
        return {}


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that a run depends on, by distribution name."""
    return {"python": platform.python_version(), **installed(LIBRARIES)}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    found = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def machine(*, gpus: bool = True) -> dict[str, str]:
    """The names of this host's CPU and GPUs.

    Args:
        gpus: whether the run uses them.
    """
    import torch

    cpu = platform.machine()
    with contextlib.suppress(OSError):
        match = re.search(r"(?m)^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        cpu = match[1].strip() if match else cpu
    names = Counter(torch.cuda.get_device_name(gpu) for gpu in range(torch.cuda.device_count() if gpus else 0))
    return {
        "cpu": f"{cpu}, {count(len(os.sched_getaffinity(0)), 'core')}",
        "gpu": ", ".join(f"{number} x {name}" for name, number in names.items()) or "none",
    }


def _has_no_results(folder: Path, status: Mapping[str, Any] | None, recipe_text: str) -> bool:
    """Whether the same run was interrupted before it measured or trained anything. It then continues in its folder."""
    if status is None or status["status"] != "interrupted":
        return False
    results = ("metrics.jsonl", "evaluation.json", "completions", "checkpoint-*")
    written = (folder / "recipe.yaml").read_text(encoding="utf-8", errors="replace")
    return written == recipe_text and not any(any(folder.glob(name)) for name in results)


def _rename_earlier_run(folder: Path, recipe_text: str) -> None:
    """Rename the folder of an earlier run. The new run inherits the answers of an unfinished evaluation."""
    marker = folder / "recipe.yaml"
    if not marker.is_file():
        return
    status = read_status(folder)
    if _has_no_results(folder, status, recipe_text):
        return
    stamp = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(marker.stat().st_mtime))
    folder = folder.resolve()  # a link stays, and the new run goes to the same disk
    renamed = folder.with_name(f"{folder.name}.{stamp}")
    while renamed.exists():  # two runs within a second
        renamed = renamed.with_name(f"{renamed.name}-again")
    folder.rename(renamed)
    folder.mkdir()
    if status is not None and status["status"] != "done" and (renamed / ANSWERS).is_dir():
        (renamed / ANSWERS).rename(folder / ANSWERS)
    console.info(f"  the earlier run in {folder} is now {renamed}")
