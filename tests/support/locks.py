"""A run directory that another process holds, as run_grpo.py does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlvr.artifacts.run_lock import lock_run


@contextmanager
def locked_by_another_process(run: Path) -> Iterator[int]:
    """Lock a run directory in a forked process while the context is open; yield its process id."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with lock_run(run):
                os.write(theirs, b"1")
                signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(theirs)
        assert os.read(ours, 1), "it holds the lock"
        yield child
    finally:
        os.close(ours)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
