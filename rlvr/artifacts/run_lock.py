"""Lock a run directory, so that one process at a time writes into it.

The lock is a POSIX record lock (`fcntl`) on a file beside the directory: it stays in place if the directory is renamed.
The kernel releases it when the locking process ends, by `kill -9` too. A forked child does not inherit it, as it would
inherit `flock`, so workers that outlive their run don't keep it. docs/training.md states which file systems support it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rlvr import console
from rlvr.errors import InputError, writing

if TYPE_CHECKING:
    from accelerate import PartialState

RETRY_S = 5.0  # a killed process needs a moment to end, and `refuse_if_in_use` holds the lock for one
OTHER_DIRECTORY = "Set another output_dir"

# The lock files of this process. To open and close such a file once more would release its lock.
_held: set[Path] = set()


@contextmanager
def lock_before_launch(run_dir: Path) -> Iterator[None]:
    """Hold the lock before the slow imports. The processes of a launcher lock together later, by `lock_run`."""
    with ExitStack() as stack:
        if "RANK" not in os.environ:
            stack.enter_context(lock_run(run_dir))
        yield


@contextmanager
def lock_run(run_dir: Path, state: PartialState | None = None) -> Iterator[None]:
    """Hold the lock of a run directory. A process that holds it already may enter again.

    Args:
        state: of a launch with several processes: the main process locks. Collective.

    Raises:
        InputError: of kind "run-in-use", on all processes; or "unwritable".
    """
    with ExitStack() as stack:
        refusal = None
        if state is None or state.is_main_process:
            try:
                stack.enter_context(_lock(run_dir))
            except InputError as error:
                refusal = error
        if state is not None and state.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            refusal = broadcast_object_list([refusal])[0]
            state.wait_for_everyone()  # a launcher ends the other processes as soon as one has ended
        if refusal is not None:
            raise refusal
        yield


def refuse_if_in_use(run_dir: Path, fix: str = OTHER_DIRECTORY) -> None:
    """Refuse to write into the directory of a run that another process is writing.

    Args:
        fix: what the user can do, besides waiting; the end of the message.

    Raises:
        InputError: of kind "run-in-use".
    """
    path = lock_file(run_dir)
    if path in _held:
        return
    try:
        with path.open(encoding="utf-8") as file:
            if not _try_lock(file.fileno(), fcntl.LOCK_SH):
                raise _in_use(run_dir, path, fix)
    except OSError:  # no such file, or no such locks: nothing is known of another process
        return


def lock_file(run_dir: Path) -> Path:
    """The lock file: `.NAME.lock` beside the directory; inside it if the directory can't be renamed."""
    folder = run_dir.resolve()
    parent = next((path for path in folder.parents if path.exists()), folder)
    if folder.is_mount() or not os.access(parent, os.W_OK):
        return folder / ".lock"
    return folder.parent / f".{folder.name}.lock"


@contextmanager
def _lock(run_dir: Path) -> Iterator[None]:
    path = lock_file(run_dir)
    if path in _held:
        yield
        return
    new_folders = [folder for folder in path.parents if not folder.exists()]
    deadline = time.monotonic() + RETRY_S
    while True:
        file = _open(path)
        try:
            locked = _try_lock(file.fileno(), fcntl.LOCK_EX)
        except OSError as error:
            console.error(
                f"warning: {path} can't be locked: {error.strerror}. A second run in {run_dir} would not be refused: "
                "start none before this one has ended."
            )
            break
        if locked and _is_at(path, file):
            break
        file.close()
        if not locked and time.monotonic() > deadline:
            raise _in_use(run_dir, path)
        time.sleep(0.05)
    with file:
        file.truncate(0)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %Z")}
        file.write(json.dumps(holder) + "\n")
        file.flush()
        _held.add(path)
        try:
            yield
        finally:
            _held.discard(path)
            path.unlink(missing_ok=True)  # closing the file then releases the lock
            with suppress(OSError):  # they aren't empty
                for folder in new_folders:
                    folder.rmdir()


def _open(path: Path) -> TextIO:
    with writing(path, "Set output_dir.", key="output_dir"):
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+", encoding="utf-8")


def _is_at(path: Path, file: TextIO) -> bool:
    """Whether the open file is still at its path: the process that held the lock before may have deleted it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _try_lock(descriptor: int, kind: int) -> bool:
    """Whether the lock is free; it is then held until the file is closed.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _in_use(run_dir: Path, path: Path, fix: str = OTHER_DIRECTORY) -> InputError:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        by = f"process {holder['pid']} on {holder['host']} has been writing it since {holder['since']}"
    except (OSError, ValueError, KeyError):
        by = "another process is writing it"
    return InputError(
        f"The run directory {run_dir} is in use: {by}. {fix}, or wait until that process has ended.",
        kind="run-in-use",
        key="output_dir",
        path=run_dir,
    )
