"""MLflow gets all metrics in the end, and training never waits for it."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.tracking import mlflow_tracker
from rlvr.tracking.final_results import add_results
from rlvr.tracking.mlflow_tracker import MLflowTracker
from rlvr.tracking.tracked_run import default_tracking_uri
from rlvr.training.callbacks import MetricsFile
from tests.rlvr.tracking.test_final_results import EVALUATION
from tests.rlvr.tracking.test_mlflow_run import losses
from tests.support.input_errors import input_error
from tests.support.mlflow_server import Server

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE_S = 300.0  # timeout of a start; the machine may be very busy


class Session:
    """A training process: starts at a step, logs to the real MetricsFile and the tracker, ends."""

    def __init__(self, folder: Path, uri: str, first_step: int = 0, **params: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.state: Any = SimpleNamespace(is_world_process_zero=True, global_step=first_step, log_history=[])
        self.tracker = MLflowTracker(folder, uri, params, tags={"task": "sums"})
        self.tracker.start()
        self.metrics = MetricsFile(folder / "metrics.jsonl")
        self.metrics.on_train_begin(None, self.state, None)

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.state.global_step += 1
            self.log({"loss": self.state.global_step / 10})

    def log(self, logs: dict[str, Any]) -> None:
        self.metrics.on_log(None, self.state, None, logs=logs)

    def crash(self) -> None:
        """End as by kill -9: the tracking process sees the end of its standard input."""
        process = self.tracker._process
        assert process is not None and process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE_S)


def wait_for(happened: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until, f"it never happened; {'; '.join(_said.values())}"
        time.sleep(0.02)


def wait_for_words(capfd: pytest.CaptureFixture[str], words: str, times: int = 1) -> None:
    wait_for(lambda: said(capfd).count(words) >= times)


@pytest.mark.slow
def test_training_does_not_wait_for_a_hanging_server_and_no_metric_is_lost(
    tmp_path: Path, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    server.behaviour = "hangs"
    session = Session(tmp_path / "run", server.uri)
    wait_for(lambda: server.held)
    session.steps(5)
    assert server.behaviour == "hangs" and server.metrics() == [], "five steps ended during the request"
    server.behaviour = "works"
    wait_for(lambda: len(server.metrics()) == 5)
    # The server dies during the run, and restarts at the same address.
    port = server.port
    server.stop()
    session.steps(2)
    wait_for_words(capfd, "Connection refused")
    session.steps(1)
    server.start(port)
    wait_for_words(capfd, "works again")
    # It answers with errors.
    server.behaviour = "fails"
    session.steps(2)
    wait_for_words(capfd, "too many 500 error responses")
    server.behaviour = "works"
    session.tracker.close("FINISHED", timeout_s=PATIENCE_S)
    words = said(capfd)
    assert server.metrics() == losses(*range(1, 11))
    assert server.runs["run0"]["info"]["status"] == "FINISHED"
    assert words.count("Connection refused). Training goes on; metrics.jsonl has everything") == 1
    assert words.count("works again") == 2
    assert "hush" not in words and "somebody" not in words and str(server.port) in words


_said: dict[int, str] = {}


def said(capfd: pytest.CaptureFixture[str]) -> str:
    """All output of this test so far."""
    _said[id(capfd)] = _said.get(id(capfd), "") + "".join(capfd.readouterr())
    return _said[id(capfd)]


@pytest.mark.slow
def test_sessions_share_a_run_and_repeated_steps_are_sent_once(tmp_path: Path, server: Server) -> None:
    session = Session(tmp_path / "run", server.uri, max_steps=6, seed=1)
    session.steps(4)
    session.log({"eval_reward": 0.5})
    wait_for(lambda: len(server.metrics()) == 5)
    port = server.port
    server.stop()
    session.steps(1)  # not sent before the run is killed
    session.crash()
    server.start(port)
    session = Session(tmp_path / "run", server.uri, first_step=2, max_steps=7, seed=1)
    session.steps(2)
    session.log({"eval_reward": 0.5, "eval_length": 9})
    session.steps(2)
    session.tracker.close("FINISHED", timeout_s=PATIENCE_S)
    assert server.metrics() == [*losses(1, 2, 3, 4), ("eval_reward", 4, 0.5), ("eval_length", 4, 9), *losses(5, 6)]
    assert list(server.runs) == ["run0"]
    run = server.runs["run0"]
    assert (run["info"]["status"], run["params"]) == ("FINISHED", {"max_steps": "6", "seed": "1"})
    assert run["tags"]["resumed.max_steps"] == "7", "MLflow's params can't change"


@pytest.mark.slow
def test_a_wrong_uri_is_reported_once_and_closing_keeps_its_timeout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = Session(tmp_path / "run", "no-such-scheme://u:hush@x")
    session.steps(3)
    wait_for_words(capfd, "Training goes on")
    start = time.monotonic()
    session.tracker.close("FINISHED", timeout_s=1.0)
    assert time.monotonic() - start < 60, "the timeout holds"
    lines = said(capfd).splitlines()
    assert "MLflow at no-such-scheme://x fails (" in lines[0] and "hush" not in lines[0]
    assert len(lines) == 2 and "may lack the last metrics" in lines[1]


@pytest.mark.slow
def test_the_backlog_of_a_process_that_died_is_sent_at_the_end_in_few_requests(tmp_path: Path, server: Server) -> None:
    server.behaviour = "hangs"
    session = Session(tmp_path / "run", server.uri)
    wait_for(lambda: server.held)
    session.steps(2500)
    process = session.tracker._process
    assert process is not None
    process.kill()
    process.wait()
    server.behaviour = "works"
    session.steps(1)
    session.tracker.close("FINISHED", timeout_s=PATIENCE_S)
    assert server.metrics() == losses(*range(1, 2502))
    assert server.runs["run0"]["requests"] <= 6


@pytest.mark.slow
def test_the_process_ends_with_a_killed_trainer(tmp_path: Path, server: Server) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 5.0, "loss": 0.1}\n')
    program = f"""
        import time
        from pathlib import Path
        from rlvr.tracking.mlflow_tracker import MLflowTracker
        tracker = MLflowTracker(Path({str(tmp_path)!r}), {server.uri!r}, {{}}, {{}})
        tracker.start()
        print(tracker._process.pid, flush=True)
        time.sleep(600)
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=REPOSITORY) as trainer:
        assert trainer.stdout is not None
        status = Path(f"/proc/{int(trainer.stdout.readline())}/status")
        wait_for(server.metrics)
        trainer.kill()
    wait_for(lambda: not status.exists() or "(zombie)" in status.read_text())
    assert server.runs["run0"]["info"]["status"] == "KILLED"


def sent_steps(store: Path) -> list[int]:
    if not store.exists():
        return []
    with sqlite3.connect(store) as database:
        return [step for (step,) in database.execute("select step from metrics order by step")]


@pytest.mark.slow
def test_a_local_store_gets_all_metrics_in_spite_of_a_full_disk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs" / "one"
    uri = default_tracking_uri(folder)
    session = Session(folder, uri, learning_rate=1e-6)
    store = tmp_path / "runs" / "mlflow.db"
    session.steps(2)
    wait_for(lambda: sent_steps(store) == [1, 2])
    # No file of the tracking process can grow: SQLite sees a full disk.
    process = session.tracker._process
    assert process is not None
    limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    session.steps(1)
    wait_for_words(capfd, "MLflow at sqlite:///")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
    (folder / "recipe.yaml").write_text("seed: 1\nrewards:\n- options:\n    api_key: hush-hush\n")
    (folder / "completions").mkdir()
    (folder / "completions" / "completions_00001.parquet").write_bytes(b"PAR1")
    (folder / "evaluation.json").write_text(json.dumps(EVALUATION))
    session.tracker.close("FINISHED", timeout_s=PATIENCE_S)
    assert add_results(folder, folder, has_ended=True) == [f"added to the run in MLflow at {uri}"]

    with sqlite3.connect(store) as database:
        (run,) = database.execute("select run_uuid, name, status, artifact_uri from runs").fetchall()
        metrics = database.execute("select key, step, value from metrics order by step, key").fetchall()
        params = database.execute("select key, value from params").fetchall()
    assert run[1:3] == ("one", "FINISHED")
    assert [metric for metric in metrics if metric[0] == "loss"] == losses(1, 2, 3)
    assert ("eval/difference", 3, 0.5) in metrics
    assert params == [("learning_rate", "1e-06")]
    artifacts = Path(urlsplit(run[3]).path)
    assert artifacts.is_relative_to(tmp_path / "runs" / "mlartifacts"), "not in the working directory"
    found = {str(path.relative_to(artifacts)) for path in artifacts.rglob("*") if path.is_file()}
    assert found == {"recipe.yaml", "evaluation.json", "metrics.jsonl", "completions/completions_00001.parquet"}
    recipe = (artifacts / "recipe.yaml").read_text()
    assert "hush" not in recipe and "seed: 1" in recipe


def test_params_are_the_recipe_redact() -> None:
    recipe = {
        "learning_rate": 1e-6,
        "task": {"name": "gsm8k", "shots": 8},
        "rewards": [{"name": "judge", "weight": 1.0, "options": {"api_key": "hush", "model": "x" * 600}}],
        "report_to": ["mlflow", "wandb"],
    }
    assert mlflow_tracker.flatten_params(recipe) == {
        "learning_rate": "1e-06",
        "task.name": "gsm8k",
        "task.shots": "8",
        "rewards.judge.weight": "1.0",
        "rewards.judge.options.model": "x" * 500,
        "report_to": "['mlflow', 'wandb']",
    }


def test_the_users_variables_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"output_dir": str(tmp_path / "run"), "report_to": "mlflow", "model_name_or_path": "m"}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://a:b@mine")
    monkeypatch.setenv("MLFLOW_TAGS", '{"team": "nlp", "recipe": "other"}')
    tracker = mlflow_tracker.make_tracker(recipe)
    assert tracker is not None
    assert tracker.settings["tracking_uri"] == "http://a:b@mine"
    assert tracker.settings["tags"] == {"recipe": "other", "team": "nlp"}
    monkeypatch.setenv("MLFLOW_TAGS", "team=nlp")
    with input_error("invalid-variable", match="MLFLOW_TAGS"):
        mlflow_tracker.make_tracker(recipe)


def test_a_recipe_without_mlflow_has_no_tracker(tmp_path: Path) -> None:
    settings = {"output_dir": str(tmp_path / "run"), "report_to": ["tensorboard"]}
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
    assert mlflow_tracker.make_tracker(recipe) is None
