"""The folder that an evaluation writes to: what others or earlier evaluations wrote there is not lost."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.artifacts.directory import read_status
from rlvr.artifacts.evaluation import read_evaluation
from rlvr.artifacts.result_record import FILE, other_measurement, read_record
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.recipe import Recipe
from rlvr.errors import InputError


def check_not_running(folder: Path) -> None:
    """Check that no run or evaluation writes to the folder, that no run there was killed, and that the format is known.

    Raises:
        InputError: of kind "run-in-use", "run-in-progress" or "later-format".
    """
    refuse_if_in_use(folder, "Name another folder with --output")
    status = read_status(folder)
    if status is not None and status["status"] == "running":
        raise InputError(
            f"--output {folder} is a run that has not ended: it was killed, or its file system has no locks. Its "
            "evaluation.json would be replaced. Continue it first, or name another folder.",
            kind="run-in-progress",
            key="--output",
            path=folder,
        )


def check_run_results(folder: Path, parts: Collection[str], rows: int, recipe: Recipe) -> None:
    """Check that a run's results are not replaced by fewer, or by those of another task or base.

    Args:
        parts: "base", "trained" and "pass_at_k", as far as they are measured now.

    Raises:
        InputError: of kind "would-overwrite": `folder` is a run's.
    """
    if not (folder / "run.json").is_file() or not (folder / "evaluation.json").is_file():
        return
    why = other_measurement(read_record(folder), recipe) if (folder / FILE).is_file() else None
    if why is not None:
        raise InputError(
            f"--output {folder} is a run, and its record would get figures that are not its own: {why}. Name another "
            "folder.",
            kind="would-overwrite",
            key="--output",
            path=folder,
        )
    try:
        before = read_evaluation(folder)
    except InputError:
        return  # half-written: nothing to lose
    held = [*before.scores, *(["pass_at_k"] if before.pass_at_k is not None else [])]
    most = max((score.measured for score in before.scores.values()), default=0)
    if set(held) - set(parts) or rows < most:
        raise InputError(
            f"--output {folder} is a run with {', '.join(held)} on {most:,} rows in evaluation.json. "
            f"{', '.join(parts)} on {rows:,} rows would replace it. Name another folder, or measure as much "
            "(--adapter … --compare base, no --limit, --samples if it has pass_at_k).",
            kind="would-overwrite",
            key="--output",
            path=folder,
        )


def move_earlier(folder: Path, about: Mapping[str, Any], parts: Collection[str]) -> None:
    """Rename an evaluation.json that was made differently or has more parts; for a run's see `check_run_results`."""
    file = folder / "evaluation.json"
    if not file.is_file() or (folder / "run.json").is_file():
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        same = {key: content.get(key) for key in about} == json.loads(json.dumps(about))
        same = same and {"base", "trained", "pass_at_k"} & set(content) <= set(parts)
    except (OSError, ValueError, AttributeError):  # half-written by a killed evaluation
        return
    if not same:
        stamp = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(file.stat().st_mtime))
        file.replace(renamed := folder / f"evaluation.{stamp}.json")
        console.info(f"  The earlier evaluation, which was made differently or has more parts, is now {renamed}.\n")
