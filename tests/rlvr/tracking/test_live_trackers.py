"""W&B and trackio, which log in the training process: one run over its sessions, at no risk."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerCallback

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.tracking import live_trackers
from rlvr.tracking.live_trackers import LiveTracker
from tests.conftest import REPOSITORY
from tests.rlvr.tracking.test_final_results import EVALUATION, write

# Two sessions of a run, of which the first is interrupted; then an evaluation in another folder. A process of its own:
# trackio reads TRACKIO_DIR when it is imported.
SESSIONS = """
import sys
from pathlib import Path
from types import SimpleNamespace

from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import TrackioCallback, WandbCallback

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.health import Finding
from rlvr.tracking.live_trackers import close_trackers, watch_trackers
from rlvr.tracking.final_results import add_results

where = [{"url": "http://me:hush@host"}]
settings = {"output_dir": "one", "seed": 7, "reward_backends": where, "hub_token": "hush", "project": "sums"}
recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)
finding = Finding("alarm", "cut-off", "completions/clipped_ratio", "all are cut off, " * 9, "Raise it.", 3)
arguments = TrainingArguments("one", report_to=["wandb", "trackio"], run_name="one", project="sums", use_cpu=True)
state, control = TrainerState(is_world_process_zero=True, max_steps=4), TrainerControl()
for step, outcome in enumerate(("KILLED", "FINISHED"), start=1):
    handler = SimpleNamespace(callbacks=[WandbCallback(), TrackioCallback()])
    alert = watch_trackers(SimpleNamespace(callback_handler=handler, args=arguments), recipe)
    state.global_step = step

    def call(event, **kwargs):
        for callback in handler.callbacks:
            getattr(callback, event)(arguments, state, control, **kwargs)

    call("on_train_begin")
    call("on_log", logs={"loss": 1.0})
    alert(finding)
    call("on_train_end")
    close_trackers(recipe, outcome, {})
assert arguments.report_to == ["wandb", "trackio"], "none was dropped"
add_results(Path("one"), Path("evaluations/gsm8k"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after SESSIONS, with run `one`, W&B's files and trackio's database."""
    folder = tmp_path_factory.mktemp("trackers")
    for results in ("one", "evaluations/gsm8k"):
        write(folder / results / "evaluation.json", EVALUATION)
    (folder / "one" / "recipe.yaml").write_text("vllm_server_base_url: http://me:hush@host\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "TRACKIO_"))}
    environment |= {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "TRACKIO_DIR": str(folder / "trackio")}
    environment["PYTHONPATH"] = str(REPOSITORY)
    words = [sys.executable, "-c", SESSIONS, "--url", "http://me:hush@host"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def wandb_records(folder: Path) -> list[Any]:
    """The records of all .wandb files, oldest first: LevelDB's log format in blocks of 32 kB, after a header."""
    from wandb.proto import wandb_internal_pb2

    records = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_ctime):
        data, at, text = file.read_bytes(), 7, b""
        while at + 7 <= len(data):
            if 32768 - at % 32768 < 7:
                at += 32768 - at % 32768
                continue
            length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
            text += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # a whole record, or its last part
                records.append(wandb_internal_pb2.Record.FromString(text))
                text = b""
    return records


@pytest.mark.slow
def test_wandb_has_one_run_with_alerts_results_and_files(folder: Path) -> None:
    records = wandb_records(folder)

    def of(kind: str) -> list[Any]:
        return [getattr(record, kind) for record in records if record.WhichOneof("record_type") == kind]

    assert {run.run_id for run in of("run")} == {json.loads((folder / "one" / "wandb.json").read_text())["run_id"]}
    config = {item.key: item.value_json for one in of("config") for item in one.update}
    assert json.loads(config["recipe"])["seed"] == 7
    assert [(alert.level, len(alert.title) < 64) for alert in of("alert")] == [("ERROR", True)] * 2
    summary = {item.key or "/".join(item.nested_key): item.value_json for one in of("summary") for item in one.update}
    assert summary["eval/accuracy"] == summary["eval/gsm8k/accuracy"] == "0.75" and "75.0 %" in summary["verdict"]
    files = [{entry.path for entry in artifact.manifest.contents} for artifact in of("artifact")]
    assert {"recipe.yaml", "evaluation.json"} in files and {"evaluation.json"} in files
    assert [exit.exit_code for exit in of("exit")] == [75, 0, 0, 0], "interrupted, finished, and two with results"


@pytest.mark.slow
def test_trackio_has_one_run_with_the_metrics_of_all_sessions(folder: Path) -> None:
    with sqlite3.connect(folder / "trackio" / "sums.db") as database:
        configs = database.execute("select * from configs").fetchall()
        lines = [json.loads(line) for (line,) in database.execute("select metrics from metrics")]
        runs = database.execute("select distinct run_name from metrics").fetchall()
    assert runs == [("one",)]
    assert b'"seed":7' in b"".join(column for row in configs for column in row if isinstance(column, bytes))
    assert [line["train/loss"] for line in lines] == [1, 1]


@pytest.mark.slow
def test_no_secret_of_the_recipe_or_the_command_line_reaches_a_tracker(folder: Path) -> None:
    places = [folder / name for name in ("wandb", "trackio")]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert files and [path for path in files if b"hush" in path.read_bytes()] == []


class Callback(TrainerCallback):
    """A tracker's callback that raises or hangs in `on_log`."""

    def __init__(self, hangs: bool) -> None:
        self.calls = 0
        self.hangs = hangs

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        if not self.hangs:
            raise ConnectionError("Connection refused")
        threading.Event().wait()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_tracker_that_refuses_or_hangs_is_dropped(
    hangs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_trackers, "WAIT_S", 0.2)
    recipe = Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, {"output_dir": str(tmp_path)})
    arguments = SimpleNamespace(to_dict=dict, report_to=["tensorboard", "clearml"])
    callback = Callback(hangs)
    tracker = LiveTracker("clearml", callback, recipe, arguments.report_to)
    for _ in range(2):
        tracker.on_log(arguments, SimpleNamespace(is_world_process_zero=True), None, logs={})
    assert (callback.calls, arguments.report_to) == (1, ["tensorboard"])
