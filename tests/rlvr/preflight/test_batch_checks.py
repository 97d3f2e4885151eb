"""The plan of a run, its learning rate and its timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from rlvr.config.batch_plan import batch_sizes
from rlvr.preflight.batch_checks import check_batches, check_reward_timeouts, check_schedule
from tests.support.cases import cases
from tests.support.run_components import make_components, only, rows


@pytest.mark.parametrize(
    ("settings", "processes", "plan", "why"),
    [
        ({}, 1, (1, 8, 192), "TRL's defaults: batch 8, 8 generations, 3 epochs"),
        ({"gradient_accumulation_steps": 4}, 1, (4, 8, 48), "4 prompts a generation, a step each"),
        ({"gradient_accumulation_steps": 4}, 2, (8, 8, 24), "twice the processes, half the steps"),
        ({"steps_per_generation": 2}, 1, (2, 8, 192), "one generation serves two steps"),
        ({"num_iterations": 2}, 1, (1, 8, 384), "each generation is used twice"),
        ({"max_steps": 5}, 1, (1, 8, 5), "max_steps wins"),
        ({"num_train_epochs": 1, "gradient_accumulation_steps": 3}, 1, (3, 8, 21), "64 = 21 x 3 + 1 left over"),
    ],
)
def test_the_plan_has_the_batches_and_steps_of_trl(
    settings: dict[str, Any], processes: int, plan: tuple[int, int, int], why: str
) -> None:
    planned = make_components(settings, processes=processes).plan
    assert planned is not None
    assert (planned.prompts, planned.generations, planned.steps) == plan, why
    lines = "\n".join(planned.lines())
    assert f"x 8 completions per generation{f' over {processes} processes' if processes > 1 else ''}" in lines
    assert ("(1 per epoch fill no batch)" in lines) == (planned.prompts == 3), "trl#4271: rows that are never seen"


def test_an_incomplete_batch_has_no_plan() -> None:
    for settings in ({"num_generations": 7}, {"gradient_accumulation_steps": 65}):
        assert make_components(settings).plan is None
    assert make_components(train=rows(0)).plan is None


@pytest.mark.parametrize(
    ("settings", "processes", "key", "value", "completions", "why"), cases(__file__, "incomplete group")
)
def test_the_fix_of_an_incomplete_batch_names_a_key_and_a_value_that_work(
    settings: dict[str, Any], processes: int, key: str, value: int, completions: int, why: str
) -> None:
    problem = only(check_batches(make_components(settings, processes=processes)))
    assert problem.kind == "incomplete-group" and f"Set {key}: {value}" in problem.message, why
    fixed = make_components({**settings, key: value}, processes=processes)
    assert not list(check_batches(fixed)) and batch_sizes(fixed.recipe, processes).completions == completions


@pytest.mark.parametrize(("settings", "processes", "kind", "key", "value", "why"), cases(__file__, "whole updates"))
def test_a_generation_of_stated_size_makes_whole_updates(
    settings: dict[str, Any], processes: int, kind: str, key: str, value: int, why: str
) -> None:
    settings = {"generation_batch_size": 512, **settings}
    problems = list(check_batches(make_components(settings, processes=processes, train=rows(64))))
    assert [problem.kind for problem in problems] == [kind] * bool(kind), why
    if kind:
        assert f"Set {key}: {value}" in problems[0].message, why
        fixed = make_components({**settings, key: value}, processes=processes, train=rows(64))
        assert not list(check_batches(fixed))


def test_rewards_may_not_take_as_long_as_the_other_processes_wait() -> None:
    def check(processes: int, **settings: Any) -> list[Any]:
        known = {"ddp_timeout": 600, "reward_batch_timeout_s": 500, **settings}
        return list(check_reward_timeouts(make_components(known, processes=processes)))

    assert check(1) == [], "a single process has none that waits"
    problem = only(check(2))
    assert (problem.kind, problem.key) == ("timeout-too-long", "reward_batch_timeout_s")
    assert "ddp_timeout to 750 or more" in problem.message and check(2, ddp_timeout=750) == []


@pytest.mark.parametrize(
    ("settings", "kinds", "why"),
    [
        ({"warmup_steps": 9999}, ["long-warmup"], "the run ends before its learning rate is reached"),
        ({"warmup_steps": 5}, ["long-warmup"], "the rate is reached after the last step"),
        ({"warmup_steps": 4}, [], "the last step has the rate"),
        ({"warmup_steps": 0.1, "max_steps": 100}, [], "one step of many"),
        ({"warmup_steps": 0}, [], "no warm-up"),
        ({"warmup_steps": 4, "lr_scheduler_type": "constant"}, [], "a schedule that ignores the warm-up"),
        ({"warmup_steps": 1, "max_steps": 1}, ["zero-learning-rate"], "nothing would be trained"),
        ({"warmup_steps": 1, "max_steps": 1, "lr_scheduler_type": "constant"}, [], "the only step has its rate"),
    ],
)
def test_a_warm_up_that_wastes_steps_is_named(settings: dict[str, Any], kinds: list[str], why: str) -> None:
    problems = check_schedule(make_components({"max_steps": 5, **settings}))
    assert [problem.kind for problem in problems] == kinds, why
