"""Every problem in a run's metrics is found with its cause and fix; a healthy run has no finding."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.artifacts.metrics import read_metrics
from rlvr.health import CHECKS, Finding, findings, health_line, summary
from rlvr.health.run_metrics import RunMetrics
from tests.support.cases import cases

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "monitoring.md").read_text(encoding="utf-8")
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


def at(step: int, value: float, other: float) -> Callable[[int, random.Random], float]:
    return lambda now, chance: value if now == step else other


def every(steps: int, value: float, other: float) -> Callable[[int, random.Random], float]:
    return lambda now, chance: other if now % steps else value


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


def value(given: Any) -> Value:
    """A metric of a case: a number, or the name of a shape and its arguments."""
    shapes: dict[str, Callable[..., Any]] = {"noisy": noisy, "rising": rising, "jump": jump, "at": at, "every": every}
    return shapes[given[0]](*map(value, given[1:])) if isinstance(given, list) else given


def changed(steps: int, changes: Mapping[str, Any], without: str = "") -> list[Line]:
    return run(steps, without=without, **{name: value(given) for name, given in changes.items()})


def overfitted(step: int, chance: random.Random) -> float | None:
    accuracies = {40: 0.6, 50: 0.55}
    return accuracies.get(step, 0.45 if step > 50 else 0.4 + step / 200) if step % 10 == 0 else None


FAULTY = [
    Case(why, finding, names, changed(steps, changes), recipe)
    for why, finding, names, steps, changes, recipe in cases(__file__, "faulty")
] + [
    Case(
        "overfitting, or a verifier that is fooled",
        "warning validation-falls eval_accuracy",
        "0.6 → .* since step 40.*checkpoint of step 40",
        run(100, eval_accuracy=overfitted),
    )
]
RISING: dict[str, Value] = {"reward": noisy(rising(0.4, 0.9, 100), 0.06)}
JITTER: Value = lambda step, chance: 0.5 + 0.08 * chance.gauss(0, 1) if step % 10 == 0 else None  # noqa: E731
HEALTHY_RUNS = [
    *((why, changed(steps, changes, without)) for why, steps, changes, without in cases(__file__, "healthy")),
    ("no line yet", []),
    ("a warm-up starts at a learning rate of 0", run(12, learning_rate=lambda step, chance: (step - 1) * 1e-7)),
    *((f"validation that only jitters, {n}", run(100, seed=n, eval_accuracy=JITTER, **RISING)) for n in range(5)),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.why)
def test_a_faulty_run_has_a_finding_with_its_figure_and_its_fix(case: Case) -> None:
    current = findings(case.lines, settings=case.settings)
    [finding] = [one for one in current if f"{one.level} {one.kind} {one.metric}" == case.finding]
    assert re.search(case.names, f"{finding.problem}. {finding.fix}"), finding
    assert 0 < finding.since_step <= case.lines[-1]["step"]
    assert any(finding.problem in line for line in summary(case.lines, settings=case.settings))


@pytest.mark.slow
@pytest.mark.parametrize(("why", "lines"), HEALTHY_RUNS, ids=[why for why, _ in HEALTHY_RUNS])
def test_a_healthy_run_has_no_finding_at_any_length(why: str, lines: list[Line]) -> None:
    for end in range(1, len(lines) + 1):
        assert [one for one in findings(lines[:end]) if one.level != "note"] == [], f"line {end}"


def test_every_check_has_a_case() -> None:
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_the_health_line_is_one_line() -> None:
    assert health_line(run(60)) == "healthy"
    sick = health_line(run(60, completions__clipped_ratio=0.9, kl=3.0))
    assert sick.startswith("alarm: 90 % of the completions are cut off. Raise max_completion_length")
    assert sick.endswith("See docs/monitoring.md#completions-clipped_ratio (also: kl)")
    assert all("\n" not in health_line(case.lines, settings=case.settings) for case in FAULTY)


def test_alarms_come_before_warnings_and_causes_before_effects() -> None:
    found = findings(run(60, completions__clipped_ratio=0.95, frac_reward_zero_std=0.95, kl=2.0, reward=0.0))
    assert [one.metric for one in found] == ["completions/clipped_ratio", "frac_reward_zero_std", "kl"]


@pytest.mark.parametrize(
    ("steps", "rises", "says", "why"),
    [
        (1, False, "too short to judge: 1 log line", "not even a level takes so few"),
        (6, False, "detected from 40 lines, a flat one from 100 lines", "trends take two windows"),
        (30, True, "no problem found in 30 log lines; a falling reward is detected from 40 lines", "it rose"),
        (60, False, "has not clearly risen; a flat one is detected from 100 lines", "no progress, too short to tell"),
        (60, True, "healthy from beginning to end", "it rose and never fell"),
    ],
)
def test_a_summary_claims_no_more_than_its_lines_can_show(steps: int, rises: bool, says: str, why: str) -> None:
    changes = {} if rises else {"reward": lambda step, chance: 0.5 + chance.gauss(0, 0.02)}
    last = summary(run(steps, **changes))[-1]
    assert last.endswith(says), (why, last)


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
        assert page == "docs/monitoring.md" and target in anchors, finding.page
        name = "rewards/NAME/mean" if target == "rewards-name" else finding.metric
        assert f"`{name}`" in PAGE, name


def test_the_alarm_that_the_page_quotes_is_the_real_one() -> None:
    [quoted] = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = run(60, completions__clipped_ratio=0.9)
    assert " ".join(quoted.split()) == health_line(lines, settings={"max_completion_length": 64})
