"""Where the judge keeps files: a cache that stays (the launcher, precompiled headers) and folders that do not."""

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
_SETTLED_S = 2.0


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


class Scratch:
    """A new, empty folder of our own, removed by `discard`.

    A lock on it lasts as long as this process, so that the next one can tell what a killed one left, and remove it.

    Args:
        within: where to make it; one of `temporary_folders` if not given.
        reachable: whether other users must be able to reach it (not what is in it, unless it is given to them).

    Raises:
        OSError: there is no place for one.
    """

    def __init__(self, purpose: str, within: Path | None = None, *, reachable: bool = False) -> None:
        self.owner = os.getpid()
        for parent in [within] if within else temporary_folders():
            if reachable and not _can_be_reached(parent):
                continue
            try:
                _sweep(parent)
                self.path = Path(tempfile.mkdtemp(prefix=f"{NAME}-{purpose}-", dir=parent))
                self._held = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(self._held, fcntl.LOCK_EX)
                return
            except OSError:
                continue
        raise OSError("no temporary folder can be made: tried " + ", ".join(map(str, temporary_folders())))

    def discard(self) -> None:
        """Removes it; in a forked child it only lets go of it."""
        if self.owner == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._held)


def _can_be_reached(folder: Path) -> bool:
    try:
        real = folder.resolve(strict=True)
        return all(above.stat().st_mode & stat.S_IXOTH for above in (real, *real.parents))
    except OSError:
        return False


def _sweep(parent: Path) -> None:
    """Removes the folders of processes that were killed: nobody holds their locks."""
    for folder in parent.glob(f"{NAME}-*-????????"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # One that is brand new may not be locked yet.
            if time.time() - os.fstat(descriptor).st_mtime > _SETTLED_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # somebody works in it
        finally:
            os.close(descriptor)
