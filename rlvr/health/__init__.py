"""Find problems in a run's metrics, with their cause and fix.

    health_line(read_metrics(path), settings=recipe.as_dict())
    "alarm: 100 % of the completions are cut off. Raise max_completion_length (8), or …. See docs/monitoring.md#…"

Pure functions of the lines of metrics.jsonl. docs/monitoring.md explains every metric and the source of its thresholds.
No check uses the loss: the advantages of a group sum to 0, so the loss stays near 0 whether the model learns or not.

The checks avoid false alarms. A finding needs several lines, a level is left later than it is entered, a change must
exceed chance, and a missing metric means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rlvr.formatting import count, mapping, number
from rlvr.health import failure_checks, policy_checks, reward_checks
from rlvr.health.run_metrics import LEVELS, Finding, RunMetrics
from rlvr.health.trends import MIN_LINES, WINDOW, metric_series

__all__ = ["CHECKS", "Finding", "findings", "health_line", "line_of", "summary"]

VALIDATION_METRICS = ("eval_accuracy", "eval_reward")
LOOK_BACKS = 30  # points of a run that its summary looks back at
HISTORY = 500  # latest lines that are examined, beside the first ones and the validation: a log step must stay cheap

# A cause stands before its effects, so that among equals it comes first.
CHECKS = (
    failure_checks.not_finite,
    failure_checks.unscored,
    failure_checks.cut_off,
    failure_checks.tool_calls_fail,
    failure_checks.tools_unused,
    failure_checks.learning_rate_zero,
    failure_checks.gradient_zero,
    reward_checks.no_spread,
    reward_checks.reward_falls,
    reward_checks.validation_falls,
    reward_checks.constant_reward,
    reward_checks.trade_off,
    policy_checks.gradient_grows,
    policy_checks.too_far_from_policy,
    policy_checks.entropy,
    policy_checks.length,
    policy_checks.duplicates,
    reward_checks.reward_flat,
)


def findings(
    lines: Sequence[Mapping[str, Any]], *, settings: Mapping[str, Any] | None = None, started_at: int = 0
) -> list[Finding]:
    """Run all checks. The most serious findings come first; among equals, causes before effects.

    Args:
        lines: of metrics.jsonl, oldest first. Missing metrics, null and NaN are fine.
        settings: the recipe, as `Recipe.as_dict()` or recipe.yaml has it. Without it some findings say less.
        started_at: the step that the latest start of the run began from. Levels are judged by the steps after it.
    """
    run = RunMetrics(_within_history(lines), mapping(settings), started_at)
    return sorted((finding for check in CHECKS for finding in check(run)), key=lambda one: LEVELS.index(one.level))


def health_line(lines: Sequence[Mapping[str, Any]], *, settings: Mapping[str, Any] | None = None) -> str:
    """One line for a log: "healthy", or the most serious finding and the metrics of the others."""
    return line_of(findings(lines, settings=settings))


def line_of(current: Sequence[Finding]) -> str:
    """Findings as `health_line` shows them."""
    if not current:
        return "healthy"
    worst = current[0]
    if worst.level == "note":
        return f"healthy; {worst}"
    others = ", ".join(finding.metric for finding in current[1:] if finding.level != "note")
    return f"{worst.level}: {worst}{f' (also: {others})' if others else ''}"


def summary(lines: Sequence[Mapping[str, Any]], *, settings: Mapping[str, Any] | None = None) -> list[str]:
    """The lines for the end of a run: the reward, its findings, and earlier findings that are over."""
    rewards = metric_series(lines, "reward")
    report = ["no step has logged a reward"]
    if rewards:
        tenth = max(1, len(rewards) // 10)
        start, end = number(fmean(rewards.first(tenth))), number(fmean(rewards.last(tenth)))
        report = [f"reward {start} → {end} in {count(rewards.steps[-1], 'step')}"]

    current = findings(lines, settings=settings)
    report += [f"{finding.level} since step {finding.since_step:,}: {finding}" for finding in current]
    earlier: dict[str, tuple[int, Finding]] = {}
    for length in sorted({len(lines) * part // LOOK_BACKS for part in range(1, LOOK_BACKS)} - {0}):
        for finding in findings(lines[:length], settings=settings):
            if finding.level != "note":
                earlier[finding.metric] = (lines[length - 1].get("step", 0), finding)
    for metric, (step, finding) in earlier.items():
        if metric not in {other.metric for other in current}:
            report.append(f"no longer true, but at step {step:,}: {finding.problem}. See {finding.page}")
    if rewards and len(report) == 1:
        report.append(_no_findings(RunMetrics(lines, mapping(settings)), len(rewards)))
    return report


def _no_findings(run: RunMetrics, lines: int) -> str:
    """What the absence of findings means: less, the fewer lines there are."""
    if lines < MIN_LINES:
        return f"too short to judge: {count(lines, 'log line')}"
    drop_from, flat_from = 2 * WINDOW, reward_checks.FLAT_WINDOWS * WINDOW
    risen = run.has_risen() or lines >= flat_from
    if lines < drop_from:
        gap = f"; a falling reward is detected from {drop_from} lines"
        return f"no problem found in {lines} log lines{gap}{'' if risen else f', a flat one from {flat_from} lines'}"
    if risen:
        return "healthy from beginning to end"
    gap = f"the reward has not clearly risen; a flat one is detected from {flat_from} lines"
    return f"no problem found in {lines} log lines, but {gap}"


def _within_history(lines: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    first, start = 2 * WINDOW, len(lines) - HISTORY
    if start <= first:
        return lines
    validation = (line for line in lines[first:start] if any(line.get(key) is not None for key in VALIDATION_METRICS))
    return [*lines[:first], *validation, *lines[start:]]
