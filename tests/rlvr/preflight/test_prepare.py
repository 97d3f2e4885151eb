"""Preparing a run: components, checks, TRL's own checks and the reward trial in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr.config.recipe import RecipeError, load_recipe
from rlvr.errors import InputError
from rlvr.preflight.components import TargetMachine
from rlvr.preflight.prepare import prepare_run
from rlvr.training.trl_config import check_config

DEMO = Path(__file__).resolve().parents[3] / "recipes" / "demo-arithmetic.yaml"
FEW_ROWS = ["--task.train_rows", "96", "--task.test_rows", "100"]  # fewer test rows are warned of


def refusal(words: list[str], **target: Any) -> InputError:
    """The error for the demonstration's recipe with these overrides."""
    recipe = load_recipe(DEMO, [*FEW_ROWS, *words])
    with pytest.raises(InputError) as caught, prepare_run(recipe, TargetMachine(**target), only_check=True):
        raise AssertionError("no problem was found")
    return caught.value


def kinds(error: InputError) -> list[str]:
    return [problem.kind for problem in error.problems if problem.level != "note"]


def test_warnings_are_printed_below_the_errors() -> None:
    error = refusal(["--num_generations", "7", "--ds3_gather_for_generation", "false"])
    assert sorted(kinds(error)) == ["incomplete-group", "slow-generation"]
    assert [line.startswith("warning: ") for line in str(error).splitlines()] == [False, True]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which computes in bf16")
def test_without_a_gpu_the_error_says_how_to_train_on_a_cpu() -> None:
    assert "use_cpu: true" in str(refusal(["--use_cpu", "false", "--bf16", "true"]))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--optim", "galore_adamw"], "its package is not among ours"),
        (["--optim", "galore_adamw", "--optim_target_modules", "all-linear"], "its package is not among ours"),
        (["--optim", "grokadamw"], "transformers raises a ValueError"),
        (["--optim", "sgd", "--optim_args", "momentum=high"], "no number"),
        (["--optim_args", "momentum"], "no value"),
    ],
)
def test_an_optimizer_that_transformers_cannot_make_is_refused(words: list[str], why: str) -> None:
    with pytest.raises(InputError) as caught:
        check_config(load_recipe(DEMO, words), ())
    is_option = any(word.startswith("momentum") for word in words)
    assert (caught.value.kind, caught.value.key) == (
        ("wrong-type", "optim_args") if is_option else ("package-not-installed", "optim")
    ), why


def test_an_optimizer_with_options_is_accepted() -> None:
    check_config(load_recipe(DEMO, ["--optim", "sgd", "--optim_args", "momentum=0.9"]), ())


@pytest.mark.slow
def test_a_component_that_cannot_be_loaded_hides_no_problem_of_another(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import no_such_module_at_all\n")
    words = ["--model_name_or_path", "./nowhere", "--report_to", "clearml", "--deepspeed", "zero3.json"]
    words += ["--rewards", f"[{{name: math_corectness}}, {{name: {tmp_path}/bad.py}}]", "--task.shots", "8"]
    text = str(refusal([*words, "--optim", "bogus"]))
    for part in (
        "Did you mean math_correctness?",
        "No module named 'no_such_module_at_all'",
        "'shots'",
        "./nowhere",
        "optim is 'bogus'",
    ):
        assert text.count(part) == 1, part
    assert {"tracker-not-installed", "launcher-conflict"} <= set(kinds(refusal(words)))

    error = refusal(["--task.name", "aritmetic", "--lora_target_modules", "lm_head"])
    assert "arithmetic?" in str(error) and "lora-on-head" in kinds(error)

    error = refusal(["--task.name", "aritmetic", "--num_generations", "7"])
    assert "incomplete-group" in kinds(error), "batches need no rows"

    error = refusal(["--rewards", "[{name: nothing}]", "--num_generations", "7"], world_size=3)
    assert "'nothing'" in str(error) and "x 3 processes" in str(error)


def test_trl_and_the_reward_trial_run_although_something_else_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def fails(completions, **kwargs):\n    raise ValueError('always')\n")
    words = ["--rewards", f"[{{name: {tmp_path}/fails.py}}]", "--optim", "bogus", "--lora_target_modules", "lm_head"]
    error = refusal(words)
    assert {"lora-on-head", "reward-failed"} <= set(kinds(error)) and str(error).count("optim is 'bogus'") == 1


@pytest.mark.slow
def test_one_mistake_is_reported_once() -> None:
    """TRL refuses an incomplete batch too, in other words."""
    assert kinds(refusal(["--num_generations", "7", "--generation_batch_size", "64"])) == ["incomplete-group"]


def test_a_recipe_with_errors_in_its_text_is_checked_as_far_as_possible() -> None:
    words = ["--lerning_rate", "1e-3", "--per_device_train_batch_size", "eight", "--evaluation.split", "train"]
    words += ["--rewards", "[{name: math_correctness, gate: nothing}, answer_format, answer_format]"]
    with pytest.raises(RecipeError) as caught:
        load_recipe(DEMO, [*FEW_ROWS, *words, "--output_dir", "elsewhere"])
    problems, rest = caught.value.problems, caught.value.rest
    assert len(problems) == 5
    assert rest is not None and rest.settings["output_dir"] == "elsewhere"
    assert rest.evaluation is None and [spec.name for spec in rest.rewards] == ["math_correctness", "answer_format"]
    with pytest.raises(InputError) as refused, prepare_run(rest, only_check=True, known_problems=problems):
        raise AssertionError("it is not right")
    new = [problem for problem in refused.value.problems if problem.level == "error" and problem not in problems]
    assert not new and "per_device_train_batch_size" in str(refused.value)
