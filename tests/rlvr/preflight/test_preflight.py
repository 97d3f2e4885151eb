"""What would go wrong later, or silently, is found before a weight is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from rlvr import preflight
from rlvr.config.recipe import EvaluationSpec, Recipe, RecipeError, RewardSpec, TaskSpec, load_recipe
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.preflight.check import TargetMachine, prepare_run
from rlvr.preflight.data_checks import row_faults
from rlvr.preflight.fault_collector import FaultCollector
from rlvr.scoring.reward import Reward

DEMO = Path(__file__).resolve().parents[3] / "recipes" / "demo-arithmetic.yaml"
MODEL = Path(__file__).resolve().parents[3] / "models" / "tiny-arithmetic"


def dataset(rows: int, start: int = 100, **columns: Any) -> Dataset:
    prompts = [f"What is {number}-1?" for number in range(start, start + rows)]
    return Dataset.from_dict({"prompt": prompts, "final_answer": ["2"] * rows, **columns})


def run_check(
    settings: dict[str, Any] | None = None,
    *,
    train: Dataset | None = None,
    test: Dataset | None = None,
    columns: tuple[str, ...] = ("final_answer",),
    processes: int = 1,
    stop_strings: tuple[str, ...] = ("\n",),
    gold: Callable[[Any], str] | None = None,
    model: Path = MODEL,
) -> preflight.Plan:
    from transformers import AutoConfig, AutoTokenizer

    recipe = Recipe(
        path=Path("r.yaml"),
        task=TaskSpec("t"),
        rewards=(RewardSpec("r"),),
        evaluation=EvaluationSpec(),
        settings={"model_name_or_path": str(model), "output_dir": "no-such-run", "use_peft": True, **(settings or {})},
    )
    train = dataset(64) if train is None else train
    test = dataset(4, start=500) if test is None else test
    task = Task(train=train, validation=train.select([]), test=test, stop_strings=stop_strings, gold=gold)
    reward = Reward("r", lambda **kwargs: [], columns=columns)
    config, tokenizer = AutoConfig.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    found = preflight.check_recipe(
        recipe, preflight.RunComponents(task, [reward], reward, tokenizer, config), processes
    )
    if found.faults:
        raise InputError("\n".join(found.faults))
    assert found.plan is not None
    return found.plan


@pytest.mark.parametrize(
    ("settings", "rows", "processes", "plan", "why"),
    [
        ({}, 64, 1, (1, 8, 192), "TRL's defaults: batch 8, 8 generations, 3 epochs"),
        ({"gradient_accumulation_steps": 4}, 64, 1, (4, 8, 48), "4 prompts a generation, a step each"),
        ({"gradient_accumulation_steps": 4}, 64, 2, (8, 8, 24), "twice the processes, half the steps"),
        ({"steps_per_generation": 2}, 64, 1, (2, 8, 192), "one generation serves two steps"),
        ({"num_iterations": 2}, 64, 1, (1, 8, 384), "each generation is used twice"),
        ({"max_steps": 5}, 64, 1, (1, 8, 5), "max_steps wins"),
        ({"num_train_epochs": 1, "gradient_accumulation_steps": 3}, 64, 1, (3, 8, 21), "64 = 21 x 3 + 1 left over"),
    ],
)
def test_the_plan_says_what_will_run(
    settings: dict[str, Any], rows: int, processes: int, plan: tuple[int, int, int], why: str
) -> None:
    found = run_check(settings, train=dataset(rows), processes=processes)
    assert (found.prompts, found.generations, found.steps) == plan, why


@pytest.mark.parametrize(
    ("settings", "said", "why"),
    [
        ({"per_device_train_batch_size": 6}, "does not divide into groups of num_generations = 8", "6 by 8"),
        ({"gradient_accumulation_steps": 100}, "takes 100 prompts, but the training split has 64", "TRL: 0 steps"),
        ({"num_generations": 1}, "at least 2 completions", "no group"),
        ({"report_to": "mlfow"}, "did you mean mlflow?", "a tracker misspelt"),
        ({"report_to": ["mlflow", "clearml"]}, "clearml is not installed here", "a tracker that isn't there"),
        ({"output_dir": __file__}, "is a file", "no folder"),
        ({"load_in_4bit": True, "use_peft": False}, "set use_peft: true", "4 bits can't be trained"),
        ({"load_in_4bit": True, "use_vllm": True}, "issues 4973", "known broken"),
        ({"use_vllm": True}, "vllm is not installed", "not here"),
        ({"attn_implementation": "flash_attention_2"}, "flash-attn is not installed", "not here"),
        ({"lora_target_modules": ["q_proj", "lm_head"]}, "a LoRA on lm_head", "TRL reads its weight directly"),
        ({"lora_modules_to_save": ["embed_tokens"]}, "shares its embeddings", "the original's mistake"),
        ({"max_completion_length": 5000}, "no room for a prompt", "too long for the model"),
        ({"max_completion_length": 4090}, "64 of 64 train prompts are too long", "a prompt of 9 tokens, room for 6"),
        ({"learning_rate": 0}, "nothing would be learnt", "a run for nothing"),
        ({"max_steps": 1, "warmup_steps": 5}, "the first step's learning rate is 0", "a run for nothing"),
        (
            {"reward_timeout_s": 100, "reward_batch_timeout_s": 60},
            "100 for a row, but reward_batch_timeout_s is 60",
            "never fits",
        ),
        ({"dynamic_sampling": 2, "scale_rewards": "batch"}, "Use scale_rewards: group", "rounds have no common batch"),
        ({"curriculum": "easy_first"}, "difficulty", "no such column"),
    ],
)
def test_what_cannot_work_is_refused_in_words(settings: dict[str, Any], said: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        run_check(settings)
    assert said in str(caught.value), why


def test_rewards_may_not_take_as_long_as_the_other_processes_wait() -> None:
    patience = {"ddp_timeout": 600, "reward_batch_timeout_s": 500, "per_device_train_batch_size": 8}
    assert run_check(patience).processes == 1, "nobody waits for a single process"
    with pytest.raises(InputError, match="wait for at most ddp_timeout = 600 s.* Set ddp_timeout to 750 or more"):
        run_check(patience, processes=2)
    assert run_check({**patience, "ddp_timeout": 750}, processes=2).processes == 2


@pytest.mark.parametrize(
    ("settings", "warned", "why"),
    [
        ({"learning_rate": 0.5}, True, "5e-1 for 5e-5"),
        ({"learning_rate": 2e-3}, False, "what a LoRA on a tiny model takes"),
        ({"learning_rate": 0.5, "optim": "sgd"}, False, "without Adam a rate is on another scale"),
    ],
)
def test_a_learning_rate_that_is_a_slip_of_the_pen_is_told(settings: dict[str, Any], warned: bool, why: str) -> None:
    notes = " ".join(run_check(settings).notes)
    assert ("warning: learning_rate is 0.5" in notes) == warned, why


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which computes in bf16")
def test_without_a_gpu_it_is_said_how_to_train_on_a_cpu() -> None:
    said = refused(["--use_cpu", "false", "--bf16", "true"])
    assert said.startswith("There is no GPU here that can compute in bf16") and "use_cpu: true" in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"load_in_4bit": True, "use_peft": True, "dtype": "float32"}, "dtype float32 with 4-bit weights"),
        ({"load_in_4bit": True, "use_peft": True, "dtype": "bfloat16"}, ""),
        ({"use_peft": False, "dtype": "bfloat16"}, "there are no float32 masters"),
        ({"use_peft": False, "dtype": "float32"}, ""),
    ],
)
def test_a_number_format_that_costs_without_need_is_told(settings: dict[str, Any], said: str) -> None:
    notes = run_check({"use_cpu": False, **settings}).notes
    assert said in " ".join(notes) if said else not notes


@pytest.mark.parametrize(
    ("kwargs", "said", "why"),
    [
        ({"train": dataset(0)}, "has no rows", "empty data"),
        ({"train": dataset(64).remove_columns("prompt")}, "no column prompt", "no prompt"),
        ({"train": dataset(64, images=["x"] * 64)}, "may not be called images", "TRL would go multimodal"),
        (
            {"train": dataset(64, completions=["x"] * 64)},
            "may not be called completions",
            "two values for one argument",
        ),
        ({"columns": ("tests",)}, "needs the column tests", "a column that the reward wants"),
        ({"test": dataset(0)}, "no rows in its split test", "nothing to evaluate on"),
        (
            {"settings": {"mask_truncated_completions": True}, "stop_strings": ("\nQuestion:",)},
            "none would be learnt from",
            "a stop string is no end-of-sequence token",
        ),
        (
            {"train": Dataset.from_dict({"prompt": ["x"] * 63 + [""], "final_answer": ["1"] * 64})},
            "train, row 63: the prompt is empty",
            "an empty prompt",
        ),
    ],
)
def test_data_that_cannot_work_is_refused_in_words(kwargs: dict[str, Any], said: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        run_check(**kwargs)
    assert said in str(caught.value), why


def test_a_difficulty_without_a_place_in_the_order_is_named_beforehand() -> None:
    rows = dataset(64, difficulty=["easy"] * 63 + ["odd"])
    with pytest.raises(InputError, match="the difficulty of training row 63 is 'odd'"):
        run_check({"curriculum": "easy_first"}, train=rows)
    assert run_check({"curriculum": "easy_first"}, train=rows.select(range(63))).rows == 63


def test_prompts_that_come_twice_are_told() -> None:
    rows = Dataset.from_dict({"prompt": [f"{row % 60}?" for row in range(64)], "final_answer": ["2"] * 64})
    fresh = Dataset.from_dict({"prompt": ["3?", "100?", "5?"], "final_answer": ["2"] * 3})
    notes = run_check(train=rows, test=fresh).notes
    assert notes[0] == "4 of 64 training prompts are the same as another one"
    assert notes[1].startswith("warning: 2 of 3 test prompts are trained on (rows 0, 2)")
    assert len(notes) == 2


def test_a_turn_that_nothing_ends_is_told() -> None:
    from transformers import AutoTokenizer

    from rlvr.preflight.data_checks import turn_notes

    chat = Dataset.from_dict({"prompt": [[{"role": "user", "content": "1+1?"}]]})
    task = Task(chat, chat.select([]), chat.select([]))
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    assert turn_notes(task, tokenizer, {tokenizer.eos_token_id}) == []
    [note] = turn_notes(task, tokenizer, {3})
    assert "closes a turn with" in note and "a completion ends only at" in note
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    assert "closes no turn" in turn_notes(task, tokenizer, {tokenizer.eos_token_id})[0]
    text = Dataset.from_dict({"prompt": ["1+1?"]})
    assert turn_notes(Task(text, text.select([]), text.select([])), tokenizer, {3}) == []


def test_independent_faults_are_found_in_one_pass() -> None:
    with pytest.raises(InputError) as caught:
        run_check({"lora_target_modules": ["lm_head"]}, columns=("tests",))
    assert len(str(caught.value).splitlines()) == 2


def refused(words: list[str], **meant: Any) -> str:
    """What is said of the demonstration's recipe with these overrides."""
    recipe = load_recipe(DEMO, words)
    with pytest.raises(InputError) as caught, prepare_run(recipe, TargetMachine(**meant), brief=True):
        raise AssertionError("nothing wrong was found")
    return str(caught.value)


def test_warnings_are_said_with_the_faults() -> None:
    fault, warning = refused(["--num_generations", "7", "--ds3_gather_for_generation", "false"]).splitlines()
    assert "groups of num_generations = 7" in fault and warning.startswith("warning: ds3_gather_for_generation")


def test_a_part_that_cannot_be_loaded_hides_no_fault_of_another(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import no_such_module_at_all\n")
    words = ["--model_name_or_path", "./nowhere", "--report_to", "clearml", "--deepspeed", "zero3.json"]
    words += ["--rewards", f"[{{name: math_corectness}}, {{name: {tmp_path}/bad.py}}]", "--task.shots", "8"]
    words += ["--optim", "bogus"]
    said = refused(words)
    for fault in (
        "Did you mean math_correctness?",
        "No module named 'no_such_module_at_all'",
        "'shots'",
        "no folder ./nowhere",
        "bogus is not a valid OptimizerNames",
    ):
        assert said.count(fault) == 1, fault
    assert "how processes share the work is the launcher's business" in said and "clearml is not installed" in said

    said = refused(["--task.name", "aritmetic", "--lora_target_modules", "lm_head"])
    assert "Did you mean arithmetic?" in said and "a LoRA on lm_head" in said

    said = refused(["--rewards", "[{name: nothing}]", "--num_generations", "7"], world_size=3)
    assert "no reward 'nothing'" in said and "x 3 processes" in said


def test_trl_and_the_rewards_trial_are_asked_although_something_else_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def fails(completions, **kwargs):\n    raise ValueError('always')\n")
    words = ["--rewards", f"[{{name: {tmp_path}/fails.py}}]", "--optim", "bogus", "--lora_target_modules", "lm_head"]
    said = refused(words)
    for fault in ("a LoRA on lm_head", "TRL refuses this recipe: bogus", "fails.py raised ValueError"):
        assert said.count(fault) == 1, fault


def test_one_mistake_is_told_once() -> None:
    """TRL refuses a batch that is no whole groups too, in other words."""
    said = refused(["--num_generations", "7", "--generation_batch_size", "64"])
    assert len(said.splitlines()) == 1 and "groups of num_generations = 7" in said


def test_nothing_is_said_of_keys_whose_values_are_not_known() -> None:
    found = FaultCollector(["--lerning_rate is not a recipe key; did you mean learning_rate?"])
    found.add(["learning_rate is 0, so nothing would be learnt.", "num_generations is 1."])
    found.add(["num_generations is 1."])
    found.warn(["warning: with this learning_rate …", "warning: beware", "a note"])
    assert found.text().splitlines() == [
        "num_generations is 1.", "What depends on learning_rate is checked once that is right.", "warning: beware",
    ]  # fmt: skip


def test_a_recipe_with_faults_in_its_text_is_checked_as_far_as_it_goes() -> None:
    words = ["--lerning_rate", "1e-3", "--per_device_train_batch_size", "eight", "--evaluation.split", "train"]
    words += ["--rewards", "[{name: math_correctness, gate: nothing}, answer_format, answer_format]"]
    with pytest.raises(RecipeError) as caught:
        load_recipe(DEMO, [*words, "--output_dir", "elsewhere"])
    assert len(caught.value.problems) == 5
    rest = caught.value.rest
    assert rest is not None and rest.settings["output_dir"] == "elsewhere"
    assert rest.evaluation is None and [spec.name for spec in rest.rewards] == ["math_correctness", "answer_format"]
    with (
        pytest.raises(InputError, match="^$"),
        prepare_run(rest, brief=True, told=[problem.message for problem in caught.value.problems]),
    ):
        raise AssertionError("it is not right")


def test_what_is_right_is_loaded_whole() -> None:
    with prepare_run(load_recipe(DEMO), brief=True) as found:
        assert found.metric is found.rewards[0] and found.metric.name == "math_correctness"
        assert len(found.task.train) == 1500 and found.plan.steps == 60


def test_rows_that_a_reward_cannot_score_are_named_all_at_once(tmp_path: Path) -> None:
    from rlvr.scoring.registry import load_rewards

    reward = load_rewards([RewardSpec("math_correctness", options={"prose": False})])[0]
    good, bad = ["2"] * 60, ["forty-two", r"\frac{1}{", "10^{10^{10}}", ""]
    train = Dataset.from_dict({"prompt": ["p"] * 64, "final_answer": good + bad, "id": [f"id-{n}" for n in range(64)]})
    task = Task(train=train, validation=train.select([]), test=train.select([0, 61]))
    faults = row_faults(reward, task)
    assert len(faults) == 2
    assert "train: 4 of 64 rows" in faults[0] and "test: 1 of 2 rows" in faults[1]
    assert all(name in faults[0] for name in ("row 60 (id-60)", "forty-two", "broken off", "tower", "empty"))


def test_a_reward_that_checks_no_rows_is_left_alone() -> None:
    assert run_check() is not None


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("trl", "1.17.0", "trl 1.17.0 is installed, but this project was written for <1.17,>=1.16: pip install"),
        ("transformers", "5.5.0", "`pop from an empty deque`: huggingface/trl#4899"),
        ("deepspeed", "0.18.5", "huggingface/trl#6089"),
        ("mlflow", "", "mlflow is not installed"),
    ],
)
def test_versions_that_this_was_not_written_for_are_refused(name: str, version: str, said: str) -> None:
    from importlib import metadata

    from rlvr.preflight.versions import version_faults

    def installed(package: str) -> str:
        if package == name and not version:
            raise metadata.PackageNotFoundError(package)
        return version if package == name else metadata.version(package)

    assert version_faults() == []
    [fault] = version_faults(installed)
    assert said in fault
