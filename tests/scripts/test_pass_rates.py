"""Pass rates of training rows by scripts/evaluate.py, with the tiny model and a reward whose rates are known before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.scoring.registry import load_task
from scripts import evaluate

# Right as often as the row's column says: never, every other time, or always; or nothing that can be scored.
REWARD = '''
def known(completions, how, **kwargs):
    """Right as often as the row says."""
    values = {"never": (0.0, 0.5), "half": (0.0, 1.0), "always": (1.0, 1.0), "unscored": (None, None)}
    return [values[often][place % 2] for place, often in enumerate(how)]

def played(completions, how, environments, **kwargs):
    """The same, of conversations in environments."""
    assert {environment.target for environment in environments} == {3}
    return known(completions, how)
'''
HOW = ("never", "half", "always", "unscored", "half", "half")
RECIPE = """\
model_name_or_path: models/{model}
task: {{name: jsonl, path: {data}, test_path: {test}, style: {style}}}
rewards: [{{name: "{reward}"}}]
max_completion_length: 4
use_cpu: true
"""
ENVIRONMENT = """\
environment: {name: tests/support/counting.py}
max_tool_calling_iterations: 1
"""


def rows(count: int) -> list[dict[str, Any]]:
    # Prompts of every length, so that the order in which they are sampled isn't that of the data.
    return [
        {"prompt": f"Number {row}{' and more' * (row % 7)}", "how": HOW[row % 6], "tests": json.dumps([{"input": row}])}
        for row in range(count)
    ]


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    def write(count: int = 24, style: str = "chat", *, played: bool = False) -> Path:
        (tmp_path / "known.py").write_text(REWARD, encoding="utf-8")
        for name, content in (("data", rows(count)), ("test", [{"prompt": "Held out", "how": "never", "tests": "[]"}])):
            lines = "".join(json.dumps(row) + "\n" for row in content)
            (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        path = tmp_path / "recipe.yaml"
        text = RECIPE.format(
            model="tiny-tools" if played else "tiny-arithmetic",
            data=tmp_path / "data.jsonl",
            test=tmp_path / "test.jsonl",
            style=style,
            reward=f"{tmp_path / 'known.py'}:{'played' if played else 'known'}",
        )
        path.write_text(text + (ENVIRONMENT if played else ""), encoding="utf-8")
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize(("style", "played"), [("chat", False), ("text", False), ("chat", True)])
def test_a_recipe_trains_on_the_rows_that_are_solved_sometimes(
    recipe: Callable[..., Path], tmp_path: Path, style: str, played: bool
) -> None:
    path = recipe(style=style, played=played)
    words = ["--config", str(path), "--split", "train", "--samples", "2", "--output", str(tmp_path / "rates")]
    assert evaluate.main([*words, "--evaluation.batch_size", "5"]) == 0
    file = tmp_path / "rates" / "pass_rates.jsonl"
    assert [json.loads(line)["pass_rate"] for line in file.read_text().splitlines()] == [
        {"never": 0.0, "half": 0.5, "always": 1.0, "unscored": None}[row["how"]] for row in rows(24)
    ]
    task = load_task(load_recipe(path, ["--task.pass_rates", str(file)]).tasks[0])
    expected = [row for row in rows(24) if row["how"] == "half"]
    assert [row["tests"] for row in task.train] == [row["tests"] for row in expected], "in the order of the data"
    assert set(task.train["pass_rate"]) == set(task.train["difficulty"]) == {0.5}
    assert len(task.test) == 1


@pytest.mark.parametrize("words", [[], ["--samples", "2", "--adapter", "runs/x/adapter"]])
def test_training_rows_are_measured_for_pass_rates_alone(recipe: Callable[..., Path], words: list[str]) -> None:
    assert evaluate.main(["--config", str(recipe()), "--split", "train", *words]) == 2
