"""Every problem in a run's metrics is found with its cause and fix; a healthy run has no finding."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.artifacts.metrics import read_metrics
from rlvr.config import schema
from rlvr.health import CHECKS, Finding, findings, health_line, summary

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
WEIGHTS = {"rewards": [{"name": "math_correctness", "weight": 1.0}, {"name": "answer_format", "weight": 0.2}]}

Value = float | None | Callable[[int, random.Random], float | None]
Line = dict[str, Any]


def noisy(mean: Callable[[int], float] | float, width: float) -> Value:
    """A metric that jumps around its mean, as one over a few dozen completions does."""
    return lambda step, chance: (mean(step) if callable(mean) else mean) + width * chance.gauss(0, 1)


def rising(start: float, end: float, steps: int = 60) -> Callable[[int], float]:
    return lambda step: start + (end - start) * min(step / steps, 1.0)


def jump(before: float, after: float, at: int) -> Callable[[int, random.Random], float]:
    return lambda step, chance: before if step < at else after


# A run as it should be: the reward rises from 0.4 to 0.9 of 1.2 and jumps by 0.06 from step to step.
HEALTHY: Mapping[str, Value] = {
    "loss": noisy(0.0, 0.02),
    "grad_norm": lambda step, chance: 0.1 * math.exp(chance.gauss(0, 1)),
    "learning_rate": lambda step, chance: 1e-5 * (1 - step / 1000) if step > 1 else 0.0,
    "reward": noisy(rising(0.4, 0.9), 0.06),
    "reward_std": 0.5,
    "reward/min": 0.0,
    "reward/max": 1.2,
    "rewards/math_correctness/mean": noisy(rising(0.25, 0.7), 0.06),
    "rewards/math_correctness/min": 0.0,
    "rewards/math_correctness/max": 1.0,
    "rewards/answer_format/mean": noisy(rising(0.75, 0.9), 0.05),
    "rewards/answer_format/min": 0.0,
    "rewards/answer_format/max": 1.0,
    "rewards/unscored_fraction": 0.0,
    "frac_reward_zero_std": noisy(0.3, 0.1),
    "completions/mean_length": noisy(rising(200, 320), 15),
    "completions/clipped_ratio": noisy(0.05, 0.02),
    "completions/duplicate_fraction": noisy(0.1, 0.03),
    "entropy": noisy(rising(0.5, 0.25), 0.02),
    "kl": noisy(rising(0.0, 0.05), 0.01),
    "policy_kl": noisy(0.002, 0.001),
    "clip_ratio/region_mean": noisy(0.004, 0.001),
    "sampling/importance_sampling_ratio/mean": noisy(1.0, 0.02),
    "sampling/sampling_logp_difference/mean": noisy(0.01, 0.003),
    "dynamic_sampling/unfilled_groups": 0.0,
    "dynamic_sampling/kept_fraction": noisy(0.6, 0.05),
    "step_time": noisy(20.0, 3.0),
    "time/generation": noisy(14.0, 2.0),
    "time/rewards": noisy(2.0, 0.3),
    "time/tools": 1.0,
    "tools/call_frequency": 1.5,
    "tools/failure_frequency": 0.2,
    "eval_accuracy": lambda step, chance: (0.3 + step / 300 + 0.02 * chance.gauss(0, 1)) if step % 10 == 0 else None,
}


def run(steps: int = 60, *, seed: int = 0, without: str = "", **changes: Value) -> list[Line]:
    """The lines of a healthy run with some metrics changed; in a keyword's name `__` stands for a slash."""
    metrics = {**HEALTHY, **{name.replace("__", "/"): value for name, value in changes.items()}}
    chance = random.Random(seed)
    return [
        {"step": step, "time": 1.7e9 + step}
        | {
            name: value(step, chance) if callable(value) else value
            for name, value in metrics.items()
            if not (without and re.match(without, name))
        }
        for step in range(1, steps + 1)
    ]


@dataclass(frozen=True)
class Case:
    why: str
    finding: str  # its level, kind and metric
    names: str  # a regular expression for the figures and recipe keys that problem and fix name
    lines: list[Line]
    settings: Mapping[str, Any] = field(default_factory=dict)


FAULTY = [
    Case(
        "weights that are NaN stay so: metrics.jsonl has null",
        "alarm not-finite loss",
        "learning_rate",
        run(30, loss=jump(0.0, float("nan"), 20)),
    ),
    Case("an infinite gradient", "alarm not-finite grad_norm", "grad_norm", run(30, grad_norm=jump(0.1, math.inf, 25))),
    Case(
        "one such step is worth a look",
        "warning not-finite grad_norm",
        "step 25",
        run(30, grad_norm=lambda step, chance: math.inf if step == 25 else 0.1),
    ),
    Case("a verifier dies", "alarm unscored rewards/unscored_fraction", "80 %", run(rewards__unscored_fraction=0.8)),
    Case(
        "a verifier fails now and then",
        "warning unscored rewards/unscored_fraction",
        "reward_timeout_s",
        run(rewards__unscored_fraction=0.08),
    ),
    Case(
        "no room to answer",
        "alarm cut-off completions/clipped_ratio",
        r"95 % .* minimum.*max_completion_length \(64\)",
        run(completions__clipped_ratio=0.95, reward=0.0),
        {"max_completion_length": 64},
    ),
    Case("too little room", "warning cut-off completions/clipped_ratio", "40 %", run(completions__clipped_ratio=0.4)),
    Case(
        "it has unlearnt to stop: more room would not help",
        "alarm cut-off completions/clipped_ratio",
        "no longer ends.*learning_rate",
        run(completions__clipped_ratio=jump(0.0, 1.0, 20), reward=jump(0.6, 0.1, 20)),
    ),
    Case(
        "a schedule that is over",
        "alarm learning-rate-zero learning_rate",
        "step 41",
        run(learning_rate=jump(1e-5, 0.0, 41)),
    ),
    Case("a frozen adapter", "alarm gradient-zero grad_norm", "exactly 0", run(grad_norm=0.0)),
    Case(
        "too hard: every completion earns 0",
        "alarm too-hard frac_reward_zero_std",
        "97 % .*pass_rates",
        run(frac_reward_zero_std=0.97, reward=noisy(0.02, 0.01)),
    ),
    Case(
        "too hard: the format is all that is earned",
        "alarm too-hard frac_reward_zero_std",
        "pass_rates",
        run(
            frac_reward_zero_std=0.95,
            reward=0.2,
            reward__max=0.2,
            rewards__math_correctness__mean=0.0,
            rewards__math_correctness__max=0.0,
            rewards__answer_format__mean=1.0,
        ),
        WEIGHTS,
    ),
    Case(
        "too easy from the start",
        "alarm too-easy frac_reward_zero_std",
        "pass_rates",
        run(frac_reward_zero_std=0.95, reward=1.19),
    ),
    Case(
        "half of the rows too easy, half too hard",
        "warning too-easy-or-too-hard frac_reward_zero_std",
        "dynamic_sampling",
        run(frac_reward_zero_std=0.75, reward=noisy(0.6, 0.03)),
    ),
    Case(
        "near-greedy sampling makes groups equal, whatever the rows are",
        "alarm repetitive-groups frac_reward_zero_std",
        "temperature",
        run(frac_reward_zero_std=0.95, reward=noisy(0.6, 0.03), entropy=0.0002),
    ),
    Case(
        "it could once, and lost it",
        "alarm lost-ability frac_reward_zero_std",
        "learning_rate",
        run(frac_reward_zero_std=jump(0.2, 1.0, 30), reward=jump(0.6, 0.0, 30)),
    ),
    Case("the reward collapses", "alarm reward-falls reward", "learning_rate", run(80, reward=jump(0.9, 0.3, 50))),
    Case(
        "the reward falls",
        "warning reward-falls reward",
        "0.8.* → 0.6",
        run(100, reward=noisy(rising(0.85, 0.6, 100), 0.05)),
    ),
    Case(
        "a curriculum is meant to get harder",
        "note reward-falls reward",
        "validation",
        run(80, reward=jump(0.9, 0.3, 50)),
        {"curriculum": "easy_first"},
    ),
    Case(
        "nothing happens",
        "warning reward-flat reward",
        r"learning_rate \(1e-07\)",
        run(120, reward=noisy(0.5, 0.02)),
        {"learning_rate": 1e-7},
    ),
    Case(
        "a plateau after a rise",
        "note reward-flat reward",
        "100 log lines",
        run(200, reward=noisy(rising(0.3, 0.8, 60), 0.02)),
    ),
    Case(
        "overfitting, or a verifier that is fooled",
        "warning validation-falls eval_accuracy",
        "0.6 → .* since step 40.*checkpoint of step 40",
        run(
            100,
            eval_accuracy=lambda step, chance: (
                {40: 0.6, 50: 0.55}.get(step, 0.45 if step > 50 else 0.4 + step / 200) if step % 10 == 0 else None
            ),
        ),
    ),
    Case(
        "the cheap reward is served at the other's cost",
        "warning trade-off rewards/math_correctness/mean",
        "answer_format.*gate",
        run(
            100,
            rewards__math_correctness__mean=noisy(rising(0.7, 0.4, 100), 0.03),
            rewards__answer_format__mean=jump(0.7, 1.0, 20),
        ),
    ),
    Case(
        "a reward that no completion of three generations earns",
        "warning constant-reward rewards/answer_format/mean",
        r"answer_format \(17 % of the weights\) has been 0 .*an example.*RECIPE RUN --why 0",
        run(3, rewards__answer_format__mean=0.0, rewards__answer_format__max=0.0),
        WEIGHTS,
    ),
    Case(
        "a penalty that no completion avoids",
        "warning constant-reward rewards/repetition/mean",
        "been −1 for every",
        run(30, rewards__repetition__mean=-1.0, rewards__repetition__min=-1.0, rewards__repetition__max=-1.0),
        WEIGHTS,
    ),
    Case(
        "earned by one completion in thousands",
        "warning constant-reward rewards/answer_format/mean",
        "nearly every",
        run(
            10,
            rewards__answer_format__mean=lambda step, chance: 0.002 if step == 5 else 0.0,
            rewards__answer_format__max=lambda step, chance: float(step == 5),
        ),
        WEIGHTS,
    ),
    Case(
        "earned by all from the start",
        "note constant-reward rewards/answer_format/mean",
        "been 1 for every",
        run(30, rewards__answer_format__mean=1.0, rewards__answer_format__min=1.0),
        WEIGHTS,
    ),
    Case("gradients explode", "alarm gradient-grows grad_norm", "max_grad_norm", run(grad_norm=jump(0.1, 50.0, 40))),
    Case("gradients grow", "warning gradient-grows grad_norm", "20-fold, to 2", run(grad_norm=jump(0.1, 2.0, 40))),
    Case("far from the start", "warning far-from-start kl", r"beta \(0.04\)", run(kl=2.0), {"beta": 0.04}),
    Case("out of sight of the start", "alarm far-from-start kl", "20 a token", run(kl=20.0)),
    Case("updates too large", "warning large-updates policy_kl", "num_iterations", run(policy_kl=0.2)),
    Case(
        "most of the update is clipped away",
        "warning clipped-updates clip_ratio/region_mean",
        "30 %",
        run(clip_ratio__region_mean=0.3),
    ),
    Case("the same under cispo", "alarm clipped-updates cispo_clip_ratio", "60 %", run(cispo_clip_ratio=0.6)),
    Case(
        "vLLM computes in another precision",
        "warning vllm-mismatch sampling/sampling_logp_difference/mean",
        "dtype",
        run(sampling__sampling_logp_difference__mean=0.2),
    ),
    Case(
        "vLLM's ratios too high",
        "warning vllm-mismatch sampling/importance_sampling_ratio/mean",
        "1.4",
        run(sampling__importance_sampling_ratio__mean=1.4),
    ),
    Case(
        "vLLM's sequences are masked",
        "alarm vllm-mismatch sampling/importance_sampling_ratio/mean",
        "vllm_importance_sampling_mode",
        run(sampling__importance_sampling_ratio__mean=0.3),
    ),
    Case(
        "near-greedy from the start",
        "warning entropy-low entropy",
        r"temperature \(0.1\)",
        run(20, entropy=0.0002),
        {"temperature": 0.1},
    ),
    Case("entropy collapses", "warning entropy-collapsed entropy", "epsilon_high", run(entropy=jump(0.5, 0.03, 40))),
    Case(
        "entropy explodes",
        "warning entropy-grows entropy",
        "learning_rate",
        run(entropy=jump(0.3, 3.0, 40), reward=noisy(0.5, 0.05)),
    ),
    Case(
        "rambling",
        "warning length-changes completions/mean_length",
        "200 → 600",
        run(completions__mean_length=jump(200, 600, 30), reward=noisy(0.5, 0.05)),
    ),
    Case(
        "giving up",
        "warning length-changes completions/mean_length",
        "200 → 20",
        run(completions__mean_length=jump(200, 20, 30), reward=noisy(0.5, 0.05)),
    ),
    Case(
        "all say the same",
        "warning duplicates completions/duplicate_fraction",
        "temperature",
        run(completions__duplicate_fraction=0.85),
    ),
    Case(
        "no fresh prompt has a signal",
        "warning unfilled-groups dynamic_sampling/unfilled_groups",
        r"3 groups .*60 % .*dynamic_sampling \(2\)",
        run(dynamic_sampling__unfilled_groups=3.0, dynamic_sampling__kept_fraction=0.6),
        {"dynamic_sampling": 2},
    ),
    Case("slow rewards", "note slow-rewards time/rewards", "75 % .* 15 s", run(time__rewards=15.0, step_time=20.0)),
    Case(
        "slow tools",
        "note slow-tools time/tools",
        "75 % .* 15 s.*tool_timeout_s",
        run(time__tools=15.0, step_time=20.0),
    ),
    Case(
        "calls that fail", "warning failing-tools tools/failure_frequency", "97 %", run(tools__failure_frequency=0.97)
    ),
    Case(
        "no more calls",
        "warning unused-tools tools/call_frequency",
        "stopped .*1.5",
        run(tools__call_frequency=jump(1.5, 0.0, 40)),
    ),
    Case("no call ever", "warning unused-tools tools/call_frequency", "60 log lines", run(tools__call_frequency=0.0)),
    Case(
        "something else uses the machine",
        "warning slower-steps step_time",
        "60 s .*20 s",
        run(step_time=jump(20.0, 60.0, 30)),
    ),
]

HEALTHY_RUNS = [
    ("as it should be", run(120), {}),
    ("no line yet", [], {}),
    (
        "four lines, all bad: too few to say so",
        run(4, completions__clipped_ratio=1.0, frac_reward_zero_std=1.0, kl=50.0),
        {},
    ),
    ("a loss of exactly 0 is normal in GRPO", run(loss=0.0), {}),
    ("a warm-up starts at a learning rate of 0", run(12, learning_rate=lambda step, chance: (step - 1) * 1e-7), {}),
    (
        "single spikes",
        run(
            grad_norm=lambda step, chance: 80.0 if step % 9 == 0 else 0.1,
            kl=lambda step, chance: 90.0 if step % 9 == 0 else 0.02,
        ),
        {},
    ),
    (
        "the reward at its top, so no entropy and equal completions",
        run(
            reward=noisy(rising(0.5, 1.2, 30), 0.005),
            entropy=jump(0.5, 0.001, 40),
            completions__duplicate_fraction=jump(0.3, 0.9, 40),
        ),
        {},
    ),
    (
        "longer completions with more reward: it learns to reason",
        run(80, completions__mean_length=noisy(rising(200, 900), 20)),
        {},
    ),
    (
        "slower steps, because completions got longer",
        run(80, completions__mean_length=noisy(rising(100, 400, 50), 5), step_time=noisy(rising(10, 40, 50), 1)),
        {},
    ),
    ("rewards that take most of a second", run(step_time=1.0, time__rewards=0.8), {}),
    *(
        (
            f"validation that only jitters, {seed}",
            run(
                100,
                seed=seed,
                reward=noisy(rising(0.4, 0.9, 100), 0.06),
                eval_accuracy=lambda step, chance: 0.5 + 0.08 * chance.gauss(0, 1) if step % 10 == 0 else None,
            ),
            {},
        )
        for seed in range(5)
    ),
    (
        "few completions a step: a tenth of the range is chance",
        run(100, without="rewards/", reward=noisy(0.6, 0.35)),
        {},
    ),
    ("a reward that falls a little, but surely", run(100, reward=noisy(rising(0.8, 0.75, 100), 0.01)), {}),
    ("a gradient that grows, but is small", run(grad_norm=jump(0.001, 0.5, 40)), {}),
    (
        "single odd groups when nearly all is solved",
        run(reward=noisy(rising(0.5, 1.2, 20), 0.002), grad_norm=jump(0.1, 2.0, 40)),
        {},
    ),
    (
        "only TRL's own metrics",
        run(80, without="reward/|rewards/.*/m(in|ax)|time/|dynamic|completions/dup|policy_kl|eval"),
        {},
    ),
    ("hardly any metric", run(80, without="(?!loss)"), {}),
]


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.why)
def test_a_faulty_run_has_a_finding_with_its_figure_and_its_fix(case: Case) -> None:
    current = findings(case.lines, settings=case.settings)
    [finding] = [one for one in current if f"{one.level} {one.kind} {one.metric}" == case.finding]
    assert re.search(case.names, f"{finding.problem}. {finding.fix}"), finding
    assert 0 < finding.since_step <= case.lines[-1]["step"]
    assert any(finding.problem in line for line in summary(case.lines, settings=case.settings))


@pytest.mark.parametrize(("why", "lines", "recipe"), HEALTHY_RUNS, ids=[why for why, _, _ in HEALTHY_RUNS])
def test_a_healthy_run_has_no_finding_at_any_length(why: str, lines: list[Line], recipe: Line) -> None:
    for end in range(1, len(lines) + 1):
        assert [one for one in findings(lines[:end], settings=recipe) if one.level != "note"] == [], f"line {end}"


def test_every_check_has_a_case() -> None:
    from rlvr.health.run_metrics import RunMetrics

    provoked = {
        check.__name__
        for case in FAULTY
        for check in CHECKS
        if any(
            f"{finding.level} {finding.kind} {finding.metric}" == case.finding
            for finding in check(RunMetrics(case.lines, case.settings))
        )
    }
    assert provoked == {check.__name__ for check in CHECKS}


def test_chance_alone_gives_hardly_any_finding() -> None:
    """Two hundred runs in which nothing changes but by chance, with rewards as noisy as those of 8 groups a step."""
    found = []
    for seed in range(200):
        lines = run(
            90,
            seed=seed,
            reward=noisy(0.6, 0.12),
            rewards__math_correctness__mean=noisy(0.5, 0.12),
            rewards__answer_format__mean=noisy(0.96, 0.02),
            completions__mean_length=noisy(250, 30),
            entropy=noisy(0.4, 0.05),
            frac_reward_zero_std=noisy(0.45, 0.18),
        )
        found += [one for end in (30, 60, 90) for one in findings(lines[:end]) if one.level != "note"]
    assert not [one for one in found if one.level == "alarm"]
    assert len(found) <= 6, found  # one in a hundred looks


def test_a_reward_that_is_learnt_after_three_generations_is_no_longer_constant() -> None:
    changes: dict[str, Value] = {"max": jump(0.0, 1.0, 4), "mean": jump(0.0, 0.1, 4)}
    lines = run(8, **{f"rewards__answer_format__{part}": value for part, value in changes.items()})
    kinds = [[one.kind for one in findings(lines[:end], settings=WEIGHTS)] for end in (2, 3, 4, 8)]
    assert kinds == [[], ["constant-reward"], [], []]


def test_the_format_that_a_real_model_never_wrote_is_named_from_the_third_generation_on() -> None:
    """5,120 completions of Qwen2.5-Coder-0.5B-Instruct on an H100, of which one has the format (step 17)."""
    record = REPOSITORY / "../shared/data/h100-gsm8k-qwen2.5-coder-0.5b/metrics.jsonl"
    if not record.is_file():
        pytest.skip("the record is not here (h100-gsm8k-qwen2.5-coder-0.5b in ../shared/data)")
    weights = {"rewards": [{"name": "math_correctness", "weight": 1.0}, {"name": "answer_format", "weight": 0.5}]}
    lines = read_metrics(record)
    for end in range(1, len(lines) + 1):
        found = [(one.kind, one.metric) for one in findings(lines[:end], settings=weights) if one.level != "note"]
        step = lines[end - 1]["step"]
        assert found == ([("constant-reward", "rewards/answer_format/mean")] if step >= 9 else []), step


def test_a_metric_that_hovers_around_a_threshold_does_not_alternate() -> None:
    lines = run(120, seed=3, completions__clipped_ratio=noisy(0.3, 0.04))
    seen = [bool(findings(lines[:end])) for end in range(20, 121)]
    assert any(seen)
    assert sum(before != after for before, after in zip(seen, seen[1:], strict=False)) <= 2


def test_a_problem_that_is_over_is_only_in_the_summary() -> None:
    lines = run(100, kl=lambda step, chance: 5.0 if 20 <= step < 50 else 0.02)
    assert health_line(lines) == "healthy"
    [line] = [line for line in summary(lines) if line.startswith("no longer true")]
    assert re.search(r"at step [45]\d: .* 5 a token", line)


def test_since_step_is_the_step_at_which_the_level_was_entered() -> None:
    [finding] = findings(run(100, rewards__unscored_fraction=jump(0.0, 0.9, 61)))
    assert 65 <= finding.since_step <= 70


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "TRL logs null where no value was valid"),
        (float("nan"), "a callback sees NaN before the file does"),
        ("high", "a damaged file"),
        (True, "a flag is no number"),
        (1e308, "JSON allows it, and its square is infinite"),
    ],
)
def test_values_that_are_not_finite_numbers_are_ignored(value: Any, why: str) -> None:
    assert why
    lines = run(60)
    for line in lines[::2]:
        line.update({name: value for name in HEALTHY if name not in ("loss", "grad_norm")})
    assert not [one for one in findings(lines) if one.level != "note"]
    assert not [one for one in findings([{**line, "reward": value} for line in lines]) if one.level != "note"]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_lines_give_one_line_of_health(data: st.DataObject) -> None:
    odd = st.sampled_from([None, True, "", "high", 0, 0.0, 1.0, -1.0, 1e299, -1e299])
    value = odd | st.floats()
    metrics = {name: data.draw(st.lists(value, min_size=1, max_size=7)) for name in (*HEALTHY, "cispo_clip_ratio")}
    count = data.draw(st.integers(0, 130))
    lines = [
        {"step": step} | {name: values[step % len(values)] for name, values in metrics.items()} for step in range(count)
    ]
    said = health_line(lines, settings={"rewards": data.draw(value), "num_generations": data.draw(value)})
    assert said.partition(":")[0].partition(";")[0] in ("healthy", "alarm", "warning")
    assert "\n" not in said


def test_lines_without_a_reward_between_those_with_one_change_nothing() -> None:
    """steps_per_generation: only the step that generates logs rewards, lengths and shares."""
    sparse = [
        {"step": 4 * line["step"] + part, "time": 0.0}
        | (line | {"step": 4 * line["step"]} if part == 0 else {name: line[name] for name in ("loss", "grad_norm")})
        for line in run(60, completions__clipped_ratio=0.9)
        for part in range(4)
    ]
    assert [one.metric for one in findings(sparse)] == ["completions/clipped_ratio"]


def test_a_run_that_logs_every_tenth_step_is_judged_by_its_lines() -> None:
    lines = [{**line, "step": 10 * line["step"]} for line in run(30, completions__clipped_ratio=0.9)]
    [finding] = findings(lines)
    assert finding.level == "alarm" and finding.since_step == 50


def test_the_health_line_is_one_line() -> None:
    assert health_line(run(60)) == "healthy"
    sick = health_line(run(60, completions__clipped_ratio=0.9, kl=3.0))
    assert sick.startswith("alarm: 90 % of the completions are cut off. Raise max_completion_length")
    assert sick.endswith("See docs/metrics.md#completions-clipped_ratio (also: kl)")
    assert all("\n" not in health_line(case.lines, settings=case.settings) for case in FAULTY)
    assert health_line(run(60, time__rewards=15.0)).startswith("healthy; the rewards take")


def test_alarms_come_before_warnings_and_causes_before_effects() -> None:
    found = findings(run(60, completions__clipped_ratio=0.95, frac_reward_zero_std=0.95, kl=2.0, reward=0.0))
    assert [one.metric for one in found] == ["completions/clipped_ratio", "frac_reward_zero_std", "kl"]


def test_a_summary_says_how_the_reward_went() -> None:
    assert summary(run(60)) == ["reward 0.45 → 0.837 in 60 steps", "healthy from beginning to end"]
    assert summary([]) == ["no step has logged a reward"]


@pytest.mark.parametrize(
    ("steps", "rises", "says", "why"),
    [
        (1, False, "too short to judge: 1 log line", "not even a level takes so few"),
        (6, False, "detected from 40 lines, a flat one from 100 lines", "trends take two windows"),
        (30, True, "no problem found in 30 log lines; a falling reward is detected from 40 lines", "it rose"),
        (
            60,
            False,
            "has not clearly risen; a flat one is detected from 100 lines",
            "no progress, and too short to say so",
        ),
        (60, True, "healthy from beginning to end", "it rose and never fell"),
    ],
)
def test_a_summary_claims_no_more_than_its_lines_can_show(steps: int, rises: bool, says: str, why: str) -> None:
    changes = {} if rises else {"reward": lambda step, chance: 0.5 + chance.gauss(0, 0.02)}
    last = summary(run(steps, **changes))[-1]
    assert last.endswith(says), (why, last)


def test_lines_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [*run(40, loss=None), {"step": 40, "time": 0.0, "train_runtime": 12.0, "train_loss": 0.0}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert health_line(read_metrics(path)).startswith("alarm: loss is not finite")


def test_a_long_run_costs_a_log_step_little() -> None:
    lines = run(5000)
    started = time.process_time()
    findings(lines)
    assert time.process_time() - started < 0.2  # measured: 0.01 s, in a step that takes seconds


# ── The page ────────────────────────────────────────────────────────────────────────────────────────────────────────


def all_findings() -> list[Finding]:
    return [finding for case in FAULTY for finding in findings(case.lines, settings=case.settings)]


def test_every_finding_links_to_its_metric_in_the_page() -> None:
    anchors = set(re.findall(r'<a id="([^"]+)"></a>', PAGE))
    for finding in all_findings():
        page, _, target = finding.page.partition("#")
        assert page == "docs/metrics.md" and target in anchors, finding.page
        name = "rewards/NAME/mean" if target == "rewards-name" else finding.metric
        assert f"`{name}`" in PAGE, name


def test_the_command_of_the_page_prints_the_summary(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "demo-arithmetic"
    folder.mkdir(parents=True)
    folder.joinpath("metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run(60)), encoding="utf-8")
    [command] = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)}
    result = subprocess.run(
        ["bash", "-euc", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.stdout.splitlines() == summary(run(60)), result.stderr


def test_names_in_the_page_are_keys_metrics_or_rewards() -> None:
    """A word with an underscore in code style is a recipe's key, a metric's part, a reward, or a file."""
    metrics = {
        part
        for metric in (*HEALTHY, "cispo_clip_ratio", "advantages/abs_mean")
        for part in (metric, *metric.split("/"))
    }
    for word in re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)(?:: \w+)?`", PAGE):
        known = word in schema.fields() or word in metrics or (REPOSITORY / "rewards" / f"{word}.py").is_file()
        assert known or word == "num_tokens" or word.startswith("eval_"), word


def test_recipe_keys_and_files_in_a_fix_exist() -> None:
    known = {
        *schema.fields(),
        "score",
        "math_correctness",
        "answer_format",
        "repetition",
        "reasoning_length",
        "pass_rates",
    }
    for finding in all_findings():
        for word in re.findall(r"(?<![\w/])[a-z]+(?:_[a-z0-9]+)+(?![\w/])", finding.fix):
            assert word in known, f"{word}: {finding.fix}"
        for name in re.findall(r"(?:scripts|docs|rewards)/\w+\.\w+", finding.fix):
            assert (REPOSITORY / name).is_file(), name
