"""Signs that something is broken, or slow: numbers that are none, updates that do nothing, steps that take long."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from rlvr.formatting import is_number, number
from rlvr.health.finding import Finding, percent
from rlvr.health.run_metrics import LEAST, NEAR, RunMetrics
from rlvr.health.trends import joined


def not_finite(run: RunMetrics) -> Iterator[Finding]:
    """A loss or gradient that is no number (null in metrics.jsonl). One such step may be chance, two are not."""
    for key in ("loss", "grad_norm"):
        logged = [(line.get("step", 0), is_number(line[key])) for line in run.lines if key in line][-run.window :]
        bad = [step for step, good in logged if not good]
        if bad:
            lasting = len(logged) > 1 and not any(good for _, good in logged[-2:])
            yield Finding(
                "alarm" if lasting else "warning",
                key,
                f"{key} is not a finite number" if lasting else f"{key} was not a finite number at step {bad[-1]}",
                "resume from an older checkpoint (resume_from_checkpoint: FOLDER) with a lower learning_rate, and with "
                "dtype: bfloat16 if it is float16",
                bad[0],
            )
            return


def unscored(run: RunMetrics) -> Iterator[Finding]:
    key = "rewards/unscored_fraction"
    if held := run.held(key, [("alarm", 0.5, 0.4), ("warning", 0.05, 0.03)]):
        yield Finding(
            held[0],
            key,
            f"{percent(run.now(key))} of the completions got no score and are left out",
            "a reward function fails, is too slow or returns None: read its messages, see reward_timeout_s",
            held[1],
        )


def cut_off(run: RunMetrics) -> Iterator[Finding]:
    key = "completions/clipped_ratio"
    if held := run.held(key, [("alarm", 0.8, 0.7), ("warning", 0.3, 0.25)]):
        start = fmean(run[key].first(LEAST))
        advice = f"raise {run.setting('max_completion_length')}, or find out why the model does not stop"
        if start < 0.1 and not run.has_risen():
            advice = f"the model has unlearnt to stop: lower {run.setting('learning_rate')}, read some completions"
        place = run.place()
        at_bottom = ", and the reward is at its lowest" if place is not None and place <= NEAR else ""
        yield Finding(
            held[0], key, f"{percent(run.now(key))} of the completions are cut off{at_bottom}", advice, held[1]
        )


def learning_rate_zero(run: RunMetrics) -> Iterator[Finding]:
    """Three log lines: the first step of a warm-up has a rate of 0, and so may the last of a schedule."""
    series = run["learning_rate"]
    since = next((at for at, rate in zip(series.steps[::-1], series.values[::-1], strict=True) if rate), 0)
    if len(series.since(since)) >= 3:
        yield Finding(
            "alarm",
            "learning_rate",
            f"the learning rate has been 0 since step {since + 1}, so nothing is learnt",
            f"check {run.setting('learning_rate')}, {run.setting('lr_scheduler_type')} and warmup_steps",
            since + 1,
        )


def gradient_zero(run: RunMetrics) -> Iterator[Finding]:
    """Exactly 0, although groups have spread and the learning rate is not 0: what they teach arrives nowhere."""
    steps = []
    for line in reversed(run.lines):
        if is_number(norm := line.get("grad_norm")):
            if norm or not line.get("learning_rate", 1.0) or (line.get("frac_reward_zero_std") or 0.0) > 0.99:
                break
            steps.append(line["step"])
    if len(steps) >= LEAST:
        yield Finding(
            "alarm",
            "grad_norm",
            f"the gradient has been exactly 0 for {len(steps)} log lines, although the rewards differ",
            "see whether any parameter is trainable, and, with mask_truncated_completions, whether any completion ends",
            steps[-1],
        )


def rewards_take_long(run: RunMetrics) -> Iterator[Finding]:
    series = joined([run["time/rewards"], run["step_time"]], lambda part, whole: part / whole if whole else 0.0)
    held = run.held(series, [("note", 0.5, 0.4)])
    seconds = run.now("time/rewards") if held else 0.0
    # Under a second nobody waits for it.
    if held and seconds > 1:
        yield Finding(
            held[0],
            "time/rewards",
            f"the rewards take {percent(fmean(series.last(run.short)))} of a step, {number(seconds)} s",
            "give them more workers or a faster function; generation waits meanwhile",
            held[1],
        )


def steps_slow_down(run: RunMetrics) -> Iterator[Finding]:
    """Beyond what longer completions explain. The first lines are left out: they load, compile and fill caches."""
    series, tokens = run["step_time"], run["completions/mean_length"]
    if len(series) < 2 * run.window + LEAST:
        return
    start, now = median(series.values[LEAST : LEAST + run.window]), median(series.last(run.window))
    longer = fmean(tokens.last(run.window)) / max(1.0, fmean(tokens.first(run.window))) if tokens else 1.0
    if start and now / start > 2 * max(1.0, longer):
        yield Finding(
            "warning",
            "step_time",
            f"steps take {number(now)} s, at first {number(start)} s, and completions do not explain it",
            "see what else uses the machine, and whether its memory or disk is full",
            series.steps[-run.window],
        )
