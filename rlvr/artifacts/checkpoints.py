"""Checkpoint folders: list, verify, mark as complete, delete.

A checkpoint counts only with `complete.json`, which is written last, after every process has written its part. The file
lists the other files with their sizes and digests, and the run's identity. So a half-written or damaged checkpoint is
detected, and a checkpoint of another recipe is refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xxhash import xxh3_64

from rlvr.artifacts import directory
from rlvr.artifacts.identity import Identity
from rlvr.artifacts.sealed_json import file_digest

MARKER = "complete.json"
PREFIX = "checkpoint-"
DIGESTS = "xxh3_64"  # key of the digests in `complete.json` and run.json: fast, and no defence against an attacker
_PROCESS = re.compile(r"(?:rng_state|between_steps|pp_rank|/_)_(\d+)")  # transformers, ours, DeepSpeed, FSDP2


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
    content = directory.read_json(folder / MARKER)
    if not isinstance(content.get("files"), dict) or not directory.is_sealed(content):
        return f"its {MARKER} can't be read: its content is incomplete or wrong"
    for name, size in content["files"].items():
        file = folder / name
        if not file.is_file():
            return f"its file {name} is missing"
        if file.stat().st_size != size:
            return f"its file {name} has {file.stat().st_size} bytes instead of {size}"
    return None


def digests_of(folder: Path, process: int = 0) -> dict[str, str]:
    """The digest of each file that a process wrote: one with its number, and for process 0 all without a number."""
    names = [path.relative_to(folder).as_posix() for path in _files(folder) if path.name != "README.md"]
    return {name: file_digest(folder / name, xxh3_64) for name in names if _process_of(name) == process}


def find_damage(folder: Path, digests: Mapping[str, str], processes: Collection[int]) -> str | None:
    """The first damaged file of some processes, as half a sentence. Call it when a run begins: it reads the files.

    A bucket or a shared folder has then brought together what machines wrote to their own disks.

    Raises:
        OSError: a file can't be read now, and may be intact.
    """
    for name in (name for name in digests if _process_of(name) in processes):
        try:
            if file_digest(folder / name, xxh3_64) != digests[name]:
                return f"its file {name} is damaged: its content is not what was saved"
        except FileNotFoundError as error:
            return f"its file {name} can't be read: {error.strerror}"
        except OSError as error:
            error.filename = str(folder / name)
            raise
    for file in sorted([*folder.glob("*.pt"), *folder.glob("*.pth")]):
        if _process_of(file.name) in processes and _is_refused(file):
            return f"its file {file.name} can't be loaded: it is damaged, or holds more than tensors and numbers"
    return None


def _process_of(name: str) -> int:
    number = _PROCESS.search(name)
    return int(number[1]) if number else 0


def _is_refused(file: Path) -> bool:
    """Whether PyTorch refuses a pickle where transformers loads it. The tensors themselves are not read."""
    import torch
    from transformers.trainer_pt_utils import safe_globals

    try:
        with safe_globals() if file.name.startswith("rng_state") else nullcontext():
            torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, MemoryError):
        return False
    except Exception as error:  # a damaged pickle may raise any
        return not (isinstance(error, RuntimeError) and re.search("mmap|allocate", str(error)))
    return False


def process_file(folder: Path, process: int) -> Path:
    """The file for the state of one process between two steps (rlvr/training/checkpoint_writer.py)."""
    return folder / f"between_steps_{process}.pt"


def mark_complete(
    folder: Path,
    step: int,
    identity: Identity,
    digests: Mapping[str, str] | None = None,
    *,
    save_s: float | None = None,
) -> None:
    """Mark a checkpoint as complete. Call it after every process has written its part.

    Args:
        digests: what `digests_of` returned on all processes; default: on this one.
        save_s: seconds that saving took, by which a continuation plans its own saves.
    """
    content = {
        "step": step,
        "files": {str(file.relative_to(folder)): file.stat().st_size for file in _files(folder)},
        DIGESTS: digests_of(folder) if digests is None else digests,
        "identity": asdict(identity),
        "versions": directory.versions(),
        "save_s": save_s,
    }
    directory.write_json(folder / MARKER, directory.seal(content, directory.FORMAT))


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
