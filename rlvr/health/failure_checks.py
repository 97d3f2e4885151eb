"""Check for failures and slowness: values that are not finite, updates without effect, slow steps."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from rlvr.formatting import is_number, number
from rlvr.health.run_metrics import EDGE, Finding, RunMetrics
from rlvr.health.trends import MIN_LINES, SHORT_WINDOW, WINDOW


def not_finite(run: RunMetrics) -> Iterator[Finding]:
    """A loss or gradient norm that is null in metrics.jsonl. One such step may be chance, two are not."""
    for metric in ("loss", "grad_norm"):
        logged = [(line.get("step", 0), is_number(line[metric])) for line in run.lines if metric in line][-WINDOW:]
        steps = [step for step, finite in logged if not finite]
        if steps:
            lasting = len(logged) > 1 and not any(finite for _, finite in logged[-2:])
            level, time = ("alarm", "is not finite") if lasting else ("warning", f"was not finite at step {steps[-1]}")
            fix = (
                "Resume from an older checkpoint (resume_from_checkpoint: FOLDER) with a lower learning_rate. If dtype "
                "is float16, use bfloat16."
            )
            yield Finding(level, "not-finite", metric, f"{metric} {time}", fix, steps[0])
            return


def unscored(run: RunMetrics) -> Iterator[Finding]:
    levels = [("alarm", 0.5, 0.4), ("warning", 0.05, 0.03)]
    problem = (
        "{} of the completions have no score and are masked: a reward fails, is too slow or returns None, or its "
        "server does not answer"
    )
    fix = "Read the reward's messages. Raise reward_timeout_s if it is slow, or start its server."
    return run.level_findings("unscored", "rewards/unscored_fraction", levels, problem, fix)


def cut_off(run: RunMetrics) -> Iterator[Finding]:
    metric, levels = "completions/clipped_ratio", [("alarm", 0.8, 0.7), ("warning", 0.3, 0.25)]
    problem = "{} of the completions are cut off"
    fix = f"Raise {run.key('max_completion_length')}, or find out why the model does not stop."
    position = run.position()
    if position is not None and position <= EDGE:
        problem += ", and the reward is at its minimum"
    if run[metric] and fmean(run[metric].first(MIN_LINES)) < 0.1 and not run.has_risen():
        problem += ": the model no longer ends its answers"
        fix = f"Lower {run.key('learning_rate')} and read some completions."
    return run.level_findings("cut-off", metric, levels, problem, fix)


def learning_rate_zero(run: RunMetrics) -> Iterator[Finding]:
    """Needs three lines: the first step of a warm-up has a rate of 0, and so may the last of a schedule."""
    series = run["learning_rate"]
    since = next((at for at, rate in zip(series.steps[::-1], series.values[::-1], strict=True) if rate), 0)
    if len(series.after(since)) >= 3:
        problem = f"the learning rate has been 0 since step {since + 1}, so the model does not change"
        fix = f"Check {run.key('learning_rate')}, {run.key('lr_scheduler_type')} and warmup_steps."
        yield Finding("alarm", "learning-rate-zero", "learning_rate", problem, fix, since + 1)


def gradient_zero(run: RunMetrics) -> Iterator[Finding]:
    """A gradient of exactly 0, although rewards within groups differ and the learning rate is not 0."""
    steps = []
    for line in reversed(run.lines):
        if is_number(norm := line.get("grad_norm")):
            equal = line.get("frac_reward_zero_std")
            if norm or not line.get("learning_rate", 1.0) or (is_number(equal) and equal > 0.99):
                break
            steps.append(line["step"])
    if len(steps) >= MIN_LINES:
        problem = f"the gradient has been exactly 0 for {len(steps)} log lines, although the rewards differ"
        fix = (
            "Check that some parameters are trainable. With mask_truncated_completions, check that some completions "
            "are not cut off."
        )
        yield Finding("alarm", "gradient-zero", "grad_norm", problem, fix, steps[-1])


def tool_calls_fail(run: RunMetrics) -> Iterator[Finding]:
    metric, problem = "tools/failure_frequency", "{} of the tool calls fail"
    fix = "Read some completions: do the calls have the names and arguments of the tools? docs/environments.md."
    calls = run["tools/call_frequency"]
    if calls and fmean(calls.last(SHORT_WINDOW)) > 0:
        yield from run.level_findings("failing-tools", metric, [("warning", 0.95, 0.8)], problem, fix)


def tools_unused(run: RunMetrics) -> Iterator[Finding]:
    """No calls any more, or none ever, while the reward is not at its maximum."""
    metric = "tools/call_frequency"
    series = run[metric]
    if len(series) < WINDOW or any(series.last(SHORT_WINDOW)) or run.is_at_maximum():
        return
    before = max(series.values)
    problem = (
        f"the model has stopped calling tools, after {number(before)} calls a rollout"
        if before
        else (f"the model has called no tool in {len(series)} log lines")
    )
    fix = "Check that calls pay: a reward that answers without calls earn as well teaches to leave them out."
    yield Finding("warning", "unused-tools", metric, problem, fix, series.steps[-SHORT_WINDOW])
