"""A run that was stopped, killed, or ended by its reward, and continued, equals one that was left alone, to the bit."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import DEMO, LORA, Launch, Start, accelerated, adapter, metrics

pytestmark = pytest.mark.slow

STEPS = 8
FAILS_AFTER = 5  # no step of a periodic checkpoint
# The demonstration's recipe, its 4-bit weights and its rewards too, with fewer and smaller steps, four an epoch. Its
# answers are cut short and more random, and the reward that tells such ones apart runs in workers as the others do.
WORDS = (
    *("--task.train_rows", "16", "--task.test_rows", "8", "--max_completion_length", "12"),
    *("--config", DEMO, "--evaluation", "null", "--max_steps", STEPS, "--per_device_train_batch_size", "16"),
    *("--temperature", "2.0", "--mask_truncated_completions", "false", "--save_strategy", "steps", "--save_steps", "3"),
)
BY_TEXT = """
import pathlib
import zlib

def by_text(completions, trainer_state, **kwargs):
    faulty = pathlib.Path(__file__).with_name("faulty")  # from which step on
    if faulty.exists() and trainer_state.global_step >= int(faulty.read_text()):
        raise ValueError("a rare answer")
    return [zlib.crc32(completion[-1]["content"].encode()) % 100 / 100 for completion in completions]
"""


@dataclass
class Story:
    """A run left alone, and the same with three interruptions; two under ZeRO-3, where a rank's error is not special.

    Attributes:
        alone: the first one's run directory.
        run: the other's.
        terminated: its first launch, of which one rank was told to stop.
        failed: its second, which the reward ended; only under DDP.
        killed: its third, of which everybody was killed.
        last: its fourth.
        complete: the steps of the complete checkpoints that the third left.
        half: whether it left one that is not complete.
        store: the MLflow store of the interrupted run; only under DDP, since only the first process ever speaks to it.
    """

    alone: Path
    run: Path
    terminated: Launch
    failed: Launch | None
    killed: Launch
    last: Launch
    complete: list[int]
    half: bool
    store: Path | None


@pytest.fixture(scope="module", params=("ddp", "zero3"))
def story(request: pytest.FixtureRequest, start: Start, tmp_path_factory: pytest.TempPathFactory) -> Story:
    launcher = request.param
    folder = tmp_path_factory.mktemp(launcher)
    (folder / "by_text.py").write_text(BY_TEXT)
    rewards = json.dumps([{"name": name} for name in ("math_correctness", "answer_format", f"{folder}/by_text.py")])
    words = accelerated(launcher, *map(str, WORDS), "--rewards", rewards, *(LORA if launcher == "ddp" else ()))
    alone = start([*words, "--report_to", "none"], folder / "alone", WITHOUT_REPORT="1").wait()
    assert alone.codes() == [0, 0], alone.output()

    store = folder / "mlflow.db" if launcher == "ddp" else None
    words = [*words, "--report_to", "mlflow" if store else "none"]
    environment = {"WITHOUT_REPORT": "1"} | ({"MLFLOW_TRACKING_URI": f"sqlite:///{store}"} if store else {})
    run = folder / "interrupted"
    terminated = start(words, run, **environment)
    terminated.wait_for_lines(2)
    terminated.signal(signal.SIGTERM, rank=1)
    terminated.wait()
    failed = None
    if launcher == "ddp":
        (folder / "faulty").write_text(str(FAILS_AFTER))
        failed = start(words, run, **environment).wait()
        (folder / "faulty").unlink()
    killed = start(words, run, **environment)
    if launcher == "ddp":
        killed.wait_for_lines(6)
    else:
        killed.wait_until(lambda: (run / "checkpoint-6").is_dir(), "checkpoint of step 6")
    killed.kill()
    found = {int(path.name[11:]): (path / "complete.json").is_file() for path in run.glob("checkpoint-*")}
    complete = sorted(step for step, whole in found.items() if whole)
    last = start(words, run, **environment).wait()
    return Story(alone.run, run, terminated, failed, killed, last, complete, not all(found.values()), store)


def test_a_rank_that_is_told_to_stop_stops_all_with_a_checkpoint(story: Story) -> None:
    assert story.terminated.codes() == [75, 75], story.terminated.output()
    assert "is complete: the same command continues from it" in story.terminated.output()


@pytest.mark.parametrize("story", ["ddp"], indirect=True)
def test_a_reward_that_fails_ends_all_ranks_with_a_checkpoint_of_the_last_finished_step(story: Story) -> None:
    assert story.failed is not None and story.failed.codes() == [1, 1], story.failed.output()
    output = story.failed.output()
    [step] = re.findall(r"continues from .*/checkpoint-(\d+), step \1", output)
    assert 2 <= int(step) < FAILS_AFTER, "the step at hand when the signal came"
    assert "a rare answer" in output and f"Saving a checkpoint of step {FAILS_AFTER}" in output


def test_each_start_continues_where_the_one_before_left_off(story: Story) -> None:
    assert story.killed.codes() == [-signal.SIGKILL] * 2 and story.last.codes() == [0, 0], story.last.output()
    [step] = re.findall(r"continues from .*/checkpoint-(\d+), step \1", story.killed.output())
    assert int(step) == FAILS_AFTER if story.failed else 2 <= int(step) <= 3, "the last finished step"
    [step] = re.findall(r"continues from .*/checkpoint-(\d+), step \1", story.last.output())
    assert int(step) == story.complete[-1] >= 3, "at most the steps since the last checkpoint are lost"
    assert ("checkpoint-6 is skipped" in story.last.output()) == story.half


def test_metrics_are_those_of_the_run_that_was_left_alone(story: Story) -> None:
    alone, interrupted = (without_times(metrics(run)) for run in (story.alone, story.run))
    assert [line["step"] for line in interrupted] == list(range(1, STEPS + 1)), "neither holes nor repeats"
    assert interrupted == alone, "to the last digit"
    assert len({line["reward"] for line in alone}) == STEPS and any(line["grad_norm"] > 0 for line in alone)


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if not is_time(key)} for line in lines]


def is_time(key: str) -> bool:
    return key in ("time", "step_time") or key.startswith("time/")


def test_prompts_completions_and_rewards_are_those_of_the_run_that_was_left_alone(story: Story) -> None:
    import pyarrow.parquet

    alone, interrupted = (
        {file.name: pyarrow.parquet.read_table(file).to_pylist() for file in (run / "completions").glob("*.parquet")}
        for run in (story.alone, story.run)
    )
    assert len(alone) == STEPS
    assert interrupted == alone


def test_the_adapter_is_that_of_the_run_that_was_left_alone(story: Story) -> None:
    import torch

    alone, interrupted = adapter(story.alone), adapter(story.run)
    assert alone.keys() == interrupted.keys()
    assert all(torch.equal(interrupted[name], alone[name]) for name in alone)
    assert all(tensor.any() for tensor in alone.values()), "B begins as zeros"


@pytest.mark.parametrize("story", ["ddp"], indirect=True)
def test_mlflow_has_one_run_with_every_figure_once(story: Story) -> None:
    from rlvr.tracking.metrics_tail import metrics_of

    assert story.store is not None
    with sqlite3.connect(story.store) as database:
        # A first session that ends while MLflow creates its run leaves an empty one.
        filled = "select name, status from runs where run_uuid in (select run_uuid from metrics)"
        runs = database.execute(filled).fetchall()
        sent = database.execute("select key, step, value from metrics order by key, step").fetchall()
    assert runs == [("interrupted", "FINISHED")]
    had = [(name, line["step"], value) for line in metrics(story.run) for name, value in metrics_of(line).items()]
    assert [name_and_step for *name_and_step, _ in sent] == [name_and_step for *name_and_step, _ in sorted(had)]
    # A step that was made twice was sent once, with the seconds of the first time.
    assert [one for one in sent if not is_time(one[0])] == [one for one in sorted(had) if not is_time(one[0])]
