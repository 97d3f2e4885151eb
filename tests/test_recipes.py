"""Every shipped recipe loads, says what a recipe must say, and trains with the tiny model in place of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import run_grpo
from rlvr.callbacks import read_metrics
from rlvr.plugins import load_rewards
from rlvr.recipe import load_recipe

REPOSITORY = Path(__file__).resolve().parents[1]
RECIPES = sorted((REPOSITORY / "recipes").glob("*.yaml"))
TINY = REPOSITORY / "models" / "tiny-arithmetic"

# What differs from the recipe so that it runs on two CPU cores: the model, the number format (CPUs emulate bfloat16), a
# few short completions, and no vLLM, which needs a GPU. Everything else is the recipe's.
SMALL = [
    *("--model_name_or_path", str(TINY), "--use_cpu", "true", "--dtype", "float32", "--bf16", "false"),
    *("--max_steps", "2", "--per_device_train_batch_size", "8", "--max_completion_length", "24"),
    *("--evaluation.rows", "8", "--evaluation.batch_size", "8", "--report_to", "none"),
]


@pytest.fixture(scope="module")
def word_problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the form of GSM8K's files, with problems of our own."""
    folder = tmp_path_factory.mktemp("word-problems")
    for split, numbers in (("train", range(2, 202)), ("test", range(300, 320))):
        rows = [
            {
                "question": f"A crate holds {number} jars and another holds twice as many. How many jars are there?",
                "answer": f"The other crate holds 2 * {number} = <<2*{number}={2 * number}>>{2 * number} jars.\n"
                f"Together they hold {number} + {2 * number} = {3 * number} jars.\n#### {3 * number:,}",
            }
            for number in numbers
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_opens_with_what_a_reader_must_know(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    for word in ("Trains", "Hardware", "Launch", "Expect"):
        assert re.search(rf"^#   {word} ", head, re.MULTILINE), f"{word} is missing"
    assert f"recipes/{path.name}" in head, "the launch command names the recipe itself"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_loads_with_its_rewards(path: Path) -> None:
    recipe = load_recipe(path)
    assert load_rewards(recipe.rewards)
    assert recipe.evaluation is not None, "every run ends with a measured answer"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_checkpoints_are_saved_between_generations(path: Path) -> None:
    """A checkpoint in the middle of a generation can't be continued exactly."""
    settings = load_recipe(path).settings
    if settings["save_strategy"] == "steps":
        cycle = settings.get("steps_per_generation") or settings.get("gradient_accumulation_steps", 1)
        assert settings["save_steps"] % cycle == 0


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_trains_two_steps_with_the_tiny_model(path: Path, word_problems: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path)
    words = ["--config", str(path), *SMALL, "--output_dir", str(tmp_path / "run")]
    if recipe.task.name == "gsm8k":
        words += ["--task.path", str(word_problems)]
    if recipe.settings.get("use_vllm"):
        words += ["--use_vllm", "false"]
    assert run_grpo.main(words) == 0

    run = tmp_path / "run"
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl") if "reward" in line] == [1, 2]
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert evaluation["base"]["rows"] == evaluation["trained"]["rows"] == 8
    assert (run / "report.html").stat().st_size > 1000
    weights = "adapter/adapter_model.safetensors" if recipe.settings["use_peft"] else "model/model.safetensors"
    assert (run / weights).is_file()
    assert load_recipe(run / "recipe.yaml").task == load_recipe(path, words[2:]).task


@pytest.mark.slow
def test_the_original_experiment_runs_whole_on_the_real_gsm8k(gsm8k_folder: Path, tmp_path: Path) -> None:
    """Eight shots, plain text, stop strings, the real rows from training to the evaluation of held-out ones."""
    import pyarrow.parquet as pq

    path = REPOSITORY / "recipes" / "gsm8k-qwen2.5-0.5b-qlora.yaml"
    run = tmp_path / "run"
    words = ["--config", str(path), *SMALL, "--task.path", str(gsm8k_folder), "--output_dir", str(run)]
    assert run_grpo.main(words) == 0

    test_rows = [json.loads(line) for line in (gsm8k_folder / "gsm8k_test.jsonl").read_text().splitlines()]
    evaluated = pq.read_table(run / "completions" / "evaluation_trained.parquet").to_pylist()
    questions = {row["question"] for row in test_rows}
    for row in evaluated:
        assert row["prompt"].count("Question: ") == 9 and row["prompt"].endswith("Let's think step by step.")
        assert row["prompt"].rpartition("Question: ")[2].partition("\nSolution:")[0] in questions
        shots = row["prompt"].rpartition("Question: ")[0]
        assert not any(question in shots for question in questions), "no shot is a test row"
