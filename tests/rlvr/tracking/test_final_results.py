"""Results that are measured after a run go to its run in each tracker, and to no other one."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rlvr import evaluate_models
from rlvr.artifacts.evaluation import read_evaluation
from rlvr.errors import InputError
from rlvr.tracking import mlflow_run
from rlvr.tracking.final_results import Results, _collect, add_results, metrics_of_results
from rlvr.tracking.tracked_run import default_tracking_uri, remember_run, store_file, tracked_run
from tests.support.input_errors import input_error

EVALUATION = {
    "base": {"accuracy": 0.25, "rows": 4, "correct": 1, "interval": {"low": 0.1, "high": 0.5}},
    "trained": {"accuracy": 0.75, "rows": 4, "correct": 3, "interval": {"low": 0.5, "high": 0.9}},
    "difference": {"points": 0.5, "interval": {"low": -0.1, "high": 0.9}, "gained": 2, "lost": 0},
}


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_metrics_have_intervals(tmp_path: Path) -> None:
    write(tmp_path / "evaluation.json", EVALUATION)
    assert metrics_of_results(read_evaluation(tmp_path)) == {
        "eval/base_accuracy": 0.25,
        "eval/base_accuracy_low": 0.1,
        "eval/base_accuracy_high": 0.5,
        "eval/accuracy": 0.75,
        "eval/accuracy_low": 0.5,
        "eval/accuracy_high": 0.9,
        "eval/difference": 0.5,
        "eval/difference_low": -0.1,
        "eval/difference_high": 0.9,
    }


def test_an_evaluation_belongs_to_the_run_of_its_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Path] = []
    monkeypatch.setattr("rlvr.tracking.final_results.add_results", lambda run, *_: runs.append(run) or [])
    for adapter in (tmp_path / "run" / "adapter", None):
        for limit in (None, 100):  # an evaluation of the first rows must not replace the value of all
            evaluate_models._update_run(tmp_path / "other", adapter, limit)
    assert runs == [tmp_path / "run", tmp_path / "other"]


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new store. MLflow needs seconds to create one, so the tests copy it."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def run_dir(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory with an MLflow run in the store beside it, as after training."""
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    shutil.copyfile(empty_store, tmp_path / "runs" / "mlflow.db")
    client = MlflowClient(tracking_uri=default_tracking_uri(folder))
    experiment = client.create_experiment("e", artifact_location=(tmp_path / "artifacts").as_uri())
    run_id = client.create_run(experiment).info.run_id
    remember_run(folder, "mlflow", run_id=run_id)
    client.set_terminated(run_id, "FINISHED")
    return folder


@pytest.mark.slow
def test_a_later_evaluation_and_its_files_are_added_to_the_run(tmp_path: Path, run_dir: Path) -> None:
    write(run_dir / "evaluation.json", EVALUATION | {"decoding": "greedy"})
    for name in ("report.html", "completions/evaluation_base.parquet", "completions/completions_1.parquet"):
        write(run_dir / name, name)
    uri = default_tracking_uri(run_dir)
    assert add_results(run_dir, run_dir) == [f"added to the run in MLflow at {uri}"]
    elsewhere = tmp_path / "evaluations" / "hundred"
    write(elsewhere / "evaluation.json", EVALUATION)
    mlflow_run.send_results(run_dir, _collect(run_dir, elsewhere, tmp_path, all_answers=False))
    file = store_file(uri)
    assert file is not None
    with sqlite3.connect(file) as database:
        metrics = dict(database.execute("select key, value from latest_metrics").fetchall())
        tags = dict(database.execute("select key, value from tags").fetchall())
        status = database.execute("select status from runs").fetchone()
    assert metrics["eval/accuracy"] == 0.75 and metrics["eval/difference_low"] == -0.1
    assert metrics["eval/hundred/accuracy"] == 0.75, "results of another folder do not replace the run's own"
    assert "went from 25.0 % to 75.0 %" in tags["mlflow.note.content"]
    assert status == ("FINISHED",)
    artifacts = next((tmp_path / "artifacts").glob("*/artifacts"))
    assert {str(path.relative_to(artifacts)) for path in artifacts.rglob("*") if path.is_file()} == {
        "evaluation.json",
        "report.html",
        "completions/evaluation_base.parquet",
        "evaluations/hundred/evaluation.json",
    }


@pytest.mark.slow
def test_a_description_of_the_user_is_kept(run_dir: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=default_tracking_uri(run_dir))
    run_id = tracked_run(run_dir, "mlflow")["run_id"]
    for sentence in ("It rose.", "It rose more."):
        mlflow_run.send_results(run_dir, Results(verdict=sentence))
        assert client.get_run(run_id).data.tags["mlflow.note.content"] == sentence
    client.set_tag(run_id, "mlflow.note.content", "my favourite")
    mlflow_run.send_results(run_dir, Results(verdict="It fell."))
    assert client.get_run(run_id).data.tags["mlflow.note.content"] == "my favourite"


def test_a_missing_store_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = tmp_path / "runs" / "one"
    write(run / "evaluation.json", EVALUATION)
    assert add_results(run, run) == [], "the run was never in MLflow"
    remember_run(run, "mlflow", run_id="abc")
    moved = shutil.copytree(run, tmp_path / "moved")
    assert add_results(moved, moved) == [
        f"Not sent to MLflow: its mlflow.json belongs to {run}, of which this is a copy."
    ]
    with pytest.raises(InputError, match="MLFLOW_TRACKING_URI"):
        mlflow_run.send_results(run, Results())
    assert not (tmp_path / "runs" / "mlflow.db").exists()


@pytest.mark.slow
def test_a_dead_server_and_a_deleted_run_are_reported(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tracked_run(run_dir, "mlflow")
    remember_run(run_dir, "mlflow", run_id="gone")
    with input_error("run-not-found"):
        mlflow_run.send_results(run_dir, Results())
    remember_run(run_dir, "mlflow", run_id=run["run_id"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://u:hush@127.0.0.1:1")
    assert add_results(run_dir, run_dir) == [
        "Not sent to MLflow at http://127.0.0.1:1: it fails (ConnectionRefusedError: [Errno 111] Connection refused)."
    ]


def test_the_store_of_a_run_is_beside_it_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "runs" / "one")
    for folder in (Path("."), Path("../one"), tmp_path / "runs" / "one"):
        assert store_file(default_tracking_uri(folder)) == tmp_path / "runs" / "mlflow.db"
