"""Check the policy: size of the updates, entropy, length and repetition of completions."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from rlvr.formatting import number
from rlvr.health.run_metrics import LOW_ENTROPY, Finding, RunMetrics, percent
from rlvr.health.trends import SHORT_WINDOW, WINDOW, MetricSeries, compare_means


def gradient_grows(run: RunMetrics) -> Iterator[Finding]:
    """Compares medians: single spikes are normal, since one odd completion weighs much in its group."""
    series = run["grad_norm"]
    before, latest = series.values[:-WINDOW], series.last(SHORT_WINDOW)
    if len(before) < WINDOW or run.is_at_maximum():
        return
    # If all rewards of the groups are equal, the gradient is almost 0 and no base for a comparison.
    norm = median(latest)
    growth = norm / max(median(before), 0.01)
    if growth > 10 and norm > 1:
        level = "alarm" if growth > 100 and norm > 10 else "warning"
        problem = f"the gradient norm has grown {number(growth)}-fold, to {number(norm)}"
        fix = f"Lower {run.key('learning_rate')} or {run.key('max_grad_norm')}."
        yield Finding(level, "gradient-grows", "grad_norm", problem, fix, series.steps[-WINDOW])


def too_far_from_policy(run: RunMetrics) -> Iterator[Finding]:
    """The distance of the update from the policy that generated, and of the model from its start."""

    def check(
        kind: str, metric: str, alarm: tuple[float, float], warning: tuple[float, float], problem: str, fix: str
    ) -> Iterator[Finding]:
        levels, show = [("alarm", *alarm), ("warning", *warning)], percent if "clip" in metric else number
        # The median: one odd token makes KL's estimate of a whole step explode.
        return run.level_findings(kind, metric, levels, problem, fix, average=median, show=show)

    problem = "the model is far from its start: the KL divergence is {} a token"
    fix = f"Raise {run.key('beta')} or lower learning_rate, and read some completions."
    yield from check("far-from-start", "kl", (10.0, 5.0), (1.0, 0.5), problem, fix)
    problem = "the updates move the policy too far: the KL divergence is {} a token"
    fix = f"Lower {run.key('learning_rate')}, {run.key('num_iterations')} or steps_per_generation."
    yield from check("large-updates", "policy_kl", (0.5, 0.3), (0.1, 0.07), problem, fix)
    problem = "{} of all tokens are clipped: the updates are too large"
    for metric in ("clip_ratio/region_mean", "cispo_clip_ratio"):
        yield from check("clipped-updates", metric, (0.5, 0.4), (0.2, 0.15), problem, fix)
    metric = "sampling/sampling_logp_difference/mean"
    problem = "vLLM and the trainer differ by {} in a token's log-probability"
    fix = "Give both the same dtype and quantisation, and keep vllm_importance_sampling_correction on."
    yield from check("vllm-mismatch", metric, (0.5, 0.4), (0.1, 0.07), problem, fix)


def entropy(run: RunMetrics) -> Iterator[Finding]:
    """Compares with the start, since low depends on model and task. At the maximum reward, entropy may be 0."""
    series = run["entropy"]
    if run.is_at_maximum():
        return
    negative = MetricSeries(series.steps, [-value for value in series.values])
    levels = [("warning", -LOW_ENTROPY, -2 * LOW_ENTROPY)]
    problem = "entropy is {}: the model is nearly certain of every token"
    fix = f"Raise {run.key('temperature')}. If entropy was higher before, lower {run.key('learning_rate')}."
    low = list(run.level_findings("entropy-low", "entropy", levels, problem, fix, series=negative, show=number))
    yield from low
    if low or len(series) < WINDOW + SHORT_WINDOW:
        return
    start, recent = median(series.first(SHORT_WINDOW)), median(series.last(SHORT_WINDOW))
    figures = f"{number(start)} → {number(recent)}"
    if recent < 0.1 * start:
        kind, problem = "entropy-collapsed", f"entropy has collapsed, {figures}, before the reward is at its maximum"
        fix = f"Lower {run.key('learning_rate')}, or raise {run.key('epsilon_high')} or entropy_coef."
    elif recent > max(3 * start, 0.1) and not run.has_risen():
        kind, problem = "entropy-grows", f"entropy grows, {figures}, without more reward: the policy becomes random"
        fix = f"Lower {run.key('learning_rate')}."
    else:
        return
    yield Finding("warning", kind, "entropy", problem, fix, series.steps[-SHORT_WINDOW])


def length(run: RunMetrics) -> Iterator[Finding]:
    """A change of length is fine while the reward rises with it."""
    metric = "completions/mean_length"
    series = run[metric]
    if len(series) < WINDOW + SHORT_WINDOW or run.has_risen() or run.is_at_maximum():
        return
    first, last = series.first(SHORT_WINDOW), series.last(SHORT_WINDOW)
    start, recent = fmean(first), fmean(last)
    if start and not 0.5 < recent / start < 2 and compare_means(first, last).is_significant():
        verb = "grow" if recent > start else "shrink"
        problem = f"completions {verb}, {start:.0f} → {recent:.0f} tokens, without more reward"
        fix = "Read some completions. The reward reasoning_length can bound them."
        yield Finding("warning", "length-changes", metric, problem, fix, series.steps[-SHORT_WINDOW])


def duplicates(run: RunMetrics) -> Iterator[Finding]:
    """Relative to the largest possible share. A task that is nearly solved has many duplicates."""
    if (run.position() or 0.0) < 0.8:
        levels = [("warning", 0.9 * run.max_duplicates(), 0.8 * run.max_duplicates())]
        problem = "{} of the completions repeat another one of their group"
        fix = f"Raise {run.key('temperature')}, and check top_p and top_k."
        yield from run.level_findings("duplicates", "completions/duplicate_fraction", levels, problem, fix)
