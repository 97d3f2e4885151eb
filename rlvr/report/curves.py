"""Panels of a run's metrics: the reward, and small charts, each with a caption on what to look for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.formatting import is_number, number, percent
from rlvr.health.run_metrics import logged_rewards
from rlvr.report import svg_charts
from rlvr.report.run_reader import RunRecord, series_of
from rlvr.report.svg_charts import Series


@dataclass(frozen=True)
class MetricPanel:
    """A metric of metrics.jsonl that the report draws, with its title and caption.

    Attributes:
        look_for: the caption: what is healthy, and what is not.
        share: whether it is a share (0..1), drawn in percent.
        optional: not reported as missing; without a panel if it was always 0.
        band: two metrics; the area between them is drawn.
    """

    key: str
    title: str
    look_for: str
    unit: str = ""
    share: bool = False
    optional: bool = False
    band: tuple[str, str] | None = None


METRICS = (
    MetricPanel(
        "completions/mean_length",
        "Completion length",
        "Growth is fine while the reward rises too; growth without more reward is rambling. The area spans from the "
        "shortest to the longest completion.",
        unit=" tokens",
        band=("completions/min_length", "completions/max_length"),
    ),
    MetricPanel(
        "completions/clipped_ratio",
        "Cut off",
        "Completions that reached the limit{limit} before they ended, mostly without an answer. Healthy: near 0.",
        share=True,
    ),
    MetricPanel(
        "tools/call_frequency",
        "Tool calls",
        "Calls of a completion. A fall to 0 means that answers without calls earn as much.",
        optional=True,
    ),
    MetricPanel(
        "tools/failure_frequency",
        "Failed tool calls",
        "Calls that returned an error. Near 100 %: the model does not know the names or arguments of the tools.",
        share=True,
        optional=True,
    ),
    MetricPanel(
        "tools/turns",
        "Turns",
        "Messages of the model in a completion: one, and one more after each round of calls.",
        optional=True,
    ),
    MetricPanel(
        "tools/cut_by_iterations",
        "Cut off by the limit of turns",
        "Completions that still called tools after max_tool_calling_iterations. Healthy: below 50 %.",
        share=True,
        optional=True,
    ),
    MetricPanel(
        "tools/seconds",
        "Time in tools",
        "Seconds of a completion's calls. How long a step waited for tools is a part of the time per step.",
        unit=" s",
        optional=True,
    ),
    MetricPanel(
        "environment/failed_fraction",
        "Failed environments",
        "Completions that left the update, because their environment itself failed. Healthy: 0.",
        share=True,
        optional=True,
    ),
    MetricPanel(
        "entropy",
        "Entropy",
        "Uncertainty of the model about each token. A slow fall is normal; at 0 nothing is left to explore.",
        unit=" nats",
    ),
    MetricPanel(
        "frac_reward_zero_std",
        "Groups with equal rewards",
        "If all rewards of a group are equal, its advantages are 0. Near 100 %, the problems are too easy or too hard.",
        share=True,
    ),
    MetricPanel(
        "grad_norm",
        "Gradient norm",
        "Healthy: a constant order of magnitude. If it spikes while the reward falls, lower the learning rate.",
    ),
    MetricPanel(
        "step_time",
        "Time per step",
        "Follows the completion length. A jump without longer completions: something else used the machine.",
        unit=" s",
    ),
    MetricPanel(
        "kl",
        "KL from the base model",
        "Distance of the model from its start. Growth without more reward is drift.",
        optional=True,
    ),
    MetricPanel(
        "policy_kl",
        "KL from the sampling policy",
        "Distance of the model from the policy that sampled. Above 0.1 the updates are stale.",
        optional=True,
    ),
    MetricPanel(
        "clip_ratio/region_mean",
        "Clipped updates",
        "Tokens whose update was clipped, because the policy had moved too far. Healthy: below 2 %.",
        share=True,
        optional=True,
    ),
    MetricPanel(
        "rewards/unscored_fraction",
        "Completions without a score",
        "Masked because a verifier failed, never counted against the model. Above 0: check the verifier.",
        share=True,
        optional=True,
    ),
)
# Seconds of a step by phase, from the bottom up. The chart adds the rest of step_time.
# Runs without environments have no tools.
PHASES = (
    ("time/generation", "generation"),
    ("time/tools", "tools"),
    ("time/old_log_probabilities", "old log-probabilities"),
    ("time/rewards", "rewards"),
    ("time/update", "update"),
)


@dataclass(frozen=True)
class Panel:
    """A chart with its title, the change over the run in words, and a caption."""

    title: str
    svg: str
    change: str
    look_for: str


def reward_panel(run: RunRecord) -> Panel | None:
    """The chart of the total reward over the steps, with each reward and the validation."""
    total = series_of(run.metrics, "reward", "total")
    if not total.values:
        return None
    parts: dict[str, Series] = {}
    for name in logged_rewards(run.metrics):
        label = f"{name} (weight {number(run.weights[name])})" if name in run.weights else name
        series = series_of(run.metrics, f"rewards/{name}/mean", label)
        if series.values:
            parts[name] = series
    # One reward at weight 1 is the total: draw one line, not two identical ones.
    only = next(iter(parts)) if len(parts) == 1 and next(iter(parts.values())).values == total.values else ""
    lines = [total, *([] if only else parts.values())]
    validation = series_of(run.metrics, "eval_reward", "total on validation rows")
    band = _band(run, "reward/min", "reward/max")
    svg = svg_charts.line_chart(
        "reward", lines, band=band, points=validation if validation.values else None, wide=True, legend=True
    )
    points = len(svg_charts.thin_out(total).steps)
    lines_a_point = -(-len(total.steps) // points)
    caption = f"The only reward is {only}. " if only else ""
    caption += "A point is " + (f"the mean of {lines_a_point} logged steps" if lines_a_point > 1 else "a logged step")
    if points > 2:
        caption += f", the line the mean of {svg_charts.smoothing_window(points)} neighbouring points"
    if band:
        caption += ", the area spans from the lowest to the highest completion"
    return Panel("Reward", svg, change(total.values), f"{caption}.")


def reward_panels(run: RunRecord) -> list[Panel]:
    """A panel for each reward, with the area from its lowest to its highest completion, and one for each task."""
    panels = []
    for place, task in enumerate(run.tasks if "tasks" in run.recipe else ()):
        series = series_of(run.metrics, f"tasks/{task}/reward", "mean")
        if series.values:
            svg = svg_charts.line_chart(f"task-{place}", [series])
            caption = "The line is the weighted sum of the rewards, over the completions of this task."
            panels.append(Panel(f"task {task}", svg, change(series.values), caption))
    for place, name in enumerate(logged_rewards(run.metrics)):
        series = series_of(run.metrics, f"rewards/{name}/mean", "mean")
        if not series.values:
            continue
        band = _band(run, f"rewards/{name}/min", f"rewards/{name}/max")
        area = ", the area spans from the lowest to the highest. A reward without any high value gives nothing to learn"
        caption = f"The line is the mean of the completions{area if band else ''}."
        svg = svg_charts.line_chart(f"each-{place}", [series], band=band)
        panels.append(Panel(name, svg, change(series.values), caption))
    return panels


def metric_panels(run: RunRecord) -> list[Panel]:
    """A panel for each logged metric of METRICS."""
    limit = run.recipe.get("max_completion_length")
    panels = []
    for metric in METRICS:
        series = series_of(run.metrics, metric.key, metric.title)
        if not series.values or (metric.optional and not any(series.values)):
            continue
        name = re.sub(r"\W", "-", metric.key)
        phases = list(_phases(run.metrics)) if metric.key == "step_time" else []
        band = _band(run, *metric.band) if metric.band else None
        if phases:
            svg = svg_charts.stacked_chart(name, phases)
        else:
            svg = svg_charts.line_chart(name, [series], share=metric.share, band=band)
        look_for = metric.look_for.replace("{limit}", f" of {limit} tokens" if isinstance(limit, int) else "")
        panels.append(Panel(metric.title, svg, change(series.values, share=metric.share) + metric.unit, look_for))
    return panels


def not_drawn(run: RunRecord) -> tuple[list[str], list[str]]:
    """The titles of the metrics that the run did not log, and of optional ones that were 0 at every step."""
    logged = [(metric, series_of(run.metrics, metric.key).values) for metric in METRICS]
    missing = [metric.title.lower() for metric, values in logged if not values and not metric.optional]
    return missing, [metric.title for metric, values in logged if values and metric.optional and not any(values)]


def change(values: Sequence[float], *, share: bool = False) -> str:
    """Format the means of the first and the last tenth of the values."""
    tenth = max(1, len(values) // 10)
    ends = [sum(part) / len(part) for part in (values[:tenth], values[-tenth:])]
    return " → ".join(percent(end) if share else number(end) for end in ends)


def _band(run: RunRecord, low: str, high: str) -> tuple[Series, Series] | None:
    lowest, highest = series_of(run.metrics, low, "lowest"), series_of(run.metrics, high, "highest")
    return (lowest, highest) if lowest.values and list(lowest.steps) == list(highest.steps) else None


def _phases(metrics: Sequence[Mapping[str, Any]]) -> Iterator[Series]:
    """Yield the seconds of a step by phase, and the rest, over the steps that logged all phases of the run."""
    phases = [(key, label) for key, label in PHASES if any(line.get(key) for line in metrics)]
    keys = ("step", "step_time", *(key for key, _ in phases))
    lines = [line for line in metrics if all(is_number(line.get(key)) for key in keys)]
    steps = [line["step"] for line in lines]
    for key, label in phases if lines else ():
        yield Series(label, steps, [max(line[key], 0.0) for line in lines])
    if lines:
        rest = [line["step_time"] - sum(line[key] for key, _ in phases) for line in lines]
        yield Series("the rest", steps, [max(seconds, 0.0) for seconds in rest])
