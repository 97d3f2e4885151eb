"""Scripts that take one task refuse a recipe with several before they load anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.config.recipe import load_recipe, require_one_task
from scripts import evaluate, prepare_data, red_team
from tests.conftest import REPOSITORY
from tests.support.input_errors import input_error

RECIPE = REPOSITORY / "recipes" / "math-and-code-qwen3-1.7b-qlora.yaml"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (prepare_data, ["--output", "OUT/data"]),
        (red_team, []),
        (evaluate, ["--samples", "4", "--output", "OUT"]),
    ],
)
def test_a_recipe_with_several_tasks_is_refused(tmp_path: Path, script: object, words: list[str]) -> None:
    words = [word.replace("OUT", str(tmp_path / "out")) for word in words]
    assert script.main(["--config", str(RECIPE), *words]) == 2  # type: ignore[attr-defined]
    assert not (tmp_path / "out").exists()


def test_the_refusal_has_its_kind() -> None:
    with input_error("several-tasks", "tasks"):
        require_one_task(load_recipe(RECIPE), "this")
