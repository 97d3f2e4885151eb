"""The tables of recipes in docs/estimates.md have what they are estimated to take."""

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
# Models that have the shape of another.
SHAPE_OF = {
    "Qwen/Qwen2.5-0.5B": "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-Coder-7B-Instruct": "Qwen/Qwen2.5-7B-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "Qwen/Qwen2.5-7B-Instruct",
}
OTHER_MACHINES = {
    "24 GB (A10G)": ("A10G-24GB", 1, "python"),
    "48 GB (L40S)": ("L40S-48GB", 1, "python"),
    "80 GB (H100)": ("H100-80GB", 1, "python"),
    "4 x 80 GB (A100), ZeRO-2 offloaded": ("A100-80GB", 4, "zero2_offload"),
    "8 x 80 GB (H100), ZeRO-3": ("H100-80GB", 8, "zero3"),
}


def rows_of(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [row.strip("|").split("|") for row in section.splitlines() if re.search(r"[\d-] / ", row)]
    return [[cell.strip() for cell in row] for row in rows]


ROWS = rows_of("QLoRA on GSM8K by model")
OTHER_ROWS = rows_of("Longest prompts of the other recipes")


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_what_the_recipe_is_estimated_to_take(row: list[str]) -> None:
    path = REPOSITORY / "recipes" / f"gsm8k-{row[0]}-qlora.yaml"
    for cell, (gpu, processes, launcher) in zip(row[1:], MACHINES, strict=True):
        for peak, engine in zip(cell.split("/"), ("transformers", "vllm"), strict=True):
            recipe = load_recipe(path, ["--rollouts", engine])
            config = real_config(str(recipe.settings["model_name_or_path"]))
            result = estimate(recipe, config, processes, launcher, find_machine(gpu), prompt_tokens=200)
            assert peak.strip() == (f"{result.memory.peak / 2**30:.1f}" if result.fits else "no")


@pytest.mark.slow
@pytest.mark.parametrize("row", OTHER_ROWS, ids=lambda row: row[0])
def test_a_recipe_fits_its_machine_up_to_the_longest_prompt_of_its_row(row: list[str]) -> None:
    gpu, processes, launcher = OTHER_MACHINES[row[1]]
    path = REPOSITORY / "recipes" / f"{row[0]}.yaml"
    for cell, engine in zip(row[2].split(" / "), ("transformers", "vllm"), strict=True):
        recipe = load_recipe(path)
        if recipe.settings["rollouts"] == "auto":
            recipe = load_recipe(path, ["--rollouts", engine])
        elif recipe.settings["rollouts"] != engine:
            assert cell == "-"
            continue
        model = str(recipe.settings["model_name_or_path"])
        config = real_config(SHAPE_OF.get(model, model))
        longest = int(cell.replace(",", ""))
        for tokens in (longest, longest + 100) if longest < 4000 else (longest,):
            result = estimate(recipe, config, processes, launcher, find_machine(gpu), prompt_tokens=tokens)
            assert result.fits == (tokens == longest), tokens


def test_each_recipe_of_a_gpu_has_a_row() -> None:
    paths = (REPOSITORY / "recipes").glob("*.yaml")
    recipes = {path.stem for path in paths if not load_recipe(path).settings.get("use_cpu")}
    rows = [f"gsm8k-{row[0]}-qlora" for row in ROWS] + [row[0] for row in OTHER_ROWS]
    assert sorted(rows) == sorted(recipes)
