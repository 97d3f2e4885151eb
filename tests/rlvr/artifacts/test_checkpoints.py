"""A run continues only from a complete checkpoint of the same run, and an error names what is wrong."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr.artifacts import checkpoints, directory
from rlvr.artifacts.identity import Identity
from rlvr.artifacts.resumption import EXIT_INTERRUPTED, RunStatus, choose_resumption
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec, RewardSpec, TaskSpec
from rlvr.errors import InputError
from tests.conftest import Command

ROWS = Dataset.from_dict({"prompt": ["one", "two"]})


def recipe(folder: Path, rewards: tuple[RewardSpec, ...] = (RewardSpec("r"),), **settings: Any) -> Recipe:
    known = {
        "model_name_or_path": "m",
        "output_dir": str(folder),
        "resume_from_checkpoint": "auto",
        "learning_rate": 1e-5,
        **settings,
    }
    return Recipe(Path("r.yaml"), (TaskSpec("t", {"shots": 8}),), rewards, EvaluationSpec(), known)


def identity(recipe: Recipe, rows: Dataset = ROWS, processes: int = 1, launcher: str = "python") -> Identity:
    return Identity.of(recipe, rows, processes, launcher)


def checkpoint(recipe: Recipe, step: int, complete: bool = True) -> Path:
    folder = recipe.output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(100))
    checkpoints.process_file(folder, 0).write_bytes(bytes(10))
    if complete:
        checkpoints.mark_complete(folder, step, identity(recipe))
    return folder


def write_status(recipe: Recipe, status: str, **facts: Any) -> None:
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    RunStatus(recipe.output_dir, identity(recipe), writes=True).update(status, **facts)


def test_the_newest_complete_checkpoint_is_chosen_and_a_skipped_one_is_named(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    write_status(run, "running")
    checkpoint(run, 5)
    wanted = checkpoint(run, 10)
    checkpoint(run, 15, complete=False)
    resumption = choose_resumption(run, identity(run))
    assert resumption.checkpoint == wanted
    assert "checkpoint-15 is skipped" in resumption.notes[0] and "step 10" in resumption.notes[1]


@pytest.mark.parametrize(
    ("damage", "phrase"),
    [
        (lambda folder: (folder / "weights").unlink(), "weights is missing"),
        (lambda folder: (folder / "weights").write_bytes(bytes(99)), "99 bytes instead of 100"),
        (lambda folder: (folder / checkpoints.MARKER).write_text('{"step": 5, "fi'), "can't be read"),
        (lambda folder: (folder / checkpoints.MARKER).unlink(), "the run ended while it was being saved"),
    ],
)
def test_a_damaged_checkpoint_is_incomplete(tmp_path: Path, damage: Any, phrase: str) -> None:
    run = recipe(tmp_path)
    write_status(run, "failed")
    folder = checkpoint(run, 5)
    assert checkpoints.why_incomplete(folder) is None
    damage(folder)
    assert phrase in str(checkpoints.why_incomplete(folder))
    resumption = choose_resumption(run, identity(run))
    assert resumption.fresh and "begins at step 0" in resumption.notes[-1]


def test_changed_golds_and_files_are_no_other_run_but_are_named(tmp_path: Path) -> None:
    run, rows = recipe(tmp_path), Dataset.from_dict({"prompt": ["one", "two"], "final_answer": ["1", "2"]})
    other = Dataset.from_dict({"prompt": ["one", "two"], "final_answer": ["1", "3"]})
    status = RunStatus(
        tmp_path, identity(run, rows), True, {"right": "abc", "environment shop": "def"}, {"helper": "ghi"}
    )
    status.update("trained", saved="adapter")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    assert len(choose_resumption(run, identity(run, rows)).notes) == 1
    assert "golds" in choose_resumption(run, identity(run, other)).notes[1]
    tests = rows.add_column("tests", [["a"], ["b"]])
    assert identity(run, tests).golds != identity(run, tests.remove_columns("tests")).golds, "tests are golds, too"
    assert status.changed_files() == []
    files = {"right": "abc", "environment shop": "xyz", "new": "123"}
    imported = {"helper": "jkl", "other": "mno"}
    later = RunStatus(tmp_path, identity(run, rows), True, files, imported)
    assert later.changed_files() == ["environment shop", "helper"]


@pytest.mark.parametrize("part", ["weights", "tokenizer", "revision"])
def test_a_checkpoint_of_another_base_is_refused(tmp_path: Path, part: str) -> None:
    run = recipe(tmp_path)
    earlier, other = (replace(identity(run), model={part: digest}) for digest in ("abc", "def"))
    checkpoints.mark_complete(checkpoint(run, 5), 5, earlier)
    write_status(run, "interrupted")
    assert choose_resumption(run, earlier).checkpoint is not None
    assert choose_resumption(run, identity(run)).checkpoint is not None, "nothing is known of this base"
    with pytest.raises(InputError, match=part) as error:
        choose_resumption(run, other)
    assert error.value.kind == "checkpoint-mismatch"


def test_a_curriculum_depends_on_the_difficulty_of_its_rows(tmp_path: Path) -> None:
    easy, hard = (Dataset.from_dict({"prompt": ["a", "b"], "difficulty": order}) for order in ([1, 2], [2, 1]))
    for curriculum, is_same in (("none", True), ("easy_first", False)):
        run = recipe(tmp_path, curriculum=curriculum)
        assert (identity(run, easy).rows == identity(run, hard).rows) == is_same, curriculum


def test_dynamic_sampling_depends_on_the_metric(tmp_path: Path) -> None:
    for rounds, differences in ((0, 0), (2, 1)):
        runs = [
            replace(recipe(tmp_path, dynamic_sampling=rounds), evaluation=EvaluationSpec(metric=metric))
            for metric in (None, "other")
        ]
        assert len(identity(runs[0]).differences(identity(runs[1]))) == differences


@pytest.mark.parametrize("status", [None, "done"])
def test_without_an_unfinished_run_a_run_begins_at_step_0(tmp_path: Path, status: str | None) -> None:
    run = recipe(tmp_path)
    checkpoint(run, 5)
    if status:
        write_status(run, status)
    assert choose_resumption(run, identity(run)).fresh


@pytest.mark.parametrize(
    ("status", "was", "now", "continues", "why"),
    [
        ("done", {"max_steps": 5}, {"max_steps": 9}, True, "more steps"),
        ("done", {"num_train_epochs": 1}, {"num_train_epochs": 2.0}, True, "more epochs"),
        ("done", {}, {"num_train_epochs": 4}, True, "more epochs than the default"),
        ("trained", {"max_steps": 5}, {"max_steps": 9}, True, "not measured yet, and there is more to train"),
        ("interrupted", {"max_steps": 5}, {"max_steps": 9}, True, "more steps before the end"),
        ("done", {"max_steps": 5}, {"max_steps": 5}, False, "the same run again is a new one"),
        ("done", {"max_steps": 9}, {"max_steps": 5}, False, "fewer steps"),
        ("done", {"num_train_epochs": 1}, {"max_steps": 9}, False, "which of them is longer is unknown"),
        ("done", {"max_steps": 5}, {"max_steps": 9, "learning_rate": 1.0}, False, "another run"),
        ("done", {"max_steps": 5}, {"max_steps": 9, "curriculum": "easy_first"}, False, "its order is of 5 steps"),
    ],
)
def test_a_run_with_more_steps_continues_a_finished_one(
    status: str, was: dict[str, Any], now: dict[str, Any], continues: bool, why: str, tmp_path: Path
) -> None:
    earlier, longer = recipe(tmp_path, curriculum=now.get("curriculum", "none"), **was), recipe(tmp_path, **now)
    checkpoint(earlier, 5)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    write_status(earlier, status, saved="adapter")
    resumption = choose_resumption(longer, identity(longer))
    assert (resumption.checkpoint is not None, resumption.trained) == (continues, False), why
    assert any("learning rate" in note for note in resumption.notes) == continues


def test_a_finished_run_without_a_checkpoint_can_be_trained_further_as_a_merged_model(tmp_path: Path) -> None:
    earlier, longer = recipe(tmp_path, max_steps=5), recipe(tmp_path, max_steps=9)
    write_status(earlier, "done")
    resumption = choose_resumption(longer, identity(longer))
    assert resumption.fresh and "scripts/export.py" in resumption.notes[0] and "--to merged" in resumption.notes[0]


@pytest.mark.parametrize("change", [{"learning_rate": 1e-6}, {"max_steps": 3}])
def test_an_unfinished_run_with_more_than_further_steps_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    earlier, other = recipe(tmp_path, max_steps=5), recipe(tmp_path, **{"max_steps": 9, **change})
    checkpoint(earlier, 2)
    write_status(earlier, "interrupted")
    with pytest.raises(InputError) as error:
        choose_resumption(other, identity(other))
    assert error.value.kind == "checkpoint-mismatch" and next(iter(change)) in str(error.value)


def test_never_begins_at_step_0(tmp_path: Path) -> None:
    run = recipe(tmp_path, resume_from_checkpoint="never")
    write_status(run, "interrupted")
    checkpoint(run, 5)
    assert choose_resumption(run, identity(run)).fresh


def test_after_training_only_the_evaluation_is_left(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    write_status(run, "trained", saved="adapter")
    checkpoint(run, 5)
    assert choose_resumption(run, identity(run)).checkpoint is not None, "the adapter is not there"
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    assert choose_resumption(run, identity(run)).trained


@pytest.mark.parametrize(
    ("change", "circumstances", "difference"),
    [
        ({"learning_rate": 2e-5}, {}, "learning_rate was 1e-05, now 2e-05"),
        ({"beta": 0.1}, {}, "beta was 0.0, now 0.1"),
        ({"rewards": (RewardSpec("r", weight=0.5),)}, {}, "rewards.r.weight was 1.0, now 0.5"),
        ({"rewards": (RewardSpec("r"), RewardSpec("s"))}, {}, "rewards.s was not given"),
        ({"rewards": (RewardSpec("r", options={"a": 1}),)}, {}, "rewards.r.options was not given"),
        ({}, {"processes": 2}, "1 processes trained it, now there are 2"),
        ({}, {"launcher": "zero3"}, "the launcher was plain, now zero3"),
        ({}, {"rows": Dataset.from_dict({"prompt": ["two", "one"]})}, "other training prompts"),
    ],
)
def test_a_checkpoint_of_another_recipe_launch_or_dataset_is_refused_with_the_difference(
    tmp_path: Path, change: dict[str, Any], circumstances: dict[str, Any], difference: str
) -> None:
    run = recipe(tmp_path)
    write_status(run, "interrupted")
    checkpoint(run, 5)
    other = recipe(tmp_path, **change)
    with pytest.raises(InputError) as error:
        choose_resumption(other, identity(other, **circumstances))
    assert error.value.kind == "checkpoint-mismatch" and difference in str(error.value)
    assert "--resume_from_checkpoint never" in str(error.value)


def test_keys_that_change_no_number_may_differ(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    write_status(run, "interrupted")
    folder = checkpoint(run, 5)
    other = recipe(tmp_path, max_runtime_s=60, save_steps=7, report_to="none", reward_timeout_s=1.0)
    assert choose_resumption(other, identity(other, launcher="ddp")).checkpoint == folder


def test_a_named_folder_must_be_complete(tmp_path: Path) -> None:
    run = recipe(tmp_path / "a")
    folder = checkpoint(run, 5)
    other = recipe(tmp_path / "b", resume_from_checkpoint=str(folder))
    assert choose_resumption(other, identity(other)).checkpoint == folder
    (folder / "weights").unlink()
    for damaged in (str(folder), "nowhere"):
        with pytest.raises(InputError) as error:
            choose_resumption(recipe(tmp_path / "b", resume_from_checkpoint=damaged), identity(other))
        assert (error.value.kind, error.value.key) == ("checkpoint-incomplete", "resume_from_checkpoint")


def test_rotation_keeps_the_newest_complete_checkpoints(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    for step in (2, 4, 6, 8, 10):
        checkpoint(run, step, complete=step not in (4, 10))
    checkpoints.rotate(tmp_path, keep=2, best=2)
    assert [checkpoints.step_of(folder) for folder in checkpoints.list_checkpoints(tmp_path)] == [10, 8, 6, 2]
    checkpoints.rotate(tmp_path, keep=2)
    assert [checkpoints.step_of(folder) for folder in checkpoints.list_checkpoints(tmp_path)] == [10, 8, 6]
    checkpoints.rotate(tmp_path, keep=None)
    assert len(checkpoints.list_checkpoints(tmp_path)) == 3


def test_a_damaged_status_reads_as_none(tmp_path: Path) -> None:
    assert directory.read_status(tmp_path) is None
    directory.write_status(tmp_path, "running", step=1)
    (tmp_path / ".run.json.tmp").write_text("{half")
    assert directory.read_status(tmp_path) == {"status": "running", "step": 1}
    (tmp_path / "run.json").write_text("[]")
    assert directory.read_status(tmp_path) is None


def test_a_failure_after_training_keeps_the_status_trained(tmp_path: Path) -> None:
    run = recipe(tmp_path)
    status = RunStatus(tmp_path, identity(run), writes=True)
    status.update("trained", saved="adapter")
    status.failed("Traceback …")
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "trained"
    assert (tmp_path / "failure.txt").read_text() == "Traceback …"


AGREE = """
import sys
from pathlib import Path
from accelerate import PartialState
from rlvr.artifacts.resumption import Resumption, agree
from rlvr.errors import InputError

PartialState(cpu=True)
try:
    agree(Resumption(Path(sys.argv[1])), 2)
    print("agreed")
except InputError as error:
    print(error)
PartialState().destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("places", "phrase"),
    [
        (("a/checkpoint-3", "b/checkpoint-3"), "agreed"),
        (("a/checkpoint-3", "a/checkpoint-4"), "process 0: checkpoint-3; process 1: checkpoint-4"),
    ],
)
def test_processes_that_see_different_folders_all_fail(
    command: Command, tmp_path: Path, places: tuple[str, str], phrase: str
) -> None:
    (tmp_path / "agree.py").write_text(AGREE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            command(tmp_path / "agree.py", place),
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            text=True,
            stdout=subprocess.PIPE,
        )
        for rank, place in enumerate(places)
    ]
    results = [process.communicate(timeout=300)[0] for process in processes]
    assert all(phrase in result for result in results), results


def test_a_missing_file_of_another_machine_makes_a_checkpoint_incomplete(tmp_path: Path) -> None:
    """The marker can't list what another machine writes to its own disk; a bucket brings the files together."""
    run = recipe(tmp_path)
    write_status(run, "interrupted")
    older, newer = checkpoint(run, 5, complete=False), checkpoint(run, 10, complete=False)
    for folder in (older, newer):
        checkpoints.mark_complete(folder, checkpoints.step_of(folder), identity(run, processes=2))
    checkpoints.process_file(older, 1).write_bytes(b"")
    resumption = choose_resumption(run, identity(run, processes=2))
    assert resumption.checkpoint == older
    assert "between_steps_1.pt is missing, which process 1 wrote" in resumption.notes[0]


def test_a_machine_with_its_own_disk_keeps_the_checkpoints_of_the_main_process(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        (tmp_path / f"checkpoint-{step}").mkdir()
    checkpoints.keep_only(tmp_path, ["checkpoint-10", "checkpoint-15"])
    assert [folder.name for folder in checkpoints.list_checkpoints(tmp_path)] == ["checkpoint-15", "checkpoint-10"]


def test_an_interrupted_process_on_another_machine_exits_as_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    assert (
        RunStatus(tmp_path, identity(recipe(tmp_path)), writes=False).interrupted("Stopped by SIGTERM.")
        == EXIT_INTERRUPTED
        == 75
    )
    assert capsys.readouterr().out == ""
