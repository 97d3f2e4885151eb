"""A local MLflow store is complete or absent, whenever its creation is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from rlvr.tracking.mlflow_store import make_store


def kill_during_creation(file: Path, size: int) -> None:
    """Start creating a store, and kill all its processes when the file has this size."""
    creator = os.fork()
    if creator == 0:
        os.setsid()
        make_store(f"sqlite:///{file}")
        os._exit(0)
    until = time.monotonic() + 100
    temporary = file.with_name(f".{file.name}.{creator}.new")
    while not temporary.exists() or temporary.stat().st_size < size:
        assert time.monotonic() < until and not file.exists()
        time.sleep(0.002)
    os.killpg(creator, signal.SIGKILL)
    os.waitpid(creator, 0)


@pytest.mark.slow
def test_a_store_whose_creation_was_killed_is_created_again(tmp_path: Path) -> None:
    import mlflow  # noqa: F401  before the forks, which would import it again

    file = tmp_path / "mlflow.db"
    for size in (1, 200_000, 300_000):
        kill_during_creation(file, size)
        assert not file.exists() and list(tmp_path.glob(".mlflow.db.*.new")), "an incomplete temporary file"
    make_store(f"sqlite:///{file}")
    with sqlite3.connect(file) as database:
        assert database.execute("select name from experiments").fetchall() == [("Default",)]
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"], "temporary files are removed"


def test_an_existing_store_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("somebody's")
    make_store(f"sqlite:///{tmp_path}/mlflow.db")
    make_store("http://127.0.0.1:1")
    make_store(f"sqlite:///{tmp_path}/nowhere/mlflow.db")
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]
    assert (tmp_path / "mlflow.db").read_text() == "somebody's"
