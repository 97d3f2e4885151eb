"""The trained model reaches hosts that do not share the main process's disk."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Command

PROGRAM = """
import sys
from pathlib import Path
from accelerate import PartialState
from rlvr.artifacts import host_copies

host_copies.CHUNK_BYTES = 1000
state = PartialState(cpu=True)
host_copies.copy_to_all_hosts(Path(sys.argv[1]), state)
state.destroy_process_group()
"""


def copy_on_two_hosts(command: Command, program: Path, folders: list[Path]) -> None:
    """Run one process per host, each the first of its host."""
    program.write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_RANK": "0"}
    processes = [
        subprocess.Popen(command(program, folder), env={**shared, "RANK": str(rank)}, text=True, stderr=subprocess.PIPE)
        for rank, folder in enumerate(folders)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_host_without_the_folder_gets_all_files_and_keeps_no_others(command: Command, tmp_path: Path) -> None:
    first, second = tmp_path / "0" / "model", tmp_path / "1" / "model"
    for path, data in ((first / "a", os.urandom(2500)), (first / "sub" / "b", b""), (second / "old", b"x")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    copy_on_two_hosts(command, tmp_path / "copy.py", [first, second])
    assert content(first).keys() == {"a", "sub/b"} and content(second) == content(first)


@pytest.mark.slow
def test_a_shared_folder_is_left_alone(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a").write_bytes(b"x" * 2500)
    before = (folder / "a").stat()
    copy_on_two_hosts(command, tmp_path / "copy.py", [folder, folder])
    after = (folder / "a").stat()
    assert content(folder).keys() == {"a"} and (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
