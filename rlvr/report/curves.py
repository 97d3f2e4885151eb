"""Panels of a run's metrics: the reward, and small charts, each with a caption on what to look for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.formatting import number, percent
from rlvr.report import svg_charts
from rlvr.report.run_facts import series_of
from rlvr.report.run_reader import RunRecord
from rlvr.report.svg_charts import Series


@dataclass(frozen=True)
class MetricPanel:
    """A metric that the report draws, and its caption.

    Attributes:
        key: its name in metrics.jsonl.
        title: its name on the page.
        look_for: the caption: what is healthy, and what is not.
        unit: of its values.
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
PHASES = (("time/generation", "generation"), ("time/rewards", "rewards"), ("time/update", "update"))


@dataclass(frozen=True)
class RewardPanel:
    """The chart of the reward over the steps.

    Attributes:
        only: the name of the only reward; empty with several.
        change: the total at the beginning and at the end, in words.
        last_step: the last logged step.
        lines_a_point: logged lines per point.
        window: points that the smoothed line averages; 0 without that line.
        band: whether the area from the lowest to the highest completion is drawn.
    """

    svg: str
    only: str
    change: str
    last_step: int
    lines_a_point: int
    window: int
    band: bool


@dataclass(frozen=True)
class Panel:
    """A small chart with its title and caption."""

    title: str
    svg: str
    change: str
    look_for: str


def reward_panel(run: RunRecord) -> RewardPanel | None:
    total = series_of(run.metrics, "reward", "total")
    if not total.values:
        return None
    parts: dict[str, Series] = {}
    for name in reward_names(run):
        label = f"{name} (weight {number(run.weights[name])})" if name in run.weights else name
        series = series_of(run.metrics, f"rewards/{name}/mean", label)
        if series.values:
            parts[name] = series
    # One reward at weight 1 is the total: draw one line, not two identical ones.
    only = next(iter(parts)) if len(parts) == 1 and next(iter(parts.values())).values == total.values else ""
    validation = series_of(run.metrics, "eval_reward", "total on validation rows")
    band = _band(run, "reward/min", "reward/max")
    points = len(svg_charts.thin_out(total).steps)
    return RewardPanel(
        svg=svg_charts.reward_chart(
            "reward", total, [] if only else list(parts.values()), validation if validation.values else None, band
        ),
        only=only,
        change=change(total.values),
        last_step=int(total.steps[-1]),
        lines_a_point=-(-len(total.steps) // points),
        window=svg_charts.smoothing_window(points) if points > 2 else 0,
        band=band is not None,
    )


def reward_names(run: RunRecord) -> list[str]:
    """The logged rewards, in the order of their first line."""
    keys = dict.fromkeys(key for line in run.metrics for key in line)
    return [match[1] for key in keys if (match := re.fullmatch(r"rewards/(.+)/mean", key))]


def reward_panels(run: RunRecord) -> list[Panel]:
    """A panel for each reward, with the area from its lowest to its highest completion."""
    panels = []
    for place, name in enumerate(reward_names(run)):
        series = series_of(run.metrics, f"rewards/{name}/mean", "mean")
        if not series.values:
            continue
        band = _band(run, f"rewards/{name}/min", f"rewards/{name}/max")
        svg = svg_charts.small_chart(f"each-{place}", series, band=band)
        caption = "The line is the mean of the completions"
        caption += (
            ", the area spans from the lowest to the highest. A reward without any high value gives nothing to learn."
            if band
            else "."
        )
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
        phases = list(_phases(run)) if metric.key == "step_time" else []
        if phases:
            svg = svg_charts.stacked_chart(name, phases)
        else:
            svg = svg_charts.small_chart(
                name, series, share=metric.share, band=_band(run, *metric.band) if metric.band else None
            )
        look_for = metric.look_for.replace("{limit}", f" of {limit} tokens" if isinstance(limit, int) else "")
        panels.append(Panel(metric.title, svg, change(series.values, share=metric.share) + metric.unit, look_for))
    return panels


def not_logged(shown: Sequence[Panel]) -> list[str]:
    """The titles of the metrics that the run did not log."""
    titles = {panel.title for panel in shown}
    return [
        metric.title.split(",")[0].lower() for metric in METRICS if not metric.optional and metric.title not in titles
    ]


def always_zero(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """The titles of the optional metrics that were 0 at every step."""
    titles = []
    for metric in METRICS:
        values = series_of(metrics, metric.key).values
        if metric.optional and values and not any(values):
            titles.append(
                metric.title[0].lower() + metric.title[1:] if not metric.title.startswith("KL") else metric.title
            )
    return titles


def change(values: Sequence[float], *, share: bool = False) -> str:
    """Format the means of the first and the last tenth of the values."""
    tenth = max(1, len(values) // 10)
    ends = [sum(part) / len(part) for part in (values[:tenth], values[-tenth:])]
    return " → ".join(percent(end) if share else number(end) for end in ends)


def _band(run: RunRecord, low: str, high: str) -> tuple[Series, Series] | None:
    lowest, highest = series_of(run.metrics, low, "lowest"), series_of(run.metrics, high, "highest")
    return (lowest, highest) if lowest.values and list(lowest.steps) == list(highest.steps) else None


def _phases(run: RunRecord) -> Iterator[Series]:
    """Yield the seconds of a step by phase, and the rest, over the steps that logged all phases."""
    whole = series_of(run.metrics, "step_time")
    parts = {key: series_of(run.metrics, key, label) for key, label in PHASES}
    by_step = [dict(zip(series.steps, series.values, strict=True)) for series in parts.values()]
    steps = [step for step in whole.steps if all(step in values for values in by_step)]
    if not steps:
        return
    for series, values in zip(parts.values(), by_step, strict=True):
        yield Series(series.label, steps, [max(values[step], 0.0) for step in steps])
    total = dict(zip(whole.steps, whole.values, strict=True))
    yield Series("the rest", steps, [max(total[step] - sum(values[step] for values in by_step), 0.0) for step in steps])
