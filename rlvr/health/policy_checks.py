"""Signs in the model itself: it moves too far, knows too surely what to say, says the same, or ever more."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from rlvr.formatting import number
from rlvr.health.finding import Finding, percent
from rlvr.health.run_metrics import SURE, RunMetrics
from rlvr.health.trends import Track, change


def gradient_grows(run: RunMetrics) -> Iterator[Finding]:
    """Medians: single spikes are normal, a group with one odd completion weighs much. Under 1 nothing is clipped."""
    series = run["grad_norm"]
    before, now = series.values[: -run.window], series.last(run.short)
    if len(before) < run.window or run.is_at_top():
        return
    # A gradient of almost nothing, from groups without spread, is no measure of growth.
    norm = median(now)
    times = norm / max(median(before), 0.01)
    if times > 10 and norm > 1:
        yield Finding(
            "alarm" if times > 100 and norm > 10 else "warning",
            "grad_norm",
            f"the gradient norm has grown {number(times)}-fold, to {number(norm)}",
            f"lower {run.setting('learning_rate')} or {run.setting('max_grad_norm')}",
            series.steps[-run.window],
        )


def too_far_from_policy(run: RunMetrics) -> Iterator[Finding]:
    """How far an update goes from the model that generated, and how far training has gone from its start."""
    smaller = f"lower {run.setting('learning_rate')}, {run.setting('num_iterations')} or steps_per_generation"
    for key, levels, text, advice in (
        (
            "kl",
            [("alarm", 10.0, 5.0), ("warning", 1.0, 0.5)],
            "the model has moved far from its start, KL {} a token",
            f"raise {run.setting('beta')} or lower learning_rate, and read some completions",
        ),
        (
            "policy_kl",
            [("alarm", 0.5, 0.3), ("warning", 0.1, 0.07)],
            "updates move the policy far, KL {} a token",
            smaller,
        ),
        (
            "clip_ratio/region_mean",
            [("alarm", 0.5, 0.4), ("warning", 0.2, 0.15)],
            "{} of all tokens are clipped",
            smaller,
        ),
        ("cispo_clip_ratio", [("alarm", 0.5, 0.4), ("warning", 0.2, 0.15)], "{} of all tokens are clipped", smaller),
        (
            "sampling/sampling_logp_difference/mean",
            [("alarm", 0.5, 0.4), ("warning", 0.1, 0.07)],
            "vLLM and the trainer differ by {} in a token's log-probability",
            "give both the same dtype and quantisation, and keep vllm_importance_sampling_correction on",
        ),
    ):
        # The median: one odd token makes KL's estimate of a whole step explode.
        if held := run.held(key, levels, median):
            value = run.now(key, median)
            shown = percent(value) if "clip" in key else number(value)
            yield Finding(held[0], key, text.format(shown), advice, held[1])


def sampling_ratio(run: RunMetrics) -> Iterator[Finding]:
    """vLLM's importance ratios, as their distance from 1 on either side."""
    key = "sampling/importance_sampling_ratio/mean"
    series = run[key]
    distance = Track(series.steps, [max(value, 1 / max(value, 0.001)) for value in series.values])
    if held := run.held(distance, [("alarm", 2.0, 1.7), ("warning", 1.25, 1.2)]):
        yield Finding(
            held[0],
            key,
            f"the importance ratio of vLLM's samples is {number(run.now(key))} instead of about 1",
            f"long completions may fall out of the update: see {run.setting('vllm_importance_sampling_mode')}, and "
            "give vLLM and the trainer the same dtype",
            held[1],
        )


def entropy(run: RunMetrics) -> Iterator[Finding]:
    """By its own beginning: what is low depends on the model and the task. With the reward at its top it may be 0."""
    series = run["entropy"]
    if run.is_at_top():
        return
    if held := run.held(Track(series.steps, [-value for value in series.values]), [("warning", -SURE, -2 * SURE)]):
        text = f"the model is nearly sure of every token, entropy {number(run.now('entropy'))}"
        advice = f"raise {run.setting('temperature')}, or lower {run.setting('learning_rate')} if it was higher before"
        yield Finding(held[0], "entropy", text, advice, held[1])
        return
    if len(series) < run.window + run.short:
        return
    start, now = median(series.first(run.short)), median(series.last(run.short))
    if now < 0.1 * start:
        text = f"entropy has collapsed, {number(start)} → {number(now)}, before the reward is at its top"
        advice = f"lower {run.setting('learning_rate')}, or raise {run.setting('epsilon_high')} or entropy_coef"
    elif now > max(3 * start, 0.1) and not run.has_risen():
        text = f"entropy grows, {number(start)} → {number(now)}, without more reward: the model comes apart"
        advice = f"lower {run.setting('learning_rate')}"
    else:
        return
    yield Finding("warning", "entropy", text, advice, series.steps[-run.short])


def length(run: RunMetrics) -> Iterator[Finding]:
    """Longer or shorter with more reward is learning; without, it is rambling or giving up."""
    key = "completions/mean_length"
    series = run[key]
    if len(series) < run.window + run.short or run.has_risen() or run.is_at_top():
        return
    start, now = fmean(series.first(run.short)), fmean(series.last(run.short))
    if start and not 0.5 < now / start < 2 and change(series.first(run.short), series.last(run.short)).is_real():
        yield Finding(
            "warning",
            key,
            f"completions {'grow' if now > start else 'shrink'}, {start:.0f} → {now:.0f} tokens, without more reward",
            "read some completions; the reward reasoning_length can bound them",
            series.steps[-run.short],
        )


def duplicates(run: RunMetrics) -> Iterator[Finding]:
    """Measured by what is possible. A task that is nearly solved has many."""
    key = "completions/duplicate_fraction"
    held = run.held(key, [("warning", 0.9 * run.most_repeats(), 0.8 * run.most_repeats())])
    if held and (run.place() or 0.0) < 0.8:
        yield Finding(
            held[0],
            key,
            f"{percent(run.now(key))} of the completions repeat another one of their group",
            f"sample more freely: raise {run.setting('temperature')}, check top_p and top_k",
            held[1],
        )


def groups_unfilled(run: RunMetrics) -> Iterator[Finding]:
    key = "dynamic_sampling/unfilled_groups"
    if held := run.held(key, [("warning", 1.0, 0.5)]):
        kept = run["dynamic_sampling/kept_fraction"]
        share = f" ({percent(fmean(kept.last(run.short)))} of what was generated had a signal)" if kept else ""
        yield Finding(
            held[0],
            key,
            f"{number(run.now(key))} groups a step are left without a signal{share}",
            f"filter the rows (scripts/filter_by_pass_rate.py), or raise {run.setting('dynamic_sampling')}",
            held[1],
        )
