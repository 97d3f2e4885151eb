"""Check for failures and slowness: values that are not finite, updates without effect, slow steps."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from rlvr.formatting import is_number, number
from rlvr.health.finding import Finding, percent
from rlvr.health.run_metrics import EDGE, MIN_LINES, RunMetrics
from rlvr.health.trends import combine


def not_finite(run: RunMetrics) -> Iterator[Finding]:
    """A loss or gradient norm that is null in metrics.jsonl. One such step may be chance, two are not."""
    for metric in ("loss", "grad_norm"):
        logged = [(line.get("step", 0), is_number(line[metric])) for line in run.lines if metric in line][-run.window :]
        steps = [step for step, finite in logged if not finite]
        if steps:
            lasting = len(logged) > 1 and not any(finite for _, finite in logged[-2:])
            yield Finding(
                "alarm" if lasting else "warning",
                "not-finite",
                metric,
                f"{metric} is not finite" if lasting else f"{metric} was not finite at step {steps[-1]}",
                "Resume from an older checkpoint (resume_from_checkpoint: FOLDER) with a lower learning_rate; if dtype "
                "is float16, use bfloat16.",
                steps[0],
            )
            return


def unscored(run: RunMetrics) -> Iterator[Finding]:
    metric = "rewards/unscored_fraction"
    if found := run.level(metric, [("alarm", 0.5, 0.4), ("warning", 0.05, 0.03)]):
        level, since = found
        yield Finding(
            level,
            "unscored",
            metric,
            f"{percent(run.recent(metric))} of the completions have no score and are masked: a reward function fails, "
            "exceeds its timeout or returns None",
            "Read the reward's messages; raise reward_timeout_s if it is slow.",
            since,
        )


def cut_off(run: RunMetrics) -> Iterator[Finding]:
    metric = "completions/clipped_ratio"
    if found := run.level(metric, [("alarm", 0.8, 0.7), ("warning", 0.3, 0.25)]):
        level, since = found
        problem = f"{percent(run.recent(metric))} of the completions are cut off"
        fix = f"Raise {run.key('max_completion_length')}, or find out why the model does not stop."
        position = run.position()
        if position is not None and position <= EDGE:
            problem += ", and the reward is at its minimum"
        if fmean(run[metric].first(MIN_LINES)) < 0.1 and not run.has_risen():
            problem += ": the model no longer ends its answers"
            fix = f"Lower {run.key('learning_rate')} and read some completions."
        yield Finding(level, "cut-off", metric, problem, fix, since)


def learning_rate_zero(run: RunMetrics) -> Iterator[Finding]:
    """Needs three lines: the first step of a warm-up has a rate of 0, and so may the last of a schedule."""
    series = run["learning_rate"]
    since = next((at for at, rate in zip(series.steps[::-1], series.values[::-1], strict=True) if rate), 0)
    if len(series.after(since)) >= 3:
        yield Finding(
            "alarm",
            "learning-rate-zero",
            "learning_rate",
            f"the learning rate has been 0 since step {since + 1}, so the model does not change",
            f"Check {run.key('learning_rate')}, {run.key('lr_scheduler_type')} and warmup_steps.",
            since + 1,
        )


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
        yield Finding(
            "alarm",
            "gradient-zero",
            "grad_norm",
            f"the gradient has been exactly 0 for {len(steps)} log lines, although the rewards differ",
            "Check that some parameters are trainable. With mask_truncated_completions, check that some completions "
            "are not cut off.",
            steps[-1],
        )


def rewards_take_long(run: RunMetrics) -> Iterator[Finding]:
    series = combine([run["time/rewards"], run["step_time"]], lambda part, whole: part / whole if whole else 0.0)
    found = run.level(series, [("note", 0.5, 0.4)])
    seconds = run.recent("time/rewards") if found else 0.0
    if found and seconds > 1:
        level, since = found
        share = percent(fmean(series.last(run.short_window)))
        yield Finding(
            level,
            "slow-rewards",
            "time/rewards",
            f"the rewards take {share} of a step, {number(seconds)} s, while generation waits",
            "Give the rewards more workers, or make the reward function faster.",
            since,
        )


def steps_slow_down(run: RunMetrics) -> Iterator[Finding]:
    """Steps that slow down more than the completions grow. The first lines are left out: loading and compiling."""
    series, tokens = run["step_time"], run["completions/mean_length"]
    if len(series) < 2 * run.window + MIN_LINES:
        return
    start, recent = median(series.values[MIN_LINES : MIN_LINES + run.window]), median(series.last(run.window))
    growth = fmean(tokens.last(run.window)) / max(1.0, fmean(tokens.first(run.window))) if tokens else 1.0
    if start and recent / start > 2 * max(1.0, growth):
        yield Finding(
            "warning",
            "slower-steps",
            "step_time",
            f"steps take {number(recent)} s instead of {number(start)} s, and longer completions do not explain it",
            "Check what else uses the machine, and whether its memory or disk is full.",
            series.steps[-run.window],
        )
