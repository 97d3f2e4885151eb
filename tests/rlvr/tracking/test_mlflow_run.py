"""The MLflow run of a run directory is found again, and gets what it lacks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from rlvr.tracking.mlflow_run import MLflowRun, make_store
from rlvr.tracking.tracked_run import tracked_run
from tests.support.mlflow_server import Server


def mlflow_run(folder: Path, server: Server, said: list[str]) -> MLflowRun:
    settings = {"run_name": "r", "params": {}, "tags": {}, "folder": folder}
    return MLflowRun(settings | {"tracking_uri": server.uri}, said.append)


def write_losses(folder: Path, *steps: int) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": step, "time": 1.0, "loss": step / 10}) + "\n" for step in steps)


def losses(*steps: int) -> list[tuple[str, int, float]]:
    return [("loss", step, step / 10) for step in steps]


def test_a_deleted_run_is_replaced_by_a_complete_one(tmp_path: Path, server: Server) -> None:
    said: list[str] = []
    (tmp_path / "mlflow.json").write_text('{"run_id": "x", "st')  # damaged: as none
    run = mlflow_run(tmp_path, server, said)
    write_losses(tmp_path, 1, 2)
    run.update()
    assert (server.metrics(), said) == (losses(1, 2), [])
    del server.runs["run0"]
    write_losses(tmp_path, 3)
    with pytest.raises(Exception, match="RESOURCE_DOES_NOT_EXIST"):
        run.update()
    run.update()
    assert (list(server.runs), server.metrics("run1")) == (["run1"], losses(1, 2, 3))
    assert len(said) == 1 and "has no run run0" in said[0]


def test_a_copied_run_directory_has_a_run_of_its_own(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, copy, link = (tmp_path / name for name in ("original", "copy", "link"))
    original.mkdir()
    write_losses(original, 1)
    mlflow_run(original, server, []).update()
    shutil.copytree(original, copy)
    assert (tracked_run(original, "mlflow")["run_id"], tracked_run(copy, "mlflow")) == ("run0", {})
    write_losses(copy, 2)
    said: list[str] = []
    mlflow_run(copy, server, said).update()
    assert (server.metrics("run0"), server.metrics("run1"), said) == (losses(1), losses(1, 2), [])
    link.symlink_to(original)
    monkeypatch.chdir(original)
    for same in (original, link, Path(), tmp_path / "copy" / ".." / "original"):
        write_losses(original, len(server.metrics("run0")) + 1)
        mlflow_run(same, server, said).update()
    assert (list(server.runs), server.metrics("run0")) == (["run0", "run1"], losses(1, 2, 3, 4, 5))


def test_the_users_variables_choose_experiment_and_run(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    mlflow_run(tmp_path, server, []).update()
    assert server.experiments == ["mine"]
    monkeypatch.setenv("MLFLOW_RUN_ID", "run0")
    mlflow_run(tmp_path / "other", server, []).update()
    assert list(server.runs) == ["run0"]


def test_metrics_that_the_server_rejects_block_no_others(tmp_path: Path, server: Server) -> None:
    said: list[str] = []
    write_losses(tmp_path, 1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "poison": 1}\n')
    write_losses(tmp_path, 2, 3)
    mlflow_run(tmp_path, server, said).update()
    assert server.metrics() == losses(1, 2, 3)
    assert len(said) == 1 and "step 1" in said[0] and "INVALID_PARAMETER_VALUE: poison is no name" in said[0]


@pytest.mark.slow
def test_a_store_whose_creation_was_killed_is_created_again(tmp_path: Path) -> None:
    import mlflow  # noqa: F401  before the forks, which would import it again

    file = tmp_path / "mlflow.db"
    creator = os.fork()
    if creator == 0:
        make_store(f"sqlite:///{file}")
        os._exit(0)
    until = time.monotonic() + 100
    while not any(path.stat().st_size >= 200_000 for path in tmp_path.glob(".*/mlflow.db")):
        assert time.monotonic() < until and not file.exists()
        time.sleep(0.002)
    os.kill(creator, signal.SIGKILL)
    os.waitpid(creator, 0)
    assert not file.exists()
    make_store(f"sqlite:///{file}")
    with sqlite3.connect(file) as database:
        assert database.execute("select name from experiments").fetchall() == [("Default",)]


def test_an_existing_store_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("somebody's")
    make_store(f"sqlite:///{tmp_path}/mlflow.db")
    make_store("http://127.0.0.1:1")
    make_store(f"sqlite:///{tmp_path}/nowhere/mlflow.db")
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]
    assert (tmp_path / "mlflow.db").read_text() == "somebody's"
