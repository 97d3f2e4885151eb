"""The table of models in docs/estimates.md has what the recipes are estimated to take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlvr.config.recipe import load_recipe
from rlvr.estimates import estimate, find_machine
from tests.support.model_families import real_config

REPOSITORY = Path(__file__).resolve().parents[3]
MACHINES = [
    ("A10G-24GB", 1, "python"),
    ("L40S-48GB", 1, "python"),
    ("H100-80GB", 1, "python"),
    ("H100-80GB", 8, "zero3"),
]
PAGE = (REPOSITORY / "docs" / "estimates.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## QLoRA on GSM8K by model")[2].partition("\n## ")[0]
ROWS = [row.strip("|").split("|") for row in SECTION.splitlines() if re.search(r"\d / ", row)]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_a_row_is_what_the_recipe_is_estimated_to_take(row: list[str]) -> None:
    path = REPOSITORY / "recipes" / f"gsm8k-{row[0].strip()}-qlora.yaml"
    for cell, (gpu, processes, launcher) in zip(row[1:], MACHINES, strict=True):
        for peak, engine in zip(cell.split("/"), ("transformers", "vllm"), strict=True):
            recipe = load_recipe(path, ["--rollouts", engine])
            config = real_config(str(recipe.settings["model_name_or_path"]))
            result = estimate(recipe, config, processes, launcher, find_machine(gpu), prompt_tokens=200)
            assert peak.strip() == (f"{result.memory.peak / 2**30:.1f}" if result.fits else "no")


def test_each_recipe_has_a_row() -> None:
    recipes = {path.stem for path in (REPOSITORY / "recipes").glob("gsm8k-*-qlora.yaml")}
    extending = {name for name in recipes if "extends:" in (REPOSITORY / "recipes" / f"{name}.yaml").read_text()}
    assert {f"gsm8k-{row[0].strip()}-qlora" for row in ROWS} == extending
