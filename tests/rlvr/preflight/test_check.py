"""The table of checks: what can't work is found before a weight is loaded, each problem with its kind and its key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from datasets import Dataset

from rlvr.config import schema
from rlvr.config.recipe import SECTIONS
from rlvr.config.specs import TaskSpec
from rlvr.data.mixture import mix
from rlvr.data.task import Task
from rlvr.errors import Problem
from rlvr.preflight import compatibility
from rlvr.preflight.check import CHECKS, Check, Findings, check_components
from rlvr.preflight.components import RunComponents, TargetMachine
from tests.support.cases import cases
from tests.support.run_components import found, make_components, rows


def test_a_run_without_problems_has_none() -> None:
    assert found(make_components()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "kind", "key", "why"), cases(__file__, "refused"))
def test_a_recipe_that_cannot_work_is_refused(settings: dict[str, Any], kind: str, key: str | None, why: str) -> None:
    assert (kind, key) in found(make_components(settings)), why


def test_packages_and_trackers_of_another_machine_are_not_checked() -> None:
    settings = {"use_vllm": True, "vllm_mode": "server", "report_to": "clearml"}
    assert found(make_components(settings, target=TargetMachine(machine="A10G"))) == []


@pytest.mark.parametrize(("settings", "stop_strings", "kind", "key", "why"), cases(__file__, "warned"))
def test_a_recipe_that_may_disappoint_is_warned_of(
    settings: dict[str, Any], stop_strings: list[str], kind: str, key: str, why: str
) -> None:
    problems = check_components(make_components(settings, stop_strings=tuple(stop_strings))).problems
    assert (kind, key, "warning") in [(problem.kind, problem.key, problem.level) for problem in problems], why


@pytest.mark.parametrize(
    ("settings", "is_refused", "why"),
    [
        ({}, True, "TRL's default, sequence_mask"),
        ({"vllm_importance_sampling_mode": "sequence_truncate"}, True, "a ratio of the sequence"),
        ({"vllm_weight_sync": "merged"}, True, "TRL would refuse it after loading the model"),
        ({"vllm_importance_sampling_mode": "token_truncate"}, False, "a ratio of each token"),
        ({"vllm_importance_sampling_mode": "token_mask"}, False, "the other one"),
        ({"vllm_importance_sampling_correction": False}, False, "no ratio"),
        ({"use_vllm": False}, False, "transformers samples from the policy"),
        ({"loss_type": "dapo"}, False, "multiplies the loss of each token"),
    ],
)
def test_vespo_is_refused_with_a_ratio_of_the_sequence(settings: dict[str, Any], is_refused: bool, why: str) -> None:
    components = make_components({"loss_type": "vespo", "use_vllm": True, "use_peft": True, **settings})
    found = [(one.kind, one.key) for one in check_components(components).errors if one.kind == "conflicting-keys"]
    assert found == ([("conflicting-keys", "vllm_importance_sampling_mode")] if is_refused else []), why


@pytest.mark.parametrize(
    ("settings", "key", "why"),
    [
        ({"sync_ref_model": True, "use_peft": True, "beta": 0.1}, "sync_ref_model", "an adapter is its own reference"),
        ({"sync_ref_model": True, "use_peft": False}, "sync_ref_model", "no KL penalty, no reference"),
        ({"sync_ref_model": True, "beta": 0.1, "use_peft": False}, None, "TRL trains it"),
        (
            {"scale_rewards": "adaptive", "multi_objective_aggregation": "normalize_then_sum"},
            "multi_objective_aggregation",
            "one of them would have no effect",
        ),
        ({"cast_lm_head_to_fp32": True}, "cast_lm_head_to_fp32", "the head of the bundled model is tied"),
        ({"scale_rewards": "group", "multi_objective_aggregation": "normalize_then_sum"}, None, "GDPO"),
    ],
)
def test_what_trl_refuses_after_the_base_is_measured_is_refused_before(
    settings: dict[str, Any], key: str | None, why: str
) -> None:
    found = [problem.key for problem in compatibility.check_late_conflicts(make_components(settings))]
    assert found == ([] if key is None else [key]), why


@pytest.mark.parametrize(
    ("kwargs", "kind", "key", "why"),
    [
        ({"train": rows(0)}, "no-rows", "task", "empty data"),
        ({"train": rows(64).remove_columns("prompt")}, "missing-column", "prompt", "no prompt"),
        ({"train": rows(64, images=["x"] * 64)}, "reserved-column", "images", "TRL would go multimodal"),
        ({"train": rows(64, completions=["x"] * 64)}, "reserved-column", "completions", "one argument, two values"),
        ({"columns": ("tests",)}, "missing-column", "tests", "a column that the reward needs"),
        ({"test": rows(0)}, "no-rows", "evaluation.split", "nothing to evaluate on"),
        ({"settings": {"eval_strategy": "steps"}}, "no-rows", "eval_strategy", "no validation rows"),
        (
            {"settings": {"mask_truncated_completions": True}, "stop_strings": ("\nQuestion:",)},
            "all-masked",
            "mask_truncated_completions",
            "a stop string is no end-of-sequence token",
        ),
    ],
)
def test_data_that_cannot_work_is_refused(kwargs: dict[str, Any], kind: str, key: str, why: str) -> None:
    assert found(make_components(**kwargs)) == [(kind, key)], why


@pytest.mark.parametrize(
    ("settings", "columns", "rows_of_other", "expected", "why"),
    [
        ({}, ("final_answer",), 100, [], "the other task needs no column of a reward that does not apply"),
        ({}, ("final_answer", "tests"), 100, ["tests"], "a task lacks a column of its own reward"),
        ({"dynamic_sampling": 2}, (), 100, ["dynamic_sampling"], "no one reward says what is right"),
        ({"curriculum": "easy_first"}, (), 100, ["curriculum"], "no order of the difficulties"),
        ({}, (), 0, ["evaluation.split"], "nothing to evaluate one of the tasks on"),
    ],
)
def test_each_task_of_a_mixture_is_checked_with_its_rewards(
    settings: dict[str, Any], columns: tuple[str, ...], rows_of_other: int, expected: list[str], why: str
) -> None:
    whole = make_components(settings, columns=columns)
    assert whole.task is not None and whole.rewards is not None
    other_rows = Dataset.from_dict({"prompt": [f"Say {row}!" for row in range(64 + rows_of_other)]})
    train, test = other_rows.select(range(64)), other_rows.select(list(range(64, 64 + rows_of_other)))
    task = mix({"one": whole.task, "other": Task(train, train.select([]), test, whole.task.stop_strings)})
    specs = (TaskSpec("t", label="one"), TaskSpec("t", label="other"))
    first = replace(whole.rewards[0], applies_to=("one",))
    second = replace(whole.rewards[0], name="second", columns=(), applies_to=("other",))
    components = replace(
        whole,
        recipe=replace(whole.recipe, tasks=specs),
        task=task,
        rewards=[first, second],
        metrics={"one": first, "other": second},
    )
    assert [key for _, key in found(components)] == expected, why


def test_an_empty_prompt_is_refused_with_its_row() -> None:
    train = Dataset.from_dict({"prompt": ["x"] * 63 + [""], "final_answer": ["1"] * 64})
    [problem] = check_components(make_components(train=train)).errors
    assert (problem.kind, problem.row) == ("empty-prompt", 63)


def test_held_out_prompts_that_are_trained_on_are_counted_in_a_warning() -> None:
    prompts = ["100?", "What is 103-1?", *(f"{row}?" for row in range(97)), "What is 105-1?"]
    test = Dataset.from_dict({"prompt": prompts, "final_answer": ["2"] * 100})
    [leaked] = check_components(make_components(test=test)).problems
    assert (leaked.kind, leaked.level, leaked.row) == ("leaked-prompt", "warning", 1)
    assert leaked.message.startswith("2 of 100 ") and "1, 99" in leaked.message


def test_without_a_component_the_checks_that_need_none_still_run() -> None:
    whole = make_components({"lora_target_modules": ["lm_head"], "num_generations": 7})
    expected = [("lora-on-head", "lora_target_modules"), ("incomplete-group", "num_generations")]
    without_data = RunComponents(whole.recipe, tokenizer=whole.tokenizer, config=whole.config)
    without_model = RunComponents(whole.recipe, task=whole.task, rewards=whole.rewards, metrics=whole.metrics)
    assert found(without_data) == found(without_model) == expected


def test_every_check_reads_known_keys_and_relies_on_earlier_checks() -> None:
    earlier: set[Any] = set()
    for check in CHECKS:
        assert set(check.reads) <= {*schema.fields(), *SECTIONS} and set(check.after) <= earlier, check
        earlier.add(check.function)
    assert len(earlier) == len(CHECKS)


def error(components: RunComponents) -> list[Problem]:
    return [Problem("learning_rate is wrong.", "out-of-range", "learning_rate")]


def consequence(components: RunComponents) -> list[Problem]:
    return [Problem("The schedule is wrong.", "out-of-range", "warmup_steps")]


def advice(components: RunComponents) -> list[Problem]:
    return [Problem("beware", "slow-generation", level="warning"), Problem("by the way", "plan", level="note")]


@pytest.mark.parametrize(
    ("checks", "messages", "why"),
    [
        ([Check(error), Check(consequence)], ["learning_rate is wrong.", "The schedule is wrong."], "independent"),
        ([Check(error), Check(consequence, after=(error,))], ["learning_rate is wrong."], "a consequence"),
        ([Check(advice), Check(error, after=(advice,))], ["learning_rate is wrong."], "a warning is no error"),
        ([Check(error, needs=("config",))], [], "a component that could not be loaded"),
        ([Check(error), Check(error)], ["learning_rate is wrong."], "each once"),
    ],
)
def test_an_error_suppresses_only_the_errors_that_it_causes(checks: list[Check], messages: list[str], why: str) -> None:
    findings = Findings()
    findings.run(checks, RunComponents(make_components().recipe))
    assert [problem.message for problem in findings.errors] == messages, why


def test_checks_of_keys_with_unknown_values_are_skipped_and_named() -> None:
    typo = Problem("--lerning_rate is not a key.", "unknown-key", "lerning_rate", suggestion="learning_rate")
    findings = Findings([typo])
    checks = [Check(error, reads=("learning_rate", "optim")), Check(consequence), Check(advice)]
    findings.run(checks, RunComponents(make_components().recipe))
    assert str(findings.error()).splitlines() == [
        "The schedule is wrong.",
        "Checks of learning_rate were skipped: correct the above first.",
        "warning: beware",
    ]
    assert [problem.kind for problem in findings.error().problems] == [
        "unknown-key",
        "out-of-range",
        "slow-generation",
        "plan",
    ]


@pytest.mark.parametrize(
    ("settings", "is_warned", "why"),
    [
        ({"loss_type": "cispo"}, True, "epsilon, 0.2, is the bound"),
        ({"loss_type": "cispo", "epsilon_high": 5.0}, False, "the bound of ScaleRL"),
        ({"loss_type": "dapo"}, False, "its bounds are distances from 1"),
    ],
)
def test_a_bound_that_cuts_all_of_cispos_weights_is_warned_of(
    settings: dict[str, Any], is_warned: bool, why: str
) -> None:
    problems = check_components(make_components(settings)).problems
    expected = [("out-of-range", "epsilon_high", "warning")] if is_warned else []
    assert [(problem.kind, problem.key, problem.level) for problem in problems] == expected, why
