"""A run continues only from a complete checkpoint of the same run, and an error names what is wrong."""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

from rlvr.artifacts import checkpoints, directory
from rlvr.artifacts.identity import Identity
from rlvr.artifacts.resumption import EXIT_INTERRUPTED, Resumption, RunStatus, choose_intact, choose_resumption
from rlvr.config.recipe import Recipe
from rlvr.config.specs import EvaluationSpec, RewardSpec, TaskSpec
from rlvr.errors import InputError
from tests.conftest import Command
from tests.support.input_errors import input_error

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
    torch.save({"mean": 0.5}, checkpoints.process_file(folder, 0))
    if complete:
        checkpoints.mark_complete(folder, step, identity(recipe))
    return folder


def choose(recipe: Recipe, process: int = 0, processes: int = 1) -> Resumption:
    """Where a process of a first machine begins that finds damages by itself."""
    state: Any = SimpleNamespace(process_index=process, num_processes=1, is_local_main_process=process == 0)
    return choose_intact(recipe, identity(recipe, processes=processes), state, lambda call: call())


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
        (lambda folder: (folder / checkpoints.MARKER).write_text('{"step": 5, "files": []}'), "can't be read"),
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
    with input_error("checkpoint-mismatch", match=part):
        choose_resumption(run, other)


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
    assert (resumption.checkpoint is not None, resumption.saved) == (continues, None), why
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
    with input_error("checkpoint-mismatch", match=next(iter(change))):
        choose_resumption(other, identity(other))


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
    assert choose_resumption(run, identity(run)).saved == tmp_path / "adapter"


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
    with input_error("checkpoint-mismatch", match=f"(?s){difference}.*--resume_from_checkpoint never"):
        choose_resumption(other, identity(other, **circumstances))


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
        with input_error("checkpoint-incomplete", "resume_from_checkpoint"):
            choose_resumption(recipe(tmp_path / "b", resume_from_checkpoint=damaged), identity(other))


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


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1, "status": "run', '{"format": 1}'])
def test_a_run_whose_status_cannot_be_read_is_not_moved_aside(tmp_path: Path, content: str) -> None:
    run, folder = recipe(tmp_path), checkpoint(recipe(tmp_path), 5)
    (tmp_path / "run.json").write_text(content)
    with input_error("damaged-file", match=f"run.json can't be read.*{folder}"):
        choose(run)
    for wanted, begins in (("never", None), (str(folder), folder)):  # what the message names
        assert choose(recipe(tmp_path, resume_from_checkpoint=wanted)).checkpoint == begins


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


@pytest.mark.parametrize(
    ("damage", "finds"),
    [
        (lambda folder: (folder / "rng_state_1.pth").unlink(), {1: "rng_state_1.pth can't be read"}),
        (lambda folder: flip(folder / "rng_state_1.pth", 40), {1: "rng_state_1.pth is damaged"}),
        (lambda folder: flip(folder / "step5" / "zero_pp_rank_1_mp_rank_00.pt", 0), {1: "mp_rank_00.pt is damaged"}),
        (lambda folder: flip(folder / "optimizer_0" / "__1_0.distcp", 3), {1: "__1_0.distcp is damaged"}),
        (lambda folder: flip(folder / "weights", 99), {0: "weights is damaged"}),
        (lambda folder: flip(folder / "README.md", 0), {}),
    ],
)
def test_each_process_checks_the_files_that_it_wrote(tmp_path: Path, damage: Any, finds: dict[int, str]) -> None:
    """Processes on other machines may write to their own disks; a bucket brings the files together."""
    run = recipe(tmp_path)
    write_status(run, "interrupted")
    older, newer = checkpoint(run, 5, complete=False), checkpoint(run, 10, complete=False)
    for folder in (older, newer):
        for name in ("README.md", "step5/zero_pp_rank_1_mp_rank_00.pt", "optimizer_0/__1_0.distcp"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(b"0123")
        torch.save({"numpy": np.random.get_state()}, folder / "rng_state_1.pth")
        digests = checkpoints.digests_of(folder, 0) | checkpoints.digests_of(folder, 1)
        assert len(digests) == 5
        checkpoints.mark_complete(folder, checkpoints.step_of(folder), identity(run, processes=2), digests)
        marker = json.loads((folder / checkpoints.MARKER).read_text())
        del marker["sha256"], marker["files"]["rng_state_1.pth"]  # the main process does not see it
        directory.write_json(folder / checkpoints.MARKER, marker)
    damage(newer)
    for process in (0, 1):
        chosen = choose(run, process, processes=2)
        assert chosen.checkpoint == (older if process in finds else newer)
        assert finds.get(process, "continues") in chosen.notes[0]


def flip(file: Path, byte: int) -> None:
    content = bytearray(file.read_bytes())
    content[byte % len(content)] ^= 1 << byte % 8
    file.write_bytes(content)


class Hostile:
    def __reduce__(self) -> Any:
        return os.abort, ()


@pytest.mark.parametrize("name", ["scheduler.pt", "rng_state.pth", "between_steps_0.pt"])
@pytest.mark.parametrize("content", [Hostile(), Path("another type")], ids=["hostile", "a type"])
def test_a_pickle_that_pytorch_refuses_is_named_and_skipped(content: Any, name: str, tmp_path: Path) -> None:
    run = recipe(tmp_path)
    write_status(run, "interrupted")
    older, newer = checkpoint(run, 5), checkpoint(run, 10, complete=False)
    torch.save(content, newer / name)
    checkpoints.mark_complete(newer, 10, identity(run))  # its digests fit
    chosen = choose(run)
    assert chosen.checkpoint == older and f"{name} can't be loaded" in chosen.notes[0]
    assert chosen.damaged == (newer.name,)
    with input_error("checkpoint-incomplete", match=name):
        choose(recipe(tmp_path, resume_from_checkpoint=str(newer)))


@pytest.mark.parametrize(
    ("module", "name", "error", "stops"),
    [
        (checkpoints, "file_digest", OSError(errno.EIO, "Input/output error"), True),
        (checkpoints, "file_digest", PermissionError(errno.EACCES, "Permission denied"), True),
        (torch, "load", OSError(errno.EMFILE, "Too many open files"), False),
        (torch, "load", MemoryError(), False),
        (torch, "load", RuntimeError("unable to mmap 64 bytes from file <x>: Cannot allocate memory (12)"), False),
    ],
)
def test_a_file_that_cannot_be_read_now_is_not_damaged(
    module: Any, name: str, error: Exception, stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise error

    run = recipe(tmp_path)
    write_status(run, "interrupted")
    folder = checkpoint(run, 5)
    monkeypatch.setattr(module, name, fails)
    if not stops:
        assert choose(run).checkpoint == folder
        return
    with pytest.raises(InputError, match=str(error.args[1])) as stopped:
        choose(run)
    problem = stopped.value.problems[0]
    assert (problem.kind, problem.path) == ("damaged-file", str(folder / "between_steps_0.pt"))


@pytest.mark.parametrize("status", ["running", "trained"])
def test_a_flipped_bit_anywhere_is_named_or_changes_nothing(tmp_path: Path, status: str) -> None:
    run, dice = recipe(tmp_path), random.Random(status)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"r": 8}')
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(dice.randbytes(500))
    older, newer = checkpoint(run, 5, complete=False), checkpoint(run, 10, complete=False)
    for folder in (older, newer):
        torch.save({"numpy": np.random.get_state()}, folder / "rng_state.pth")
        torch.save({"last_epoch": 5}, folder / "scheduler.pt")
        (folder / "trainer_state.json").write_text('{"global_step": 5}')
        checkpoints.mark_complete(folder, checkpoints.step_of(folder), identity(run))
    write_status(run, status, saved="adapter")
    first, second = (tmp_path / "adapter", newer) if status == "trained" else (newer, older)
    untouched = choose(run)
    assert first in (untouched.saved, untouched.checkpoint)
    for file in sorted(path for path in tmp_path.rglob("*") if path.is_file()) * 5:
        content, name = file.read_bytes(), str(file.relative_to(tmp_path))
        flip(file, dice.randrange(8 * len(content)))
        try:
            chosen = choose(run)
        except InputError as error:
            assert name == "run.json" and str(file) in str(error), error
        else:
            assert (chosen == untouched) == (first not in file.parents)
            if chosen != untouched:
                assert file.name in chosen.notes[0] and chosen.checkpoint == second
        file.write_bytes(content)


def test_a_machine_with_its_own_disk_keeps_the_checkpoints_of_the_main_process(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        (tmp_path / f"checkpoint-{step}").mkdir()
    checkpoints.keep_only(tmp_path, ["checkpoint-10", "checkpoint-15"])
    assert [folder.name for folder in checkpoints.list_checkpoints(tmp_path)] == ["checkpoint-15", "checkpoint-10"]


def test_an_interrupted_process_on_another_machine_exits_as_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    status = RunStatus(tmp_path, identity(recipe(tmp_path)), writes=False)
    assert status.interrupted("Stopped by SIGTERM.") == EXIT_INTERRUPTED == 75
    assert capsys.readouterr().out == ""
