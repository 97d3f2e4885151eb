"""Every recipe loads, opens with its header, and passes the check; each kind of recipe trains two steps."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file
from transformers import AutoConfig

import run_grpo
from rlvr.config.recipe import load_recipe
from rlvr.data.io import write_rows
from rlvr.environments.loading import load_environments
from rlvr.estimates import parameters
from rlvr.preflight import batch_checks
from rlvr.preflight.components import RunComponents
from rlvr.scoring.registry import load_rewards, load_task
from rlvr.training.callbacks import read_metrics
from scripts import make_own_task
from tests.support.environment_data import (
    write_calls,
    write_choices,
    write_competition_problems,
    write_extractions,
    write_instructions,
    write_questions_on_articles,
    write_questions_on_tables,
)
from tests.support.model_families import SHAPES, small_tokenizer, write_small_model

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = sorted((REPOSITORY / "recipes").glob("*.yaml"))
SMOKE_RECIPE = "gsm8k-qwen2.5-0.5b-instruct-qlora"  # the one that `make test` trains
TINY = REPOSITORY / "models" / "tiny-arithmetic"
TINY_WITH_TOOLS = REPOSITORY / "models" / "tiny-tools"

# What differs from the recipe so that it runs on two CPU cores: the model, the number format (CPUs emulate bfloat16), a
# few short completions, and no vLLM, which needs a GPU. Everything else is the recipe's.
SMALL = [
    *("--model_name_or_path", str(TINY), "--use_cpu", "true", "--dtype", "float32", "--bf16", "false"),
    *("--max_steps", "2", "--num_generations", "4", "--per_device_train_batch_size", "4"),
    *("--max_completion_length", "24", "--report_to", "none"),
]
SMALL_EVALUATION = ["--evaluation.rows", "4", "--evaluation.batch_size", "64"]


# What a handful of short completions of the tiny model gets from a recipe's own rewards is often 0 throughout, of which
# nothing is learnt; so there is one more, of which something is.
MORE = """
import zlib

def one_more(completions, **kwargs):
    return [zlib.crc32(str(completion).encode()) % 100 / 100 for completion in completions]
"""


def with_one_more_reward(path: Path, folder: Path) -> Path:
    """A recipe that extends another one."""
    (folder / "one_more.py").write_text(MORE)
    rewards = load_recipe(path).as_dict()["rewards"]
    content = {"extends": str(path), "rewards": [*rewards, {"name": str(folder / "one_more.py"), "weight": 0.1}]}
    copy = folder / path.name
    copy.write_text(yaml.safe_dump(content), encoding="utf-8")
    return copy


def write_own_task(folder: Path) -> Path:
    for split in make_own_task.ROWS:
        write_rows(folder / f"{split}.jsonl", make_own_task.make_rows(split))
    return folder


@pytest.fixture(scope="module")
def contest_problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the form of CodeContests on the hub, with problems of our own."""
    folder = tmp_path_factory.mktemp("contest-problems")
    for split, numbers in (("train", range(2, 42)), ("test", range(50, 58))):
        rows = [
            {
                "name": f"{number}_A. Jars",
                "description": f"A crate holds {number} jars. How many jars are in n crates?\n\n"
                "Input\n\nA whole number n (1 <= n <= 100).\n\nOutput\n\nPrint one number.\n\nExamples\n\n"
                f"Input\n\n2\n\n\nOutput\n\n{2 * number}\n",
                "public_tests": {"input": ["2\n"], "output": [f"{2 * number}\n"]},
                "private_tests": {"input": ["3\n", "9\n"], "output": [f"{3 * number}\n", f"{9 * number}\n"]},
                "time_limit": {"seconds": 1, "nanos": 0},
                "memory_limit_bytes": 256_000_000,
                "cf_rating": 800,
            }
            for number in numbers
        ]
        write_rows(folder / f"{split}.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def small_functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in the form of MBPP's, with tasks of our own."""
    path = tmp_path_factory.mktemp("small-functions") / "mbpp.jsonl"
    rows = [
        {
            "task_id": number,
            "text": f"Write a function that adds {number} to a number.",
            "code": f"def add(n):\n    return n + {number}",
            "test_list": [f"assert add({n}) == {n + number}" for n in range(3)],
            "test_setup_code": "",
            "challenge_test_list": [],
        }
        for number in (*range(11, 21), *range(601, 641))
    ]
    write_rows(path, rows)
    return path


@pytest.fixture(scope="module")
def stand_ins(
    word_problems: Path, contest_problems: Path, small_functions: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """For each task that would download its data, a path to data of our own."""
    return {
        "gsm8k": word_problems,
        "competition_math": write_competition_problems(tmp_path_factory.mktemp("competitions")),
        "multiple_choice": write_choices(tmp_path_factory.mktemp("choices")),
        "json_extraction": write_extractions(tmp_path_factory.mktemp("extractions")),
        "function_calls": write_calls(tmp_path_factory.mktemp("calls")),
        "code_contests": contest_problems,
        "mbpp": small_functions,
        "text_to_sql": write_questions_on_tables(tmp_path_factory.mktemp("tables")),
        "instruction_following": write_instructions(tmp_path_factory.mktemp("instructions")),
        "squad_numbers": write_questions_on_articles(tmp_path_factory.mktemp("articles")),
        "jsonl": write_own_task(tmp_path_factory.mktemp("own-task")),
    }


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_opens_with_model_launch_override_and_expected_result(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    for word in ("Trains", "Hardware", "Model", "Launch", "Override", "Expect"):
        assert re.search(rf"^#   {word} ", head, re.MULTILINE), f"{word} is missing"
    assert f"recipes/{path.name}" in head, "the launch command names the recipe itself"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_commands_of_a_header_make_whole_batches(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("\n\n")[0].replace("\\\n#", " ")
    commands = re.findall(r"^#(?:   Launch)? +((?:accelerate launch|python) .*run_grpo\.py .*)$", head, re.MULTILINE)
    assert commands
    for command in commands:
        words = shlex.split(command, comments=True)
        processes = 1
        if "--config_file" in words:
            launcher = REPOSITORY / words[words.index("--config_file") + 1]
            processes = yaml.safe_load(launcher.read_text(encoding="utf-8"))["num_processes"]
        if "--num_processes" in words:
            processes = int(words[words.index("--num_processes") + 1])
        recipe = load_recipe(path, words[words.index("--config") + 2 :])
        components = RunComponents(recipe, processes=processes)
        assert list(batch_checks.check_batches(components)) == [], command


def updates_a_generation(settings: Mapping[str, Any]) -> int:
    """How many optimizer steps are made from the completions of one generation."""
    accumulation, rows = settings.get("gradient_accumulation_steps", 1), settings["per_device_train_batch_size"]
    batches = settings.get("generation_batch_size", rows * accumulation) // rows  # on one GPU
    batches = settings.get("steps_per_generation") or batches
    assert batches % accumulation == 0, "an update would mix the completions of two generations"
    return int(batches // accumulation)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_checkpoints_are_saved_between_generations(path: Path) -> None:
    """A checkpoint in the middle of a generation can't be continued exactly."""
    recipe = load_recipe(path)
    assert recipe.evaluation is not None, "every run ends with a measured answer"
    settings = recipe.settings
    if settings["save_strategy"] == "steps":
        assert settings["save_steps"] % updates_a_generation(settings) == 0


def linear_modules(model: Path) -> set[str]:
    """The linear layers of a model's text part, less the gates of linear attention, which have one row a head."""
    config = AutoConfig.from_pretrained(model)
    without = re.compile("vision_tower|multi_modal_projector|in_proj_[ab]$")
    return {matrix.name for matrix in parameters.count(config).matrices if not without.search(matrix.name)}


def adapted_modules(adapter: Path) -> set[str]:
    tensors = load_file(adapter / "adapter_model.safetensors")
    names = {name.removesuffix(".lora_B.weight") for name in tensors if name.endswith(".lora_B.weight")}
    assert all(abs(tensors[f"{name}.lora_B.weight"]).max() > 0 for name in names), "each one learns"
    return {name.removeprefix("base_model.model.") for name in names}


FAMILIES = [path for path in RECIPES if load_recipe(path).settings["model_name_or_path"] in SHAPES]
NO_THOUGHTS = "<think>\n\n</think>\n\n"
OPENED_TURNS = {"Qwen3-": NO_THOUGHTS, "Qwen3.5": NO_THOUGHTS, "SmolLM3": NO_THOUGHTS, "DeepSeek": "<think>\n"}


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_a_turn_begins_without_thoughts_where_they_can_be_switched_off(path: Path) -> None:
    settings = load_recipe(path).settings
    turns = [{"role": "user", "content": "What is two and two?"}]
    tokenizer = small_tokenizer(settings["model_name_or_path"])
    options = settings.get("chat_template_kwargs", {})
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **options)
    opened = next((turn for name, turn in OPENED_TURNS.items() if name in settings["model_name_or_path"]), "")
    assert str(text).partition("two and two?")[2].endswith(opened) and str(text).count("<think>") == bool(opened)


def parts(path: Path) -> set[str]:
    """What only training goes through: the family of models, environments, and keys of the trainer.

    Tasks and rewards are part of the check, which calls each reward for rows of the task.
    """
    recipe = load_recipe(path)
    family = SHAPES.get(recipe.settings["model_name_or_path"], ("of the demonstrations",))[0]
    keys = ("use_peft", "load_in_4bit", "scale_rewards", "dynamic_sampling")
    trainer = {"beta": bool(recipe.settings.get("beta")), "mixture": recipe.is_mixture}
    trainer |= {key: recipe.settings.get(key) for key in keys}
    return {family, *(spec.name for spec in recipe.environments), *(f"{key} {value}" for key, value in trainer.items())}


def trained_recipes() -> list[Path]:
    """Recipes that together have all parts. The demonstrations are trained in the files next to this one."""
    trained, covered = [], set()
    for path in sorted(RECIPES, key=lambda path: (path.stem != SMOKE_RECIPE, not path.stem.startswith("demo-"))):
        if not parts(path) <= covered:
            covered |= parts(path)
            trained.append(path)
    return [path for path in trained if not path.stem.startswith("demo-")]


TRAINED = trained_recipes()


def small_words(path: Path, folder: Path, stand_ins: dict[str, Path]) -> list[str]:
    """The command line that runs a recipe as SMALL says, with data of our own and a small model of the family."""
    recipe = load_recipe(path)
    words = [*SMALL, "--output_dir", str(folder / "run")]
    if recipe.task_name in stand_ins:
        words += ["--task.path", str(stand_ins[recipe.task_name])]
        words += [f"--task.{option}=null" for option in ("test_path", "sources") if option in recipe.tasks[0].options]
    for part in recipe.tasks if recipe.is_mixture else ():
        words += [f"--tasks.{part.label}.path", str(stand_ins[part.name])]
    if "train_rows" in recipe.tasks[0].options:  # of a task that makes its rows
        words += ["--task.train_rows", "64", "--task.test_rows", "16"]
    if recipe.settings.get("use_vllm"):
        words += ["--use_vllm", "false"]
    if "folder" in recipe.tasks[0].options:
        reader = "environment" if recipe.environments else "rewards.sql_result"
        words += ["--task.folder", str(folder / "data"), f"--{reader}.options.folder", str(folder / "data")]
    words += SMALL_EVALUATION
    model = recipe.settings["model_name_or_path"]
    if recipe.environments:
        words += ["--model_name_or_path", str(TINY_WITH_TOOLS)]
    elif model in SHAPES:
        words += ["--model_name_or_path", str(write_small_model(model, folder / "model"))]
    updates = min(updates_a_generation(recipe.settings), 2)
    return [*words, "--gradient_accumulation_steps", "1", "--steps_per_generation", str(updates)]


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in RECIPES if path not in TRAINED], ids=lambda path: path.stem)
def test_a_recipe_like_a_trained_one_passes_the_check(path: Path, stand_ins: dict[str, Path], tmp_path: Path) -> None:
    assert run_grpo.main(["--config", str(path), *small_words(path, tmp_path, stand_ins), "--check"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.smoke] if path.stem == SMOKE_RECIPE else [])
        for path in TRAINED
    ],
)
def test_a_recipe_trains_two_steps_with_the_tiny_model(
    path: Path, stand_ins: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recipe = load_recipe(path)
    has_report = path.stem == SMOKE_RECIPE
    if not has_report:
        request.getfixturevalue("without_report")
    words = small_words(path, tmp_path, stand_ins)
    path = with_one_more_reward(path, tmp_path)
    words = ["--config", str(path), *words]
    updates = min(updates_a_generation(recipe.settings), 2)
    assert run_grpo.main(words) == 0

    run = tmp_path / "run"
    # A generation is scored once, and logged with the first of its updates.
    scored = [1, 2] if updates == 1 else [1]
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl") if "reward" in line] == scored
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert evaluation["base"]["rows"] == evaluation["trained"]["rows"] == 4 * len(recipe.tasks)
    assert (run / "report.html").is_file() == has_report
    if (tmp_path / "model").exists() and recipe.settings["use_peft"]:
        assert adapted_modules(run / "adapter") == linear_modules(tmp_path / "model")
    weights = "adapter/adapter_model.safetensors" if recipe.settings["use_peft"] else "model/model.safetensors"
    assert (run / weights).is_file()
    written = load_recipe(run / "recipe.yaml")
    assert written.tasks == load_recipe(path, words[2:]).tasks
    assert written.settings["rollouts"] == "transformers", "what was in force, not auto"


CPP = "#include <iostream>\nint main() {{ int n; std::cin >> n; std::cout << {} << std::endl; }}"
# For each recipe that trains on code: a right answer to the row whose number is N, and a wrong one.
ANSWERS = {
    "codefu-deepseek-r1-distill-qwen-7b-full-vllm": (
        f"One crate holds N.\n</think>\nHere it is:\n```cpp\n{CPP.format('n * N')}\n```",
        f"One crate holds N.\n</think>\nHere it is:\n```cpp\n{CPP.format('n + N')}\n```",
    ),
    "qwen2.5-coder-7b-instruct-full-offload": (
        "```python\nprint(int(input()) * N)\n```",
        "```python\nprint(int(input()) + N)\n```",
    ),
    "mbpp-qwen2.5-coder-1.5b-instruct-qlora": (
        "```python\ndef add(n):\n    return n + N\n```",
        "```python\ndef add(n):\n    return N\n```",  # right for the assert that the prompt shows, and for no other
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_a_recipe_pays_for_right_programs_and_not_for_wrong_ones(name: str, stand_ins: dict[str, Path]) -> None:
    """Task, columns, options and rewards fit together: what the task asks for is what the rewards count."""
    path = REPOSITORY / "recipes" / f"{name}.yaml"
    recipe = load_recipe(path)
    recipe = load_recipe(path, ["--task.path", str(stand_ins[recipe.task_name])])
    rows = load_task(recipe.tasks[0]).train.select(range(2))
    numbers = [re.findall(r"holds (\d+)|adds (\d+)", row["question"])[0] for row in rows]
    columns = {column: list(rows[column]) for column in rows.column_names if column != "prompt"}
    rewards = load_rewards(recipe.rewards)
    for answer, expected in zip(ANSWERS[name], (1.0, 0.0), strict=True):
        completions = [[{"role": "assistant", "content": answer.replace("N", "".join(number))}] for number in numbers]
        assert rewards[0](list(rows["prompt"]), completions, **columns) == [expected] * 2
        for reward in rewards[1:]:
            assert reward(list(rows["prompt"]), completions, **columns) == [1.0, 1.0], "the form is right in both"


def test_the_repair_recipe_pays_for_the_solution_and_not_for_the_faulty_program(stand_ins: dict[str, Path]) -> None:
    path = REPOSITORY / "recipes" / "mbpp-repair-qwen3-1.7b-qlora.yaml"
    recipe = load_recipe(path, ["--task.path", str(stand_ins["mbpp"])])
    (environment,) = load_environments(recipe.environments)
    for row in load_task(recipe.tasks[0]).train.select(range(2)):
        for program, reward in (("solution", 1.0), ("faulty_program", 0.0)):
            played = environment.build()
            shown = row["prompt"][0]["content"] + played.reset(**row)
            assert row["faulty_program"].strip() in shown and "Submit" in shown
            assert not any(test["assert"] in shown for test in row["tests"]), "the tests that decide are hidden"
            played.submit(row[program])
            assert played.get_reward() == reward


def test_code_in_thoughts_that_never_end_is_no_answer(stand_ins: dict[str, Path]) -> None:
    """DeepSeek's chat template opens <think>, so a completion that was cut off has no tag that tells."""
    path = REPOSITORY / "recipes" / "codefu-deepseek-r1-distill-qwen-7b-full-vllm.yaml"
    recipe = load_recipe(path, ["--task.path", str(stand_ins["code_contests"])])
    row = load_task(recipe.tasks[0]).train[0]
    number = re.findall(r"holds (\d+)", row["question"])[0]
    draft = f"First try:\n```cpp\n{CPP.format(f'n * {number}')}\n```\nBut wait, what if"
    columns = {column: [row[column]] for column in row if column != "prompt"}
    assert load_rewards(recipe.rewards)[0]([row["prompt"]], [[{"role": "assistant", "content": draft}]], **columns) == [
        -1
    ]
