"""MLflow gets all metrics in the end, and training never waits for it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.errors import InputError
from rlvr.tracking import mlflow_tracker
from rlvr.tracking.metrics_tail import MetricsTail
from rlvr.tracking.mlflow_ledger import SentMetrics, metric_name, metrics_of, unsent_lines
from rlvr.tracking.mlflow_messages import describe_error, redact, redact_uri
from rlvr.tracking.mlflow_process import MLflowRun
from rlvr.tracking.mlflow_tracker import MLflowTracker
from rlvr.training.callbacks import MetricsFile
from tests.support.mlflow_server import Server

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE_S = 300.0  # timeout of a start; the machine may be very busy


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "artifacts")
    yield made
    made.stop()


class Session:
    """A training process: starts at a step, logs to the real MetricsFile and the tracker, ends."""

    def __init__(self, folder: Path, uri: str, first_step: int = 0, **params: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.state: Any = SimpleNamespace(is_world_process_zero=True, global_step=first_step)
        self.tracker = MLflowTracker(
            run_name="run", params=params, tags={"task": "sums"}, folder=folder, tracking_uri=uri, experiment="sums"
        )
        self.callbacks: list[Any] = [MetricsFile(folder / "metrics.jsonl"), self.tracker]
        self.call("on_train_begin")

    def call(self, event: str, **kwargs: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(None, self.state, None, **kwargs)

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.state.global_step += 1
            self.log({"loss": self.state.global_step / 10})

    def log(self, logs: dict[str, Any]) -> None:
        self.call("on_log", logs=logs)

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


def wait_for_words(session: Session, capfd: pytest.CaptureFixture[str], words: str) -> None:
    def are_said() -> bool:
        session.log({})  # messages are printed at log events
        return words in said(capfd)

    wait_for(are_said)


def losses(*steps: int) -> list[tuple[str, int, float]]:
    return [("loss", step, step / 10) for step in steps]


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
    wait_for_words(session, capfd, "refuses connections")
    session.steps(1)
    server.start(port)
    wait_for_words(session, capfd, "works again: 3 log lines were sent late")
    # It answers with errors.
    server.behaviour = "fails"
    session.steps(2)
    wait_for_words(session, capfd, "answers with HTTP status 500")
    server.behaviour = "works"
    session.tracker.close("FINISHED", timeout_s=PATIENCE_S)
    words = said(capfd)
    assert server.metrics() == losses(*range(1, 11))
    assert server.runs["run0"]["info"]["status"] == "FINISHED"
    assert words.count("refuses connections. Training goes on; metrics.jsonl has everything") == 1
    assert words.count("works again: 2 log lines were sent late") == 1
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
def test_a_request_of_a_killed_session_is_not_sent_twice(tmp_path: Path, server: Server) -> None:
    session = Session(tmp_path / "run", server.uri)
    session.steps(2)
    wait_for(lambda: len(server.metrics()) == 2)
    server.behaviour = "hangs"
    session.steps(2)
    wait_for(lambda: server.held)
    process = session.tracker._process
    assert process is not None and process.stdin is not None
    process.stdin.close()  # the session is killed; its tracking process waits for the answer
    session = Session(tmp_path / "run", server.uri, first_step=2)
    session.steps(3)
    time.sleep(3)  # the new process would send the lines if it did not wait
    server.behaviour = "works"
    session.tracker.close("FINISHED", timeout_s=PATIENCE_S)
    process.wait(PATIENCE_S)
    assert server.metrics() == losses(1, 2, 3, 4, 5)


@pytest.mark.slow
def test_a_wrong_uri_is_reported_once_and_closing_keeps_its_timeout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = Session(tmp_path / "run", "no-such-scheme://u:hush@x")
    session.steps(3)
    wait_for_words(session, capfd, "Training goes on")
    start = time.monotonic()
    session.tracker.close("FINISHED", timeout_s=1.0)
    assert time.monotonic() - start < 60, "the timeout holds"
    lines = said(capfd).splitlines()
    assert "MLflow at no-such-scheme://x fails (" in lines[0] and "hush" not in lines[0]
    assert len(lines) == 2 and "3 lines of metrics" in lines[1]


def mlflow_run(folder: Path, server: Server, said: list[str]) -> MLflowRun:
    """The tracking process's run, in this process."""
    settings = {"run_name": "r", "params": {}, "tags": {}, "folder": folder, "experiment": "sums"}
    return MLflowRun(settings | {"tracking_uri": server.uri}, said.append)


def write_losses(folder: Path, *steps: int) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": step, "time": 1.0, "loss": step / 10}) + "\n" for step in steps)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set MLflow's timeouts as in the tracking process."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")


def test_a_deleted_run_is_replaced_by_a_complete_one(tmp_path: Path, server: Server, impatient: None) -> None:
    said: list[str] = []
    write_losses(tmp_path, 1, 2)
    first = mlflow_run(tmp_path, server, said)
    first.connect()
    assert first.send() == 2 and said == []
    del server.runs["run0"]
    write_losses(tmp_path, 3)
    with pytest.raises(Exception, match="RESOURCE_DOES_NOT_EXIST"):
        first.send()
    first.connect()
    assert first.send() == 3
    assert (list(server.runs), server.metrics("run1")) == (["run1"], losses(1, 2, 3))
    assert len(said) == 1 and "has no run run0" in said[0]


def test_a_run_whose_creation_was_not_confirmed_is_found_again(tmp_path: Path, server: Server, impatient: None) -> None:
    run = mlflow_run(tmp_path, server, [])
    server.behaviour = "loses"
    with pytest.raises(Exception, match="Connection aborted"):
        run.connect()
    server.behaviour = "works"
    run.connect()
    assert (list(server.runs), run.run_id) == (["run0"], "run0")


def test_metrics_that_the_server_rejects_block_no_others(tmp_path: Path, server: Server, impatient: None) -> None:
    said: list[str] = []
    run = mlflow_run(tmp_path, server, said)
    run.connect()
    write_losses(tmp_path, 1)
    (tmp_path / "metrics.jsonl").open("a").write('{"step": 1, "poison": 1}\n')
    write_losses(tmp_path, 2, 3)
    run.send()
    assert server.metrics() == losses(1, 2, 3)
    assert len(said) == 1 and "step 1" in said[0] and "INVALID_PARAMETER_VALUE: poison is no name" in said[0]


def test_an_incomplete_line_is_read_later(tmp_path: Path) -> None:
    write_losses(tmp_path, 1)
    file = tmp_path / "metrics.jsonl"
    file.open("a").write('{"step": 2, "lo')
    tail = MetricsTail(file)
    ((tail.offset, line),) = tail.lines()
    assert line["step"] == 1
    file.open("a").write('ss": 0.2}\n')
    assert [line["loss"] for _, line in tail.lines()] == [0.2]


@pytest.mark.slow
def test_a_backlog_takes_few_requests_and_a_dead_process_is_restarted(
    tmp_path: Path, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    server.behaviour = "hangs"
    session = Session(tmp_path / "run", server.uri)
    wait_for(lambda: server.held)
    session.steps(2500)
    process = session.tracker._process
    assert process is not None
    process.kill()
    process.wait()
    session.steps(1)  # restarts it
    server.behaviour = "works"
    session.tracker.close("FINISHED", timeout_s=PATIENCE_S)
    assert server.metrics() == losses(*range(1, 2502))
    assert server.runs["run0"]["requests"] <= 6
    assert said(capfd).count("the process that sends metrics died (exit status -9); restarting it") == 1


@pytest.mark.slow
def test_the_process_ends_with_a_killed_trainer(tmp_path: Path, server: Server) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 5.0, "loss": 0.1}\n')
    settings = {"run_name": "r", "params": {}, "tags": {}, "folder": str(tmp_path), "experiment": "sums"}
    commands = "".join(
        json.dumps(command) + "\n" for command in (settings | {"tracking_uri": server.uri}, {"do": "send"})
    )
    program = f"""
        import subprocess, sys, time
        words = [sys.executable, "-c", "from rlvr.tracking.mlflow_process import main; main()"]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, cwd={str(REPOSITORY)!r})
        process.stdin.write({commands.encode()!r})
        process.stdin.flush()
        print(process.pid, flush=True)
        time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        status = Path(f"/proc/{int(trainer.stdout.readline())}/status")
        wait_for(server.metrics)
        trainer.kill()
    wait_for(lambda: not status.exists() or "(zombie)" in status.read_text())
    assert server.runs["run0"]["info"]["status"] == "KILLED"


@pytest.mark.slow
def test_a_local_store_gets_all_metrics_in_spite_of_a_full_disk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs" / "one"
    uri = mlflow_tracker.default_tracking_uri(folder)
    session = Session(folder, uri, learning_rate=1e-6)
    store = tmp_path / "runs" / "mlflow.db"
    session.steps(2)
    wait_for(lambda: unsent_lines(folder) == 0)
    # No file of the tracking process can grow: SQLite sees a full disk.
    process = session.tracker._process
    assert process is not None
    limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    session.steps(1)
    wait_for_words(session, capfd, "MLflow at sqlite:///")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
    (folder / "recipe.yaml").write_text("seed: 1\nrewards:\n- options:\n    api_key: hush-hush\n")
    (folder / "completions").mkdir()
    (folder / "completions" / "completions_00001.parquet").write_bytes(b"PAR1")
    (folder / "evaluation.json").write_text(
        '{"base": {"accuracy": 0.25}, "trained": {"accuracy": 0.75}, "difference": {"points": 0.5}}'
    )
    session.tracker.close("FINISHED", timeout_s=PATIENCE_S)

    import sqlite3

    with sqlite3.connect(store) as database:
        (run,) = database.execute("select run_uuid, name, status, artifact_uri from runs").fetchall()
        metrics = database.execute("select key, step, value from metrics order by step, key").fetchall()
        params = database.execute("select key, value from params").fetchall()
    assert run[1:3] == ("run", "FINISHED")
    assert [metric for metric in metrics if metric[0] == "loss"] == losses(1, 2, 3)
    assert ("eval/difference", 3, 0.5) in metrics
    assert params == [("learning_rate", "1e-06")]
    artifacts = Path(urlsplit(run[3]).path)
    assert artifacts.is_relative_to(tmp_path / "runs" / "mlartifacts"), "not in the working directory"
    found = {str(path.relative_to(artifacts)) for path in artifacts.rglob("*") if path.is_file()}
    assert found == {"recipe.yaml", "evaluation.json", "metrics.jsonl", "completions/completions_00001.parquet"}
    recipe = (artifacts / "recipe.yaml").read_text()
    assert "hush" not in recipe and "seed: 1" in recipe


@pytest.mark.parametrize(
    ("uri", "words", "why"),
    [
        ("sqlite:////proc/nowhere/mlflow.db", "there is no such folder", "a folder that can't be made"),
        ("http://no-such-host.invalid", "unknown host name", "a misspelt server"),
        ("http://127.0.0.1:1", "refuses connections", "no server"),
        ("forbids", "HTTP status 403", "no permission, said by a proxy"),
    ],
)
def test_errors_of_libraries_become_short_causes(
    uri: str, words: str, why: str, server: Server, impatient: None
) -> None:
    from mlflow import MlflowClient

    if uri == "forbids":
        server.behaviour, uri = uri, server.uri
    with pytest.raises(Exception) as raised:
        MlflowClient(uri).get_experiment_by_name("x")
    assert words in describe_error(raised.value, uri), why


def test_other_ranks_do_not_track(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    tracker = MLflowTracker(run_name="r", params={}, tags={}, folder=tmp_path, tracking_uri="x", experiment="e")
    tracker.start()
    state: Any = SimpleNamespace(is_world_process_zero=False, global_step=0)
    nothing: Any = None
    tracker.on_train_begin(nothing, state, nothing)
    tracker.close("FINISHED")
    assert tracker._process is None and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "name", "why"),
    [
        ("rewards/math_correctness/mean", "rewards/math_correctness/mean", "as it is"),
        ("profiling/Time taken: step", "profiling/Time taken: step", "what MLflow accepts stays"),
        ("reward (mean)", "reward _mean_", "brackets"),
        ("/rewards//a/../b", "rewards/b", "MLflow refuses paths with detours"),
        ("größe", "größe", "letters of any language"),
        ("", "_", "nothing"),
    ],
)
def test_metric_names_are_accepted_by_mlflow(key: str, name: str, why: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert metric_name(key) == name, why
    _validate_metric_name(metric_name(key))


def test_two_metrics_never_get_one_name() -> None:
    line = {"step": 3, "time": 1.5, "a(b": 1, "a)b": 2, "none": None, "words": "x", "yes": True}
    assert metrics_of(line) == {"a_b": 1.0, "a_b_": 2.0}


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
        "rewards.judge.options.model": "x" * 499 + "…",
        "report_to": "['mlflow', 'wandb']",
    }


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://u:hush@host:5000/path", "http://host:5000/path"),
        ("http://u:hu/sh@host", "http://host"),
        ("http://u:h@ush@host", "http://host"),
        ("postgresql://u:p@host/db?password=hush", "postgresql://host/db"),
        ("sqlite:////runs/mlflow.db", "sqlite:////runs/mlflow.db"),
        ("arn:aws:sagemaker:eu-west-1:1:mlflow-app/x", "arn:aws:sagemaker:eu-west-1:1:mlflow-app/x"),
    ],
)
def test_an_address_is_shown_without_its_password(uri: str, shown: str) -> None:
    assert redact_uri(uri) == shown
    assert redact(f"can't reach {uri}: no", uri) == f"can't reach {shown}: no"


def test_a_password_in_a_message_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "quiet-please")
    words = "401 for u with password hush-hush, token quiet-please at http://u:hush-hush@host/x"
    assert redact(words, "http://u:hush-hush@host") == "401 for u with password …, token … at http://host/x"


def test_a_damaged_mlflow_json_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mlflow.json").write_text('{"run_id": "x", "st')
    sent = SentMetrics(tmp_path)
    assert (sent.run_id, sent.step) == (None, -1)


def test_the_users_variables_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"output_dir": str(tmp_path / "run"), "report_to": "mlflow", "model_name_or_path": "m"}
    recipe = Recipe(Path("r.yaml"), TaskSpec("t"), (RewardSpec("r"),), None, settings)
    for name, value in {
        "MLFLOW_TRACKING_URI": "http://a:b@mine",
        "MLFLOW_EXPERIMENT_NAME": "mine",
        "MLFLOW_RUN_ID": "abc",
        "MLFLOW_TAGS": '{"team": "nlp", "recipe": "other"}',
    }.items():
        monkeypatch.setenv(name, value)
    tracker = mlflow_tracker.make_tracker(recipe, {"sha": "1"})
    assert tracker is not None
    settings_sent = tracker._settings
    assert (settings_sent["tracking_uri"], settings_sent["experiment"]) == ("http://a:b@mine", "mine")
    assert settings_sent["run_id"] == "abc"
    assert settings_sent["tags"] == {"recipe": "other", "sha": "1", "team": "nlp"}
    monkeypatch.setenv("MLFLOW_TAGS", "team=nlp")
    with pytest.raises(InputError) as error:
        mlflow_tracker.make_tracker(recipe)
    assert error.value.kind == "invalid-variable" and "MLFLOW_TAGS" in str(error.value)


def test_a_recipe_without_mlflow_has_no_tracker(tmp_path: Path) -> None:
    settings = {"output_dir": str(tmp_path / "run"), "report_to": ["tensorboard"]}
    recipe = Recipe(Path("r.yaml"), TaskSpec("t"), (RewardSpec("r"),), None, settings)
    assert mlflow_tracker.make_tracker(recipe) is None
