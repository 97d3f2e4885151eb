"""scripts/recipe_diff.py: what differs in force between two recipes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import recipe_diff

RECIPE = """\
model_name_or_path: some/model
temperature: 1.0
task: {name: gsm8k, shots: 8}
rewards: [{name: math_correctness}, {name: answer_format, weight: 0.5}]
evaluation: {rows: 100}
"""


def differing(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, list[object]]:
    (folder / "a.yaml").write_text(RECIPE)
    (folder / "b.yaml").write_text(text)
    assert recipe_diff.main([str(folder / "a.yaml"), str(folder / "b.yaml"), "--json"]) == 0
    printed: dict[str, list[object]] = json.loads(capsys.readouterr().out)
    return printed


@pytest.mark.parametrize(
    ("text", "expected", "why"),
    [
        (RECIPE.replace("temperature: 1.0\n", ""), {}, "the default, written or not"),
        ("extends: a.yaml\n", {}, "what it extends is in force"),
        ("extends: a.yaml\nbeta: 0.04\n", {"beta": [0.0, 0.04]}, "a default of TRL"),
        ("extends: a.yaml\nlogging_steps: 10\n", {"logging_steps": [1, 10]}, "a default of ours"),
        ("extends: a.yaml\ntask: {shots: 4}\n", {"task.shots": [8, 4]}, "in a section"),
        (RECIPE.replace("0.5", "0.2"), {"rewards.answer_format.weight": [0.5, 0.2]}, "of a reward"),
        ("extends: a.yaml\ntask: {shot_pool: 64}\n", {}, "a default of the task, written or not"),
        ("extends: a.yaml\ntask: {seed: 7}\n", {"task.seed": [42, 7]}, "a default of the task"),
        (RECIPE.replace("correctness}", "correctness, where: local, options: {prose: true}}"), {}, "of a reward, too"),
        (RECIPE.replace("correctness}", "correctness, options: {prose: false}}"),
         {"rewards.math_correctness.options.prose": [True, False]}, "a change of it"),
        (RECIPE.replace("rows: 100", "rows: 100, metric: math_correctness"), {}, "of the evaluation"),
    ],
)  # fmt: skip
def test_what_differs_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: dict[str, object], why: str
) -> None:
    assert differing(tmp_path, text, capsys) == expected, why


def test_tasks_of_one_name_differ_by_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = "{name: jsonl, label: own, weight: 3, path: a.jsonl}"
    text = f"model_name_or_path: some/model\ntasks: [{own}, {{name: jsonl, weight: 1, path: b.jsonl}}]\n"
    (tmp_path / "one.yaml").write_text(text + "rewards: [{name: math_correctness}]\n")
    (tmp_path / "two.yaml").write_text("extends: one.yaml\ntasks: " + text.partition("tasks: ")[2].replace("3", "30"))
    recipe_diff.main([str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml"), "--json"])
    assert json.loads(capsys.readouterr().out) == {"tasks.own.weight": [3.0, 30.0]}


def test_a_default_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'extends: a.yaml\nbeta: 0.04\nrun_name: "of\\ntwo lines"\n'
    differing(tmp_path, text, capsys)
    recipe_diff.main([str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["beta", "0.0", "(default)", "→", "0.04"] in lines and len(lines) == 2


def test_a_recipe_that_is_wrong_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE)
    assert recipe_diff.main([str(tmp_path / "a.yaml"), str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err
