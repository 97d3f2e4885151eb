"""One process at a time writes into a run directory."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.artifacts import run_lock
from rlvr.artifacts.run_lock import lock_file, lock_run, refuse_if_in_use
from rlvr.errors import InputError
from tests.support.input_errors import input_error

# Locks the directory, does what its second argument says, and prints a line when it is ready.
HOLDER = """
import os, sys, time
from pathlib import Path
from rlvr.artifacts.run_lock import lock_run

folder = Path(sys.argv[1])
with lock_run(folder):
    exec(sys.argv[2])
    print("ready", flush=True)
    time.sleep(600)
"""

Holder = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def hold() -> Iterator[Holder]:
    """Start a process that holds the lock of a directory."""
    processes: list[subprocess.Popen[str]] = []

    def start(folder: Path, action: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), action], stdout=subprocess.PIPE, text=True, cwd=folder.parent
        )
        processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
def test_a_second_process_is_refused_with_process_host_and_fix(hold: Holder, tmp_path: Path) -> None:
    process = hold(tmp_path / "run")
    for attempt in (lambda: lock_run(tmp_path / "run").__enter__(), lambda: refuse_if_in_use(tmp_path / "run")):
        with input_error("run-in-use", "output_dir") as refused:
            attempt()
        for part in (str(process.pid), socket.gethostname(), str(tmp_path / "run"), "output_dir"):
            assert part in str(refused.value)
    assert not (tmp_path / "run").exists(), "a refusal writes nothing"


FORK = """
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
folder.with_name("child").write_text(str(child))
"""


def test_a_killed_holder_frees_the_lock_though_its_children_live(hold: Holder, tmp_path: Path) -> None:
    process = hold(tmp_path / "run", FORK)
    process.kill()
    process.wait()
    child = int((tmp_path / "child").read_text())
    try:
        with lock_run(tmp_path / "run"):
            os.kill(child, 0)  # it lives
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_renamed_directory_stays_locked(hold: Holder, tmp_path: Path) -> None:
    hold(tmp_path / "run", "folder.mkdir(); folder.rename(folder.with_name('moved')); folder.mkdir()")
    with pytest.raises(InputError):
        refuse_if_in_use(tmp_path / "run")


def test_all_paths_of_a_directory_have_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    monkeypatch.chdir(tmp_path)
    assert len({lock_file(path) for path in (Path("run"), Path("link"), tmp_path / "x" / ".." / "run")}) == 1


def test_a_directory_that_cannot_be_renamed_holds_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda path: True)
    assert lock_file(tmp_path / "run").parent == tmp_path / "run"


def test_the_holder_may_enter_again_and_keeps_its_lock(tmp_path: Path) -> None:
    with lock_run(tmp_path / "run"):
        with lock_run(tmp_path / "run"):
            refuse_if_in_use(tmp_path / "run")
        assert is_refused_in_a_new_process(tmp_path / "run")
    assert not is_refused_in_a_new_process(tmp_path / "run"), "it is free afterwards"
    assert not list(tmp_path.iterdir()), "nothing is left"


def is_refused_in_a_new_process(folder: Path) -> bool:
    code = "import sys, pathlib; from rlvr.artifacts.run_lock import *; refuse_if_in_use(pathlib.Path(sys.argv[1]))"
    return subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True).returncode != 0


def test_a_lock_file_that_was_deleted_meanwhile_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that held it before may delete it after this one has opened it."""
    attempts = []

    def after_deletion(descriptor: int, kind: int) -> bool:
        attempts.append(descriptor)
        if len(attempts) == 1:
            run_lock.lock_file(tmp_path / "run").unlink()
        return try_lock(descriptor, kind)

    try_lock = run_lock._try_lock
    monkeypatch.setattr(run_lock, "_try_lock", after_deletion)
    with lock_run(tmp_path / "run"):
        assert is_refused_in_a_new_process(tmp_path / "run")


def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsupported(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", unsupported)
    with lock_run(tmp_path / "run"):
        refuse_if_in_use(tmp_path / "run")
    assert "warning: " in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with input_error("unwritable", "output_dir"), lock_run(tmp_path / "file" / "run"):
        pass
