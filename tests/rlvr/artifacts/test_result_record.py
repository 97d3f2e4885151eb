"""result.json: it rests on the run's files, notices a change in any of them, and names nothing of this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr.artifacts.origin import find_origin, recipe_file_digest
from rlvr.artifacts.result_record import FORMAT, find_faults, read_record, record_evaluation, record_run
from rlvr.config.recipe import load_recipe
from tests.conftest import REPOSITORY
from tests.support.input_errors import input_error
from tests.support.report_runs import write_recorded_run, write_run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recorded_run(tmp_path_factory.mktemp("runs") / "run")


def test_a_record_has_the_result_and_the_files_that_it_rests_on(recorded: Path) -> None:
    record = read_record(recorded)
    assert (record.recipe, record.model, record.trained) == ("demo-arithmetic", "tiny-arithmetic", "adapter")
    assert record.evaluation is not None and record.evaluation["difference"]["points"] == 0.5
    assert record.evaluation["base"]["correct"] == 20 and record.evaluation["trained"]["rows"] == 40
    assert set(record.files) == {"evaluation.json", "adapter/adapter_model.safetensors", "adapter/adapter_config.json"}
    assert (record.steps, record.stopped_early, record.processes, record.seeds["seed"]) == (4, False, 2, 0)
    assert record.times["training_hours"] == round(8 / 3600, 4)
    assert find_faults(recorded, record) == []


def test_a_record_names_nothing_of_this_machine(recorded: Path) -> None:
    text = (recorded / "result.json").read_text()
    assert not any(word in text for word in (str(REPOSITORY), str(recorded), recorded.parent.name, "/opt"))


def test_equal_runs_in_different_folders_have_equal_records_except_for_times(recorded: Path, tmp_path: Path) -> None:
    one, other = (
        json.loads((run / "result.json").read_text()) for run in (recorded, write_recorded_run(tmp_path / "other"))
    )
    different = {key for key in one if one[key] != other[key]}
    assert different <= {"times", "sha256"}


@pytest.mark.parametrize(
    ("words", "equal", "why"),
    [
        (["--seed", "5", "--report_to", "none"], True, "a seed is a field of its own; no number depends on logging"),
        (["--learning_rate", "1e-4"], False, "numbers depend on it"),
        (["--evaluation.rows", "20"], False, "another measurement"),
    ],
)
def test_the_digest_of_a_recipe_covers_what_numbers_depend_on(
    recorded: Path, tmp_path: Path, words: list[str], equal: bool, why: str
) -> None:
    one, other = read_record(recorded), read_record(write_recorded_run(tmp_path / "other", *words))
    assert (one.recipe_digest == other.recipe_digest) == equal, why


def test_a_record_has_the_start_of_its_run(recorded: Path, tmp_path: Path) -> None:
    run = shutil.copytree(recorded, tmp_path / "run")
    recipe = load_recipe(REPOSITORY / "recipes" / "demo-arithmetic.yaml", ["--seed", "3", "--output_dir", str(run)])
    status = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**status, "origin": find_origin(recipe)}))
    record = record_run(run, recipe)
    assert record.completions_per_update == 128, "64 for each of two processes"
    assert record.command is not None and record.command.endswith("demo-arithmetic.yaml --seed 3 --output_dir run")
    assert record.recipe_file_digest == recipe_file_digest(recipe.path) and read_record(run) == record


def test_files_whose_paths_were_replaced_are_no_record() -> None:
    for run in (REPOSITORY / "results").glob("*/result.json"):
        with input_error("hash-mismatch", why=run):
            read_record(run)


def append(path: Path) -> None:
    path.write_text(path.read_text() + "\n")


@pytest.mark.parametrize(
    ("change", "count", "why"),
    [
        (lambda run: append(run / "adapter" / "adapter_config.json"), 1, "a file of the model was changed"),
        (lambda run: (run / "adapter" / "adapter_model.safetensors").unlink(), 1, "a file of the model is missing"),
        (lambda run: append(run / "evaluation.json"), 1, "the evaluation was changed"),
        (lambda run: (run / "recipe.yaml").write_text("seed: 0\nbeta: 1"), 1, "the recipe was changed"),
        (
            lambda run: shutil.copy(run / "metrics.jsonl", run / "adapter" / "README.md"),
            0,
            "a card may be written anew",
        ),
        (lambda run: shutil.rmtree(run / "completions"), 1, "the held-out rows are missing"),
    ],
)
def test_a_change_of_what_a_record_rests_on_is_found(
    recorded: Path, tmp_path: Path, change: Callable[[Path], Any], count: int, why: str
) -> None:
    run = shutil.copytree(recorded, tmp_path / "run")
    change(run)
    assert len(find_faults(run, read_record(run))) == count, why


@pytest.mark.parametrize(
    ("change", "kind", "why"),
    [
        (lambda content: content["evaluation"]["trained"].update(accuracy=1.0, correct=39), "hash-mismatch", "forged"),
        (lambda content: content.update(format=FORMAT + 1), "later-format", "a later version wrote it"),
        (lambda content: content.pop("sha256"), "damaged-file", "a part is missing"),
    ],
)
def test_a_record_that_was_changed_is_refused(
    recorded: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], kind: str, why: str
) -> None:
    content = json.loads((recorded / "result.json").read_text())
    change(content)
    (tmp_path / "result.json").write_text(json.dumps(content))
    with input_error(kind, why=why):
        read_record(tmp_path / "result.json")


@pytest.mark.parametrize("name", ["absent", "empty", "unfinished"])
def test_a_folder_without_a_record_is_an_input_error(recorded: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (shutil.copytree(recorded, tmp_path / "unfinished") / "result.json").unlink()
    with input_error("no-record"):
        read_record(tmp_path / name)


def test_a_run_that_is_measured_again_has_a_new_record(recorded: Path, tmp_path: Path) -> None:
    run = shutil.copytree(recorded, tmp_path / "run")
    write_run(run, base=[False, True] * 20, trained=[False, True] * 20)  # replaces the measurement
    (run / "recipe.yaml").write_text((recorded / "recipe.yaml").read_text())
    assert len(find_faults(run, read_record(run))) == 1
    record = record_evaluation(run, load_recipe(run / "recipe.yaml"), "adapter")
    assert record.evaluation is not None and record.evaluation["trained"]["correct"] == 20
    assert read_record(run) == record and find_faults(run, record) == []
    assert record.times == read_record(recorded).times, "the training is the same"
