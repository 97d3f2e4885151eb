"""The shapes of the recipes for GPUs: the completions of a generation, an update and a micro-batch, and the hours."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.batch_plan import batch_sizes
from rlvr.config.recipe import load_recipe
from rlvr.estimates import Estimate, estimate, find_machine
from rlvr.estimates.memory import GIB, USABLE
from tests.support.model_families import real_config

REPOSITORY = Path(__file__).resolve().parents[3]
RECIPES = [
    path
    for path in sorted((REPOSITORY / "recipes").glob("*.yaml"))
    if re.search(r"^#   Hardware .* GPUs? ", path.read_text(), re.M)
]
# Tokens of the longest prompt that the shapes of a recipe are chosen for, by task. `--check` measures the real ones.
PROMPTS = {
    "gsm8k": 300,
    "countdown": 200,
    "multiple_choice": 500,
    "competition_math": 700,
    "mbpp": 700,
    "instruction_following": 800,
    "squad_numbers": 800,
    "text_to_sql": 1000,
    "json_extraction": 1200,
    "function_calls": 1500,
    "code_contests": 2000,
}
GSM8K_UPDATES = 416  # of an epoch: 6,656 of the training rows in 104 generations, each used for four updates
# Models that have the shape of another.
SHAPE_OF = {
    "Qwen/Qwen2.5-0.5B": "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-Coder-7B-Instruct": "Qwen/Qwen2.5-7B-Instruct",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "Qwen/Qwen2.5-7B-Instruct",
}
EXAMPLES = {"24 GB": ("A10G", "A10G-24GB"), "48 GB": ("L40S", "L40S-48GB"), "80 GB": ("H100", "H100-80GB")}


@cache
def config_of(model: str) -> Any:
    return real_config(SHAPE_OF.get(model, model))


def gpus_of(path: Path) -> tuple[str, str, int]:
    """The GPU of a recipe's header, by its name in the header and in the table of machines, and how many."""
    hardware = re.search(r"^#   Hardware +(.*)$", path.read_text(), re.MULTILINE)
    assert hardware is not None
    size = next(size for size in EXAMPLES if size in hardware[1])
    several = re.match(r"(\d+) GPUs", hardware[1])
    return *EXAMPLES[size], int(several[1]) if several else 1


def estimated(path: Path, *words: str, steps: int = 100) -> Estimate:
    """The estimate on the recipe's own machine."""
    _, gpu, processes = gpus_of(path)
    recipe = load_recipe(path, words)
    tasks = [task.name for task in recipe.tasks]
    prompt = 1500 if recipe.tasks[0].options.get("shots") == 8 else max(PROMPTS[task] for task in tasks)
    launcher = "python" if processes == 1 else "zero2_offload" if "offload" in path.stem else "zero3"
    config = config_of(str(recipe.settings["model_name_or_path"]))
    return estimate(recipe, config, processes, launcher, find_machine(gpu), prompt_tokens=prompt, steps=steps)


def engines(path: Path) -> list[str]:
    rollouts = load_recipe(path).settings["rollouts"]
    return ["vllm", "transformers"] if rollouts == "auto" else [rollouts]


def updates_of(path: Path) -> int:
    recipe = load_recipe(path)
    return int(recipe.settings.get("max_steps") or (GSM8K_UPDATES if recipe.task_name == "gsm8k" else 100))


def hours_line(path: Path) -> str:
    """The line of a recipe's header."""
    steps = updates_of(path)
    name, _, processes = gpus_of(path)
    times = []
    for engine in engines(path):
        hours = estimated(path, "--rollouts", engine, steps=steps).hours
        assert hours is not None
        low, high = (f"{hour:.1f}" if hour < 9.95 else f"{hour:.0f}" for hour in hours.total)
        times.append(f"{low} to {high} with {'vLLM' if engine == 'vllm' else engine}")
    where = f"{processes} x {name}" if processes > 1 else f"an {name}"
    return f"#   Hours      {', '.join(times)}: estimated for {steps} updates on {where}"


def fits(path: Path, rows: int, *words: str) -> bool:
    """Whether a micro-batch leaves a tenth of the GPU free with each engine."""
    shape = ("--per_device_train_batch_size", str(rows), "--gradient_accumulation_steps", "1", *words)
    _, gpu, _ = gpus_of(path)
    room = USABLE * find_machine(gpu).gpu.memory * GIB
    return all(estimated(path, "--rollouts", one, *shape).memory.peak <= room for one in engines(path))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_generation_fills_the_gpu_and_serves_few_large_updates(path: Path) -> None:
    recipe = load_recipe(path)
    sizes = batch_sizes(recipe, gpus_of(path)[2])
    assert sizes.completions >= 256, "prompts x generations"
    updates, rest = divmod(sizes.steps * sizes.iterations, sizes.accumulation)
    assert not rest and updates <= 4 and sizes.completions // updates >= 128
    assert recipe.settings["save_steps"] % updates == 0, "a checkpoint between two generations"
    assert updates_of(path) >= 100
    assert recipe.settings["vllm_importance_sampling_mode"] == "token_truncate"


QLORA = [path for path in RECIPES if load_recipe(path).settings["use_peft"]]


@pytest.mark.slow
@pytest.mark.parametrize("path", QLORA, ids=lambda path: path.stem)
def test_the_micro_batch_is_the_largest_that_fits(path: Path) -> None:
    """Powers of two; with checkpointing only where fewer than 8 completions fit without it."""
    settings = load_recipe(path).settings
    rows, checkpointing = settings["per_device_train_batch_size"], settings["activation_checkpointing"]
    own = ("--activation_checkpointing", str(checkpointing).lower())
    assert fits(path, rows, *own) and (rows == 128 or not fits(path, 2 * rows, *own))
    assert checkpointing != fits(path, 8, "--activation_checkpointing", "false")
    assert rows * settings["gradient_accumulation_steps"] == 128
    if "vllm" in engines(path):
        assert not estimated(path, "--rollouts", "vllm").vllm_share_problem


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_header_states_the_estimated_hours(path: Path) -> None:
    assert hours_line(path) in path.read_text().splitlines()
