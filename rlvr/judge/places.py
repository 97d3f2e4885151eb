"""Where the judge keeps files: a cache that stays (the launcher, precompiled headers) and folders that do not."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

NAME = "grpo-recipes"


def cache() -> Path:
    """A folder that only this user writes to and, if this user is root, everybody can read.

    $GRPO_RECIPES_CACHE, else /var/cache for root, else $XDG_CACHE_HOME or ~/.cache, else a temporary folder.

    Raises:
        OSError: none of them can be written to.
    """
    for folder in _candidates():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
                continue  # somebody else's: what lies there would be run
            folder.chmod(0o755)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    raise OSError("no folder can be written to: tried " + ", ".join(str(folder) for folder in _candidates()))


def _candidates() -> Iterator[Path]:
    chosen = os.environ.get("GRPO_RECIPES_CACHE")
    if chosen:
        yield Path(chosen) / "judge"
        return
    if os.geteuid() == 0:
        yield Path("/var/cache") / NAME
    else:
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / NAME
    for folder in temporary_folders():
        yield folder / f"{NAME}-{os.geteuid()}"


def temporary_folders() -> list[Path]:
    """Folders for temporary files, the best first, whether or not they exist."""
    named = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    return [Path(folder) for folder in (*named, "/tmp", "/var/tmp", "/dev/shm", "/run")]


def scratch(prefix: str) -> Path:
    """A new, empty folder of our own.

    Raises:
        OSError: there is no place for one.
    """
    for folder in temporary_folders():
        try:
            return Path(tempfile.mkdtemp(prefix=f"{NAME}-{prefix}-", dir=folder))
        except OSError:
            continue
    raise OSError("no temporary folder can be made: tried " + ", ".join(map(str, temporary_folders())))


def discard(folder: Path) -> None:
    """Removes a folder that `scratch` made."""
    shutil.rmtree(folder, ignore_errors=True)
