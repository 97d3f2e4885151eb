"""What was measured after a run is added to its MLflow run, and to no other store."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rlvr.errors import InputError
from rlvr.tracking import mlflow_results
from rlvr.tracking.mlflow_ledger import SentMetrics
from rlvr.tracking.mlflow_results import add_page, add_to_run, metrics_of_results, run_of
from rlvr.tracking.mlflow_store import default_tracking_uri, store_file

EVALUATION = {
    "base": {"accuracy": 0.25, "rows": 4, "correct": 1, "interval": {"low": 0.1, "high": 0.5}},
    "trained": {"accuracy": 0.75, "rows": 4, "correct": 3, "interval": {"low": 0.5, "high": 0.9}},
    "difference": {"points": 0.5, "interval": {"low": -0.1, "high": 0.9}, "gained": 2, "lost": 0},
}


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_every_figure_has_its_interval_and_a_sweep_has_shots_for_steps(tmp_path: Path) -> None:
    write(tmp_path / "evaluation.json", EVALUATION)
    write(tmp_path / "sweep.json", {"points": [{"shots": 8, "base": EVALUATION["base"]}, {"shots": None}, "x"]})
    assert metrics_of_results(tmp_path, 60) == [
        ("eval/base_accuracy", 0.25, 60),
        ("eval/base_accuracy_low", 0.1, 60),
        ("eval/base_accuracy_high", 0.5, 60),
        ("eval/accuracy", 0.75, 60),
        ("eval/accuracy_low", 0.5, 60),
        ("eval/accuracy_high", 0.9, 60),
        ("eval/difference", 0.5, 60),
        ("eval/difference_low", -0.1, 60),
        ("eval/difference_high", 0.9, 60),
        ("eval/by_shots/base_accuracy", 0.25, 8),
        ("eval/by_shots/base_accuracy_low", 0.1, 8),
        ("eval/by_shots/base_accuracy_high", 0.5, 8),
    ]


@pytest.mark.parametrize("content", [None, [], {"base": None}, {"base": {"accuracy": "high"}}, {"difference": 3}])
def test_no_malformed_evaluation_gives_a_figure(tmp_path: Path, content: Any) -> None:
    write(tmp_path / "evaluation.json", content)
    write(tmp_path / "sweep.json", {"points": content})
    assert metrics_of_results(tmp_path, 1) == []


def test_an_evaluation_belongs_to_the_run_that_it_lies_in_or_whose_adapter_it_measures(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run / "adapter", other):
        folder.mkdir(parents=True)
    assert run_of(other, run / "adapter") is None, "neither is in MLflow"
    SentMetrics(run).begin("abc")
    assert run_of(run) == run
    assert run_of(other, run / "adapter") == run
    assert run_of(other) is None


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new store, which MLflow takes seconds to make; the tests take copies."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def run_dir(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory whose run is in the store beside it, as after training."""
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    shutil.copyfile(empty_store, tmp_path / "runs" / "mlflow.db")
    client = MlflowClient(tracking_uri=default_tracking_uri(folder))
    experiment = client.create_experiment("e", artifact_location=(tmp_path / "artifacts").as_uri())
    ledger = SentMetrics(folder)
    ledger.step = 60
    ledger.run_id = client.create_run(experiment).info.run_id
    ledger.save()
    client.set_terminated(ledger.run_id, "FINISHED")
    return folder


def test_a_later_evaluation_its_plots_and_the_report_are_added_to_the_run(tmp_path: Path, run_dir: Path) -> None:
    write(run_dir / "evaluation.json", EVALUATION | {"decoding": "greedy"})
    for name in (
        "sweep.png",
        "report.html",
        "completions/evaluation_base.parquet",
        "completions/completions_1.parquet",
    ):
        write(run_dir / name, name)
    uri = default_tracking_uri(run_dir)
    assert add_to_run(run_dir, run_dir) == f"added to the run in MLflow at {uri}"
    elsewhere = tmp_path / "evaluations" / "hundred"
    write(elsewhere / "evaluation.json", EVALUATION)
    assert add_to_run(run_dir, elsewhere) == f"added to the run in MLflow at {uri}"
    file = store_file(uri)
    assert file is not None
    with sqlite3.connect(file) as database:
        metrics = dict(database.execute("select key, value from latest_metrics").fetchall())
        tags = dict(database.execute("select key, value from tags").fetchall())
        status = database.execute("select status from runs").fetchone()
    assert metrics["eval/accuracy"] == 0.75 and metrics["eval/difference_low"] == -0.1
    assert metrics["eval/hundred/accuracy"] == 0.75, "what was measured elsewhere doesn't replace what the run measured"
    assert "went from 25.0 % to 75.0 %" in tags["mlflow.note.content"]
    assert status == ("FINISHED",)
    artifacts = next((tmp_path / "artifacts").glob("*/artifacts"))
    assert {str(path.relative_to(artifacts)) for path in artifacts.rglob("*") if path.is_file()} == {
        "evaluation.json",
        "sweep.png",
        "report.html",
        "completions/evaluation_base.parquet",
        "evaluations/hundred/evaluation.json",
    }
    # A page that was made again takes the place of the first; one of a run that is going on waits for its end.
    write(run_dir / "report.html", "again")
    write(run_dir / "run.json", {"status": "running"})
    assert add_page(run_dir, run_dir / "report.html") is None
    write(run_dir / "run.json", {"status": "done"})
    assert add_page(run_dir, run_dir / "report.html") == f"added to the run in MLflow at {uri}"
    assert (artifacts / "report.html").read_text() == '"again"'


def test_a_description_that_somebody_wrote_is_kept(run_dir: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=default_tracking_uri(run_dir))
    run_id = SentMetrics(run_dir).run_id
    assert run_id is not None
    for sentence in ("It rose.", "It rose more."):
        mlflow_results.describe(client, run_id, sentence)
        assert client.get_run(run_id).data.tags["mlflow.note.content"] == sentence
    client.set_tag(run_id, "mlflow.note.content", "my favourite")
    mlflow_results.describe(client, run_id, "It fell.")
    assert client.get_run(run_id).data.tags["mlflow.note.content"] == "my favourite"


def test_where_there_is_no_store_none_is_made_and_a_page_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = tmp_path / "runs" / "one"
    write(run / "evaluation.json", EVALUATION)
    assert add_to_run(run, run) is None, "the run was never in MLflow"
    SentMetrics(run).begin("abc")
    said = add_to_run(run, run)
    assert said is not None and "there is no store sqlite:///" in said and "Set MLFLOW_TRACKING_URI" in said
    assert add_page(run, run / "report.html") is None
    assert not (tmp_path / "runs" / "mlflow.db").exists()


def test_a_server_that_is_down_and_a_run_that_is_gone_are_each_a_sentence(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"it has no run gone \(any more\)"):
        mlflow_results.send_results(default_tracking_uri(run_dir), "gone", [], [], "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://u:hush@127.0.0.1:1")
    said = add_to_run(run_dir, run_dir)
    assert said == "MLflow at http://127.0.0.1:1 has not got this: it refuses connections."


def test_the_store_of_a_run_lies_beside_it_wherever_it_is_called_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "runs" / "one")
    for folder in (Path("."), Path("../one"), tmp_path / "runs" / "one"):
        assert store_file(default_tracking_uri(folder)) == tmp_path / "runs" / "mlflow.db"
