"""Check the policy: size of the updates, entropy, length and repetition of completions."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from rlvr.formatting import number
from rlvr.health.finding import Finding, percent
from rlvr.health.run_metrics import LOW_ENTROPY, RunMetrics
from rlvr.health.trends import MetricSeries, compare_means


def gradient_grows(run: RunMetrics) -> Iterator[Finding]:
    """Compares medians: single spikes are normal, since one odd completion weighs much in its group."""
    series = run["grad_norm"]
    before, latest = series.values[: -run.window], series.last(run.short_window)
    if len(before) < run.window or run.is_at_maximum():
        return
    # If all rewards of the groups are equal, the gradient is almost 0 and no base for a comparison.
    norm = median(latest)
    growth = norm / max(median(before), 0.01)
    if growth > 10 and norm > 1:
        yield Finding(
            "alarm" if growth > 100 and norm > 10 else "warning",
            "gradient-grows",
            "grad_norm",
            f"the gradient norm has grown {number(growth)}-fold, to {number(norm)}",
            f"Lower {run.key('learning_rate')} or {run.key('max_grad_norm')}.",
            series.steps[-run.window],
        )


def too_far_from_policy(run: RunMetrics) -> Iterator[Finding]:
    """The distance of the update from the policy that generated, and of the model from its start."""
    smaller_updates = f"Lower {run.key('learning_rate')}, {run.key('num_iterations')} or steps_per_generation."
    clipped = "{} of all tokens are clipped: the updates are too large"
    for kind, metric, levels, problem, fix in (
        (
            "far-from-start",
            "kl",
            [("alarm", 10.0, 5.0), ("warning", 1.0, 0.5)],
            "the model is far from its start: the KL divergence is {} a token",
            f"Raise {run.key('beta')} or lower learning_rate, and read some completions.",
        ),
        (
            "large-updates",
            "policy_kl",
            [("alarm", 0.5, 0.3), ("warning", 0.1, 0.07)],
            "the updates move the policy too far: the KL divergence is {} a token",
            smaller_updates,
        ),
        (
            "clipped-updates",
            "clip_ratio/region_mean",
            [("alarm", 0.5, 0.4), ("warning", 0.2, 0.15)],
            clipped,
            smaller_updates,
        ),
        (
            "clipped-updates",
            "cispo_clip_ratio",
            [("alarm", 0.5, 0.4), ("warning", 0.2, 0.15)],
            clipped,
            smaller_updates,
        ),
        (
            "vllm-mismatch",
            "sampling/sampling_logp_difference/mean",
            [("alarm", 0.5, 0.4), ("warning", 0.1, 0.07)],
            "vLLM and the trainer differ by {} in a token's log-probability",
            "Give both the same dtype and quantisation, and keep vllm_importance_sampling_correction on.",
        ),
    ):
        # The median: one odd token makes KL's estimate of a whole step explode.
        if found := run.level(metric, levels, median):
            level, since = found
            value = run.recent(metric, median)
            shown = percent(value) if "clip" in metric else number(value)
            yield Finding(level, kind, metric, problem.format(shown), fix, since)


def sampling_ratio(run: RunMetrics) -> Iterator[Finding]:
    """vLLM's importance ratios, by their distance from 1 on either side."""
    metric = "sampling/importance_sampling_ratio/mean"
    series = run[metric]
    distance = MetricSeries(series.steps, [max(value, 1 / max(value, 0.001)) for value in series.values])
    if found := run.level(distance, [("alarm", 2.0, 1.7), ("warning", 1.25, 1.2)]):
        level, since = found
        yield Finding(
            level,
            "vllm-mismatch",
            metric,
            f"the importance ratio of vLLM's samples is {number(run.recent(metric))} instead of about 1, so long "
            "completions may be masked",
            f"Give vLLM and the trainer the same dtype; see {run.key('vllm_importance_sampling_mode')}.",
            since,
        )


def entropy(run: RunMetrics) -> Iterator[Finding]:
    """Compares with the start, since low depends on model and task. At the maximum reward, entropy may be 0."""
    series = run["entropy"]
    if run.is_at_maximum():
        return
    negative = MetricSeries(series.steps, [-value for value in series.values])
    if found := run.level(negative, [("warning", -LOW_ENTROPY, -2 * LOW_ENTROPY)]):
        level, since = found
        problem = f"entropy is {number(run.recent('entropy'))}: the model is nearly certain of every token"
        fix = f"Raise {run.key('temperature')}. If entropy was higher before, lower {run.key('learning_rate')}."
        yield Finding(level, "entropy-low", "entropy", problem, fix, since)
        return
    if len(series) < run.window + run.short_window:
        return
    start, recent = median(series.first(run.short_window)), median(series.last(run.short_window))
    figures = f"{number(start)} → {number(recent)}"
    if recent < 0.1 * start:
        kind, problem = "entropy-collapsed", f"entropy has collapsed, {figures}, before the reward is at its maximum"
        fix = f"Lower {run.key('learning_rate')}, or raise {run.key('epsilon_high')} or entropy_coef."
    elif recent > max(3 * start, 0.1) and not run.has_risen():
        kind, problem = "entropy-grows", f"entropy grows, {figures}, without more reward: the policy becomes random"
        fix = f"Lower {run.key('learning_rate')}."
    else:
        return
    yield Finding("warning", kind, "entropy", problem, fix, series.steps[-run.short_window])


def length(run: RunMetrics) -> Iterator[Finding]:
    """A change of length is fine while the reward rises with it."""
    metric = "completions/mean_length"
    series = run[metric]
    if len(series) < run.window + run.short_window or run.has_risen() or run.is_at_maximum():
        return
    first, last = series.first(run.short_window), series.last(run.short_window)
    start, recent = fmean(first), fmean(last)
    if start and not 0.5 < recent / start < 2 and compare_means(first, last).is_significant():
        verb = "grow" if recent > start else "shrink"
        yield Finding(
            "warning",
            "length-changes",
            metric,
            f"completions {verb}, {start:.0f} → {recent:.0f} tokens, without more reward",
            "Read some completions. The reward reasoning_length can bound them.",
            series.steps[-run.short_window],
        )


def duplicates(run: RunMetrics) -> Iterator[Finding]:
    """Relative to the largest possible share. A task that is nearly solved has many duplicates."""
    metric = "completions/duplicate_fraction"
    found = run.level(metric, [("warning", 0.9 * run.max_duplicates(), 0.8 * run.max_duplicates())])
    if found and (run.position() or 0.0) < 0.8:
        level, since = found
        yield Finding(
            level,
            "duplicates",
            metric,
            f"{percent(run.recent(metric))} of the completions repeat another one of their group",
            f"Raise {run.key('temperature')}; check top_p and top_k.",
            since,
        )


def groups_unfilled(run: RunMetrics) -> Iterator[Finding]:
    metric = "dynamic_sampling/unfilled_groups"
    if found := run.level(metric, [("warning", 1.0, 0.5)]):
        level, since = found
        kept = run["dynamic_sampling/kept_fraction"]
        share = f" ({percent(fmean(kept.last(run.short_window)))} of the generated groups had some)" if kept else ""
        yield Finding(
            level,
            "unfilled-groups",
            metric,
            f"{number(run.recent(metric))} groups a step have no advantages{share}",
            f"Filter the rows (scripts/filter_by_pass_rate.py), or raise {run.key('dynamic_sampling')}.",
            since,
        )
