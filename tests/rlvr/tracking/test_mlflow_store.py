"""A local MLflow store is whole or absent, whenever whoever makes it is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from rlvr.tracking.mlflow_store import make_store


def kill_while_it_is_made(file: Path, size: int) -> None:
    """Begins to make a store and kills everybody at it when so many bytes are there."""
    maker = os.fork()
    if maker == 0:
        os.setsid()
        make_store(f"sqlite:///{file}")
        os._exit(0)
    until = time.monotonic() + 100
    beside = file.with_name(f".{file.name}.{maker}.new")
    while not beside.exists() or beside.stat().st_size < size:
        assert time.monotonic() < until and not file.exists()
        time.sleep(0.002)
    os.killpg(maker, signal.SIGKILL)
    os.waitpid(maker, 0)


@pytest.mark.slow
def test_a_store_that_was_being_made_when_its_maker_was_killed_is_made_anew(tmp_path: Path) -> None:
    import mlflow  # noqa: F401  here, so that no fork imports it for itself

    file = tmp_path / "mlflow.db"
    for size in (1, 200_000, 300_000):
        kill_while_it_is_made(file, size)
        assert not file.exists() and list(tmp_path.glob(".mlflow.db.*.new")), "half of it is beside its place"
    make_store(f"sqlite:///{file}")
    with sqlite3.connect(file) as database:
        assert database.execute("select name from experiments").fetchall() == [("Default",)]
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"], "what was left beside it is gone"


def test_a_store_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("somebody's")
    make_store(f"sqlite:///{tmp_path}/mlflow.db")
    make_store("http://127.0.0.1:1")
    make_store(f"sqlite:///{tmp_path}/nowhere/mlflow.db")
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]
    assert (tmp_path / "mlflow.db").read_text() == "somebody's"
