"""The judge's folders: a lasting cache (launcher, precompiled headers) and temporary ones."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

NAME = "grpo-recipes"
_MIN_AGE_S = 2.0


def cache() -> Path:
    """Return a folder that only this user can write to and all users can read.

    $GRPO_RECIPES_CACHE, else /var/cache for root, else $XDG_CACHE_HOME or ~/.cache, else a temporary folder.

    Raises:
        OSError: none of them can be written.
    """
    for folder in _candidates():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                continue  # another user could plant files there, which would be run
            folder.chmod(0o755)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    raise OSError("no folder can be written: tried " + ", ".join(str(folder) for folder in _candidates()))


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
    """Return candidate folders for temporary files, best first. They need not exist."""
    named = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    return [Path(folder) for folder in (*named, "/tmp", "/var/tmp", "/dev/shm", "/run")]


class Scratch:
    """A new, empty temporary folder; `discard` removes it.

    This process holds a lock on it, so a later process recognises and removes the folder of a killed one.

    Args:
        within: parent folder; one of `temporary_folders` by default.
        reachable: whether other users must be able to reach the path.

    Raises:
        OSError: no folder can be made.
    """

    def __init__(self, purpose: str, within: Path | None = None, *, reachable: bool = False) -> None:
        self.owner = os.getpid()
        for parent in [within] if within else temporary_folders():
            if reachable and not _can_be_reached(parent):
                continue
            try:
                _remove_abandoned(parent)
                self.path = Path(tempfile.mkdtemp(prefix=f"{NAME}-{purpose}-", dir=parent))
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                return
            except OSError:
                continue
        raise OSError("no temporary folder can be made: tried " + ", ".join(map(str, temporary_folders())))

    def discard(self) -> None:
        """Remove it. In a forked child, only close its descriptor."""
        if self.owner == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def _can_be_reached(folder: Path) -> bool:
    try:
        real = folder.resolve(strict=True)
        return all(above.stat().st_mode & stat.S_IXOTH for above in (real, *real.parents))
    except OSError:
        return False


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of killed processes, whose locks are free."""
    for folder in parent.glob(f"{NAME}-*-????????"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # A new folder may not be locked yet.
            if time.time() - os.fstat(descriptor).st_mtime > _MIN_AGE_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # in use
        finally:
            os.close(descriptor)
