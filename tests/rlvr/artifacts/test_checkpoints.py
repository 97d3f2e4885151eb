"""Only a complete checkpoint of the same run is continued, and whoever is refused is told why."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.artifacts import checkpoints, directory
from rlvr.artifacts.checkpoints import Identity, Resumption, RunStatus, choose
from rlvr.config.recipe import EvaluationSpec, Recipe, RewardSpec, TaskSpec
from rlvr.errors import InputError

ROWS = Dataset.from_dict({"prompt": ["one", "two"]})


def recipe(folder: Path, rewards: tuple[RewardSpec, ...] = (RewardSpec("r"),), **settings: Any) -> Recipe:
    known = {
        "model_name_or_path": "m",
        "output_dir": str(folder),
        "resume_from_checkpoint": "auto",
        "learning_rate": 1e-5,
        **settings,
    }
    return Recipe(Path("r.yaml"), TaskSpec("t", {"shots": 8}), rewards, EvaluationSpec(), known)


def identity(recipe: Recipe, rows: Dataset = ROWS, processes: int = 1, launcher: str = "python") -> Identity:
    return Identity.of(recipe, rows, processes, launcher)


def checkpoint(recipe: Recipe, step: int, complete: bool = True) -> Path:
    folder = recipe.output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(100))
    checkpoints.part_file(folder, 0).write_bytes(bytes(10))
    if complete:
        checkpoints.complete(folder, step, identity(recipe))
    return folder


def left_by(recipe: Recipe, status: str, **facts: Any) -> None:
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    RunStatus(recipe.output_dir, identity(recipe), writes=True).tell(status, **facts)


def test_the_newest_complete_checkpoint_is_continued_and_a_half_written_one_is_skipped_aloud(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    left_by(run, "running")
    checkpoint(run, 5)
    wanted = checkpoint(run, 10)
    checkpoint(run, 15, complete=False)
    begin = choose(run, identity(run))
    assert begin.checkpoint == wanted
    assert "checkpoint-15 is skipped" in begin.notes[0] and "step 10" in begin.notes[1]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "weights").unlink(), "weights is missing"),
        (lambda folder: (folder / "weights").write_bytes(bytes(99)), "99 bytes instead of 100"),
        (lambda folder: (folder / checkpoints.MARKER).write_text('{"step": 5, "fi'), "can't be read"),
        (lambda folder: (folder / checkpoints.MARKER).unlink(), "the run ended while it was being saved"),
    ],
)
def test_a_checkpoint_that_lost_something_is_incomplete(tmp_path: Path, damage: Any, said: str) -> None:
    run = recipe(tmp_path)
    left_by(run, "failed")
    folder = checkpoint(run, 5)
    assert checkpoints.incompleteness(folder) is None
    damage(folder)
    assert said in str(checkpoints.incompleteness(folder))
    begin = choose(run, identity(run))
    assert begin.fresh and "begins at step 0" in begin.notes[-1]


@pytest.mark.parametrize("status", [None, "done"])
def test_where_nothing_is_unfinished_a_run_begins_at_step_0(tmp_path: Path, status: str | None) -> None:
    run = recipe(tmp_path)
    checkpoint(run, 5)
    if status:
        left_by(run, status)
    assert choose(run, identity(run)).fresh


def test_never_means_never(tmp_path: Path) -> None:
    run = recipe(tmp_path, resume_from_checkpoint="never")
    left_by(run, "interrupted")
    checkpoint(run, 5)
    assert choose(run, identity(run)).fresh


def test_after_training_only_the_evaluation_is_left(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    left_by(run, "trained", saved="adapter")
    checkpoint(run, 5)
    assert choose(run, identity(run)).checkpoint is not None, "the adapter is not there"
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    assert choose(run, identity(run)).trained


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"learning_rate": 2e-5}, "learning_rate was 1e-05, now 2e-05"),
        ({"beta": 0.1}, "beta was not given, now 0.1"),
        ({"rewards": (RewardSpec("r", weight=0.5),)}, "rewards.r.weight was 1.0, now 0.5"),
        ({"rewards": (RewardSpec("r"), RewardSpec("s"))}, "rewards.s was not given"),
        ({"rewards": (RewardSpec("r", options={"a": 1}),)}, "rewards.r.options was not given"),
    ],
)
def test_another_recipe_is_refused_by_the_name_of_its_key(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    run = recipe(tmp_path)
    left_by(run, "interrupted")
    checkpoint(run, 5)
    other = recipe(tmp_path, **change)
    with pytest.raises(InputError, match="--resume_from_checkpoint never") as refusal:
        choose(other, identity(other))
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"processes": 2}, "trained by 1 processes, now there are 2"),
        ({"launcher": "zero3"}, "launched with plain, now with zero3"),
        ({"rows": Dataset.from_dict({"prompt": ["two", "one"]})}, "other training prompts"),
    ],
)
def test_another_world_or_other_data_is_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    run = recipe(tmp_path)
    left_by(run, "interrupted")
    checkpoint(run, 5)
    with pytest.raises(InputError, match="differs") as refusal:
        choose(run, identity(run, **change))
    assert told in str(refusal.value)


def test_what_changes_no_number_may_differ(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    left_by(run, "interrupted")
    folder = checkpoint(run, 5)
    other = recipe(tmp_path, max_runtime_s=60, save_steps=7, report_to="none", reward_timeout_s=1.0)
    assert choose(other, identity(other, launcher="ddp")).checkpoint == folder


def test_a_folder_may_be_named_and_must_be_complete(tmp_path: Path) -> None:
    run = recipe(tmp_path / "a")
    folder = checkpoint(run, 5)
    other = recipe(tmp_path / "b", resume_from_checkpoint=str(folder))
    assert choose(other, identity(other)).checkpoint == folder
    (folder / "weights").unlink()
    with pytest.raises(InputError, match="weights is missing"):
        choose(other, identity(other))
    with pytest.raises(InputError, match="there is no such folder"):
        choose(recipe(tmp_path / "b", resume_from_checkpoint="nowhere"), identity(other))


def test_rotation_keeps_complete_ones_and_removes_what_is_older(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    for step in (2, 4, 6, 8, 10):
        checkpoint(run, step, complete=step not in (4, 10))
    checkpoints.rotate(tmp_path, keep=2)
    assert [checkpoints.step_of(folder) for folder in checkpoints.found(tmp_path)] == [10, 8, 6]
    checkpoints.rotate(tmp_path, keep=None)
    assert len(checkpoints.found(tmp_path)) == 3


def test_checkpoint_100_is_newer_than_checkpoint_20(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    for step in (100, 20):
        checkpoint(run, step)
    newest = checkpoints.newest(tmp_path)
    assert newest is not None and newest.name == "checkpoint-100"


def test_the_status_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    assert directory.read_status(tmp_path) is None
    directory.write_status(tmp_path, "running", step=1)
    (tmp_path / ".run.json.tmp").write_text("{half")
    assert directory.read_status(tmp_path) == {"status": "running", "step": 1}
    (tmp_path / "run.json").write_text("[]")
    assert directory.read_status(tmp_path) is None


def test_a_failure_after_training_leaves_it_trained(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    diary = RunStatus(tmp_path, identity(run), writes=True)
    diary.tell("trained", saved="adapter")
    diary.failed("Traceback …")
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "trained"
    assert (tmp_path / "failure.txt").read_text() == "Traceback …"


def test_only_one_process_writes_the_diary(tmp_path: Path) -> None:
    RunStatus(tmp_path, identity(recipe(tmp_path)), writes=False).tell("running")
    assert not (tmp_path / "run.json").exists()


def _say_where(rank: int, port: int, place: str, answers: Any) -> None:
    from accelerate import PartialState

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    PartialState(cpu=True)
    try:
        checkpoints.agreed(Resumption(Path(place)), 2)
        answers.put("agreed")
    except InputError as error:
        answers.put(str(error))
    PartialState().destroy_process_group()


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (("a/checkpoint-3", "b/checkpoint-3"), "agreed"),
        (("a/checkpoint-3", "a/checkpoint-4"), "process 0: checkpoint-3; process 1: checkpoint-4"),
    ],
)
def test_machines_that_see_different_folders_are_told_so(places: tuple[str, str], said: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=_say_where, args=(rank, port, places[rank], answers)) for rank in (0, 1)]
    for process in processes:
        process.start()
    heard = [answers.get(timeout=100) for _ in processes]
    for process in processes:
        process.join()
    assert all(said in words for words in heard), heard


def test_a_part_that_another_machine_wrote_and_that_got_lost_is_missed(tmp_path: Path) -> None:
    """As through a bucket: the marker of the first machine can't list what the second one writes to its own disk."""
    run = recipe(tmp_path)
    left_by(run, "interrupted")
    older, newer = checkpoint(run, 5, complete=False), checkpoint(run, 10, complete=False)
    for folder in (older, newer):
        checkpoints.complete(folder, checkpoints.step_of(folder), identity(run, processes=2))
    checkpoints.part_file(older, 1).write_bytes(b"")
    begin = choose(run, identity(run, processes=2))
    assert begin.checkpoint == older
    assert "between_steps_1.pt is missing, which process 1 wrote" in begin.notes[0]


def test_a_machine_with_a_disk_of_its_own_keeps_what_the_first_one_keeps(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        (tmp_path / f"checkpoint-{step}").mkdir()
    checkpoints.keep_only(tmp_path, ["checkpoint-10", "checkpoint-15"])
    assert [folder.name for folder in checkpoints.found(tmp_path)] == ["checkpoint-15", "checkpoint-10"]


def test_a_process_that_sees_only_its_part_of_a_checkpoint_still_ends_as_one_that_can_be_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    assert RunStatus(tmp_path, identity(recipe(tmp_path)), writes=False).interrupted("Stopped by SIGTERM.") == 75
    assert capsys.readouterr().out == ""
