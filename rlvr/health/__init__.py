"""How a run is doing, in words: what its metrics show that a person should act on, and what to do about it.

    health_line(read_metrics(path), settings=recipe.as_dict())
    "alarm: 100 % of the completions are cut off: raise max_completion_length (8), or …; see docs/metrics.md#…"

Pure functions of the lines of metrics.jsonl; docs/metrics.md explains every metric and says where its thresholds are
from. A loss near 0 is no sign of anything: in GRPO the advantages of a group sum to 0, whether the model learns or not.

Silence is the aim. A finding needs several lines, a level is left later than it is entered, a change must be more than
chance, and a metric that is absent means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rlvr.formatting import count, mapping, number
from rlvr.health import failure_checks, policy_checks, reward_checks
from rlvr.health.finding import LEVELS, Finding, anchor
from rlvr.health.run_metrics import LEAST, RunMetrics
from rlvr.health.trends import track

__all__ = ["CHECKS", "WINDOW", "Finding", "anchor", "findings", "health_line", "summary"]

WINDOW = 20  # lines that a trend is judged on; a level takes half of them
MEASURED = ("eval_accuracy", "eval_reward")
MOMENTS = 30  # of a run that its summary looks back at
HISTORY = 500  # lines that are looked at, beside the first ones and the validation's: a log step must stay cheap

# A cause stands before what follows from it, so that among equals it is told first.
CHECKS = (
    failure_checks.not_finite,
    failure_checks.unscored,
    failure_checks.cut_off,
    failure_checks.learning_rate_zero,
    failure_checks.gradient_zero,
    reward_checks.no_spread,
    reward_checks.reward_falls,
    reward_checks.validation_falls,
    reward_checks.trade_off,
    policy_checks.gradient_grows,
    policy_checks.too_far_from_policy,
    policy_checks.sampling_ratio,
    policy_checks.entropy,
    policy_checks.length,
    policy_checks.duplicates,
    policy_checks.groups_unfilled,
    reward_checks.unearned,
    reward_checks.reward_flat,
    failure_checks.steps_slow_down,
    failure_checks.rewards_take_long,
)


def findings(
    lines: Sequence[Mapping[str, Any]], *, settings: Mapping[str, Any] | None = None, window: int = WINDOW
) -> list[Finding]:
    """What the lines show, the most serious first; among equals the cause before what follows from it.

    Args:
        lines: of metrics.jsonl, oldest first. Lines without a metric, and values that are null or NaN, are fine.
        settings: the recipe, as `Recipe.as_dict()` or recipe.yaml has it; without it a few findings say less.
        window: how many lines a trend is judged on.
    """
    run = RunMetrics(_within_history(lines, 2 * window), mapping(settings), window)
    found = [finding for check in CHECKS for finding in check(run)]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def health_line(
    lines: Sequence[Mapping[str, Any]], *, settings: Mapping[str, Any] | None = None, window: int = WINDOW
) -> str:
    """One line for a log: "healthy", or the most serious finding and how many others there are."""
    found = findings(lines, settings=settings, window=window)
    if not found:
        return "healthy"
    worst = found[0]
    told = f"{worst.text}: {worst.advice}; see {worst.page}"
    if worst.level == "note":
        return f"healthy; {told}"
    more = sum(finding.level != "note" for finding in found[1:])
    return f"{worst.level}: {told}{f' (and {more} more)' if more else ''}"


def summary(
    lines: Sequence[Mapping[str, Any]], *, settings: Mapping[str, Any] | None = None, window: int = WINDOW
) -> list[str]:
    """What to say at the end of a run, a line each: the reward, what is found now, and what was found but is over."""
    rewards = track(lines, "reward")
    said = ["no step has logged a reward"]
    if rewards:
        tenth = max(1, len(rewards) // 10)
        start, end = (number(fmean(part)) for part in (rewards.first(tenth), rewards.last(tenth)))
        said = [f"reward {start} → {end} in {rewards.steps[-1]:,} steps"]

    now = findings(lines, settings=settings, window=window)
    for finding in now:
        since = f"{finding.level} since step {finding.since_step:,}"
        said.append(f"{since}: {finding.text}: {finding.advice}; see {finding.page}")
    before: dict[str, tuple[int, Finding]] = {}
    for length in sorted({len(lines) * part // MOMENTS for part in range(1, MOMENTS)} - {0}):
        for finding in findings(lines[:length], settings=settings, window=window):
            if finding.level != "note":
                before[finding.metric] = (lines[length - 1].get("step", 0), finding)
    for metric, (step, finding) in before.items():
        if metric not in {found.metric for found in now}:
            said.append(f"over by now, but at step {step:,}: {finding.text}; see {finding.page}")
    if rewards and len(said) == 1:
        said.append(_nothing_amiss(RunMetrics(lines, mapping(settings), window), len(rewards)))
    return said


def _nothing_amiss(run: RunMetrics, lines: int) -> str:
    """What it means that nothing was found in so many lines: less, the fewer they are."""
    if lines < LEAST:
        return f"too short to judge: {count(lines, 'log line')}"
    fall, standstill = 2 * run.window, reward_checks.FLAT * run.window
    risen = run.has_risen() or lines >= standstill
    if lines < fall:
        then = "" if risen else f", a standstill from {standstill}"
        return f"nothing amiss in {lines} log lines, but they are few: a fall of the reward shows from {fall} on{then}"
    if not risen:
        return (
            f"nothing amiss in {lines} log lines, but the reward has not clearly risen, and a standstill shows from "
            f"{standstill} on"
        )
    return "healthy from beginning to end"


def _within_history(lines: Sequence[Mapping[str, Any]], first: int) -> Sequence[Mapping[str, Any]]:
    start = len(lines) - HISTORY
    if start <= first:
        return lines
    validation = (line for line in lines[first:start] if any(line.get(key) is not None for key in MEASURED))
    return [*lines[:first], *validation, *lines[start:]]
