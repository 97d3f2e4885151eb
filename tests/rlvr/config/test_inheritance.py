"""`extends`: a recipe has its own keys over those of another one, and messages name the file that a key is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.config.recipe_writer import text_in_full
from rlvr.errors import InputError
from tests.support.cases import cases

BASE = """\
model_name_or_path: some/model
learning_rate: 1e-4
task: {name: gsm8k, shots: 8, style: chat}
rewards: [{name: math_correctness}, {name: answer_format, weight: 0.5}]
evaluation:
  split: test
  rows: 10
  reference: {score: 0.5, source: a paper}
sagemaker: {instance_type: ml.g5.2xlarge}
"""


def write(folder: Path, **files: str) -> Path:
    """Write `base` into a folder of its own, and the others beside it; return the first of the others."""
    (folder / "bases").mkdir()
    for name, text in {"base": BASE, **files}.items():
        (folder / ("bases" if name == "base" else ".") / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / f"{next(name for name in files if name != 'base')}.yaml"


def test_keys_replace_and_sections_merge(tmp_path: Path) -> None:
    changes = "extends: middle.yaml\nlearning_rate: 2e-4\ntask: {shots: 0}\nevaluation: {rows: 20}\n"
    path = write(tmp_path, recipe=changes, middle="extends: bases/base.yaml\nseed: 7\ntask: {shots: 4, seed: 1}\n")
    recipe = load_recipe(path, ["--task.seed", "2"])
    assert (recipe.settings["learning_rate"], recipe.settings["seed"]) == (2e-4, 7)
    assert recipe.tasks[0].options == {"shots": 0, "style": "chat", "seed": 2}
    assert [spec.name for spec in recipe.rewards] == ["math_correctness", "answer_format"]
    assert recipe.evaluation is not None and (recipe.evaluation.split, recipe.evaluation.rows) == ("test", 20)
    assert recipe.evaluation.reference is not None and recipe.sagemaker is not None
    assert recipe.path == path and recipe.output_dir == Path("runs/recipe")


def test_another_task_has_none_of_the_options(tmp_path: Path) -> None:
    changes = "extends: bases/base.yaml\ntask: {name: arithmetic}\nrewards: [math_correctness]\nsagemaker: null\n"
    recipe = load_recipe(write(tmp_path, recipe=changes))
    assert recipe.task_name == "arithmetic" and recipe.tasks[0].options == {}
    assert len(recipe.rewards) == 1 and recipe.sagemaker is None


def test_a_published_score_is_not_that_of_another_model(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, recipe="extends: bases/base.yaml\nmodel_name_or_path: other/model\n"))
    assert recipe.evaluation is not None and recipe.evaluation.reference is None


def test_a_recipe_is_shown_in_full(tmp_path: Path) -> None:
    path = write(tmp_path, recipe="extends: bases/base.yaml\nlearning_rate: 2e-4\n")
    recipe = load_recipe(path, ["--seed", "1"])
    lines = text_in_full(recipe).splitlines()
    origins = {line.partition(":")[0]: line.partition("# ")[2] for line in lines[1:] if not line.startswith(" ")}
    assert origins["learning_rate"] == "" and origins["seed"] == "command line"
    assert origins["task"] == origins["model_name_or_path"] == "bases/base.yaml"


@pytest.mark.parametrize(("files", "change", "kind", "key", "file", "line"), cases(__file__, "faults"))
def test_a_fault_is_located_in_the_file_that_has_it(
    tmp_path: Path, files: dict[str, str], change: list[str], kind: str, key: str, file: str, line: int
) -> None:
    path = write(tmp_path, **files, base=BASE.replace(*change))
    with pytest.raises(InputError) as refused:
        load_recipe(path)
    problem = next(problem for problem in refused.value.problems if problem.kind == kind)
    assert problem.key == key and problem.path is not None
    assert (Path(problem.path).resolve(), problem.line) == ((tmp_path / file).resolve(), line)


def test_the_command_line_cannot_extend(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        load_recipe(write(tmp_path, recipe="extends: bases/base.yaml\n"), ["--extends", "other.yaml"])
    assert [problem.kind for problem in refused.value.problems] == ["invalid-override"]


def test_the_later_of_two_names_for_the_size_of_a_generation_wins(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        recipe="extends: bases/base.yaml\nsteps_per_generation: 4\n",
        base=f"{BASE}generation_batch_size: 512\n",
    )
    settings = load_recipe(path).settings
    assert (settings.get("generation_batch_size"), settings["steps_per_generation"]) == (None, 4)
    settings = load_recipe(path, ["--generation_batch_size", "64"]).settings
    assert (settings["generation_batch_size"], settings.get("steps_per_generation")) == (64, None)
