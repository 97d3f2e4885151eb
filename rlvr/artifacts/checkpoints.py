"""Checkpoint folders: list, verify, mark as complete, delete.

A checkpoint counts only with `complete.json`, which is written last, after every process has written its part. The file
lists the other files with their sizes, and the run's identity. So a half-written checkpoint, or one that lost a file on
its way through a bucket, is detected, and a checkpoint of another recipe is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlvr.artifacts import directory
from rlvr.artifacts.identity import Identity

MARKER = "complete.json"
PREFIX = "checkpoint-"


def list_checkpoints(output_dir: Path) -> list[Path]:
    """The checkpoint folders of a run, complete or not, newest first."""
    folders = [path for path in output_dir.glob(f"{PREFIX}*") if path.is_dir() and path.name[len(PREFIX) :].isdigit()]
    return sorted(folders, key=step_of, reverse=True)


def step_of(folder: Path) -> int:
    """The optimizer step of a checkpoint folder."""
    number = folder.name.removeprefix(PREFIX)
    return int(number) if number.isdigit() else int(read_marker(folder)["step"])  # a copy may have another name


def why_incomplete(folder: Path) -> str | None:
    """Why a folder is not a complete checkpoint, as half a sentence; None if it is one."""
    if not folder.is_dir():
        return "there is no such folder"
    if not (folder / MARKER).is_file():
        return f"it has no {MARKER}, which is written last: the run ended while it was being saved"
    try:
        sizes = read_marker(folder)["files"]
    except (ValueError, KeyError):
        return f"its {MARKER} can't be read"
    for name, size in sizes.items():
        file = folder / name
        if not file.is_file():
            return f"its file {name} is missing"
        if file.stat().st_size != size:
            return f"its file {name} has {file.stat().st_size} bytes instead of {size}"
    return None


def missing_process_file(folder: Path) -> str | None:
    """The file of a process on another machine that is missing, as half a sentence.

    The marker can't list files on the disks of other machines. Call this when a run begins: a bucket or a shared folder
    has then brought all parts together.
    """
    content = read_marker(folder)
    identity = content.get("identity")
    if not isinstance(identity, dict) or process_file(folder, 0).name not in content.get("files", ()):
        return None  # the number of processes is unknown, or the checkpoint has no such files
    processes = int(identity.get("processes", 1))
    missing = [process for process in range(processes) if not process_file(folder, process).is_file()]
    if not missing:
        return None
    return f"its file {process_file(folder, missing[0]).name} is missing, which process {missing[0]} wrote"


def process_file(folder: Path, process: int) -> Path:
    """The file for the state of one process between two steps (rlvr/training/checkpoint_writer.py)."""
    return folder / f"between_steps_{process}.pt"


def mark_complete(folder: Path, step: int, identity: Identity, *, save_s: float | None = None) -> None:
    """Mark a checkpoint as complete. Call it after every process has written its part.

    Args:
        save_s: seconds that saving took, by which a continuation plans its own saves.
    """
    content = {
        "format": directory.FORMAT,
        "step": step,
        "files": {str(file.relative_to(folder)): file.stat().st_size for file in _files(folder)},
        "identity": asdict(identity),
        "versions": directory.versions(),
        "save_s": save_s,
    }
    directory.write_json(folder / MARKER, content)


def read_marker(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MARKER).read_text(encoding="utf-8")))


def newest_complete(output_dir: Path) -> Path | None:
    """The newest complete checkpoint of a run."""
    return next((folder for folder in list_checkpoints(output_dir) if why_incomplete(folder) is None), None)


def rotate(output_dir: Path, keep: int | None, best: int | None = None) -> None:
    """Delete all but the `keep` newest complete checkpoints, and incomplete ones that are older than those.

    Args:
        best: step of a checkpoint that stays too, since it is loaded when training ends.
    """
    if not keep:
        return
    kept = 0
    for folder in list_checkpoints(output_dir):
        if kept < keep:
            kept += why_incomplete(folder) is None
        elif step_of(folder) != best:
            remove(folder)


def keep_only(output_dir: Path, names: Collection[str]) -> None:
    """Delete the checkpoints that the main process deleted: a machine may have a disk of its own."""
    for folder in list_checkpoints(output_dir):
        if folder.name not in names:
            remove(folder)


def remove(folder: Path) -> None:
    """Delete a checkpoint, its marker first, so that a half-deleted one is not complete."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def size_bytes(folder: Path) -> int:
    """Bytes of all files in a checkpoint folder, without the marker."""
    return sum(file.stat().st_size for file in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(
        Path(root) / name for root, _, names in os.walk(folder) for name in names if Path(root, name) != folder / MARKER
    )
