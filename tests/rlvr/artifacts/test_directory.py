"""A run never overwrites another one, and records its recipe and versions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr.artifacts import directory
from rlvr.config.recipe import Recipe, load_recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from tests.support.input_errors import input_error

ALONE: Any = SimpleNamespace(is_main_process=True, wait_for_everyone=lambda: None)


def recipe(folder: Path, **settings: Any) -> Recipe:
    settings = {"model_name_or_path": "m", "output_dir": str(folder), "report_to": "none", **settings}
    return Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)


def test_an_earlier_run_is_renamed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    directory.prepare(recipe(folder), ALONE)
    (folder / "metrics.jsonl").write_text("precious\n")
    directory.prepare(recipe(folder), ALONE)
    directory.prepare(recipe(folder), ALONE)
    assert not (folder / "metrics.jsonl").exists()
    renamed = [path for path in tmp_path.iterdir() if path != folder]
    assert len(renamed) == 2, "two runs within a second as well"
    kept = [path / "metrics.jsonl" for path in renamed if (path / "metrics.jsonl").exists()]
    assert [path.read_text() for path in kept] == ["precious\n"]


def test_a_link_to_a_run_stays_and_the_run_that_it_leads_to_is_renamed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "run"
    link.symlink_to(tmp_path / "disk" / "real")
    for _ in range(2):
        (tmp_path / "disk" / "real").mkdir(exist_ok=True)
        directory.prepare(recipe(link), ALONE)
        (link / "metrics.jsonl").write_text("precious\n")
    assert link.is_symlink() and len(list((tmp_path / "disk").iterdir())) == 2


def test_a_resumed_run_stays_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    directory.prepare(recipe(folder), ALONE)
    (folder / "metrics.jsonl").write_text("precious\n")
    directory.prepare(recipe(folder), ALONE, fresh=False)
    assert (folder / "metrics.jsonl").read_text() == "precious\n"


def test_the_recipe_and_the_versions_are_written(tmp_path: Path) -> None:
    directory.prepare(recipe(tmp_path / "run"), ALONE)
    assert load_recipe(tmp_path / "run" / "recipe.yaml").task_name == "t"
    assert {"python", "trl", "torch"} <= set(json.loads((tmp_path / "run" / "versions.json").read_text()))


def test_a_folder_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with input_error("unwritable", "output_dir"):
        directory.prepare(recipe(tmp_path / "file" / "run"), ALONE)


@pytest.mark.parametrize(
    ("status", "learning_rate", "left", "stays", "why"),
    [
        ("interrupted", 1e-6, "answers", True, "the same run, stopped in its first evaluation"),
        ("interrupted", 1e-5, "answers", False, "another recipe: another run"),
        ("interrupted", 1e-6, "metrics.jsonl", False, "it has trained"),
        ("interrupted", 1e-6, "checkpoint-1", False, "it has trained, though nothing was saved whole"),
        ("running", 1e-6, "answers", False, "it may be running still"),
        ("failed", 1e-6, "answers", False, "failure.txt says why"),
    ],
)
def test_a_run_that_was_interrupted_without_results_continues_in_its_folder(
    tmp_path: Path, status: str, learning_rate: float, left: str, stays: bool, why: str
) -> None:
    folder = tmp_path / "run"
    directory.prepare(recipe(folder, learning_rate=1e-6), ALONE)
    directory.write_status(folder, status)
    (folder / "mlflow.json").write_text("{}")  # its run in MLflow, which goes on as well
    (folder / left).mkdir()
    directory.prepare(recipe(folder, learning_rate=learning_rate), ALONE)
    renamed = [path for path in tmp_path.iterdir() if path != folder]
    assert (not renamed, (folder / "mlflow.json").exists()) == (stays, stays), why


@pytest.mark.parametrize(("status", "kept"), [("interrupted", True), ("running", True), ("done", False)])
def test_answers_of_an_unfinished_run_move_to_the_next_one(tmp_path: Path, status: str, kept: bool) -> None:
    folder = tmp_path / "run"
    directory.prepare(recipe(folder), ALONE)
    directory.write_status(folder, status)
    (folder / "answers").mkdir()
    (folder / "answers" / "base-1.jsonl").write_text("precious\n")
    directory.prepare(recipe(folder), ALONE)
    [file] = tmp_path.glob("*/answers/base-1.jsonl")
    assert file.read_text() == "precious\n" and (file.parents[1] == folder) is kept


@pytest.mark.parametrize("value", [{2: "a", 10: "b"}, {1: "a", "x": "b", None: 0}, "\ud800", "é", float("nan")])
def test_a_sealed_content_that_is_read_back_fits_its_digest(value: Any, tmp_path: Path) -> None:
    directory.write_json(tmp_path / "a.json", directory.seal({"value": value}, 1))
    content = directory.read_json(tmp_path / "a.json")
    assert directory.is_sealed(content) and not directory.is_sealed({**content, "value": "other"})


def test_digests_of_earlier_versions_hold() -> None:
    content = {"b": [1, 0.1, None, True], "a": {"é": "\x00"}}
    assert directory.content_digest(content) == "a24df94c6773db428c082437d573c05ce119603e616ecd4827082ab6beae6ef6"
