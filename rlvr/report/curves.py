"""What a report draws of a run's metrics: the reward, and small panels, each with what a reader should look for."""

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
class Metric:
    """A metric that the report draws, and what a reader should look for in it.

    Attributes:
        key: its name in metrics.jsonl.
        title: what the page calls it.
        look_for: what is healthy and what isn't.
        unit: behind its figures.
        share: whether it is a share (0..1), drawn in percent.
        optional: left out without a word where it is absent, and named among those that stayed 0 where it did.
        band: two metrics that the area around the line is drawn between.
    """

    key: str
    title: str
    look_for: str
    unit: str = ""
    share: bool = False
    optional: bool = False
    band: tuple[str, str] | None = None


METRICS = (
    Metric(
        "completions/mean_length",
        "Completion length",
        "Longer is fine while the reward rises with it; longer without more reward is rambling. The area is from the "
        "shortest to the longest.",
        unit=" tokens",
        band=("completions/min_length", "completions/max_length"),
    ),
    Metric(
        "completions/clipped_ratio",
        "Cut off",
        "Completions that hit the limit{limit} before they ended, mostly without an answer; should stay near 0.",
        share=True,
    ),
    Metric(
        "entropy",
        "Entropy",
        "How undecided the model is about each token; a slow fall is normal, at 0 there is nothing left to explore.",
        unit=" nats",
    ),
    Metric(
        "frac_reward_zero_std",
        "Groups without spread",
        "A group whose completions all get the same reward teaches nothing; near 100 % the problems are too easy or "
        "too hard.",
        share=True,
    ),
    Metric(
        "grad_norm",
        "Gradient norm",
        "Should keep its order of magnitude; spikes with a falling reward call for a lower learning rate.",
    ),
    Metric(
        "step_time",
        "Time a step",
        "Follows the completion length; a jump of its own means that something else used the machine.",
        unit=" s",
    ),
    Metric(
        "kl",
        "KL from the base model",
        "How far the model has moved from where it started; growth without more reward is drift.",
        optional=True,
    ),
    Metric(
        "policy_kl",
        "KL from the sampling policy",
        "How far the model has moved since it wrote the completions; above 0.1 the updates are stale.",
        optional=True,
    ),
    Metric(
        "clip_ratio/region_mean",
        "Clipped updates",
        "Tokens whose update was cut because the policy had moved too far; below 2 % is healthy.",
        share=True,
        optional=True,
    ),
    Metric(
        "rewards/unscored_fraction",
        "Rows without a score",
        "Left out because a verifier failed, which is no fault of the model; above 0, look at the verifier.",
        share=True,
        optional=True,
    ),
)
# A step's seconds by phase, from the bottom up; what they leave of step_time is the rest.
PHASES = (("time/generation", "generation"), ("time/rewards", "rewards"), ("time/update", "update"))


@dataclass(frozen=True)
class RewardFigure:
    """The reward over the steps.

    Attributes:
        only: the name of the one reward that the total consists of; empty where there are several.
        change: the total at the beginning and at the end, in words.
        last_step: the last step that was logged.
        lines_a_point: how many logged lines a point stands for.
        window: how many points the smoothed line averages; 0 without such a line.
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
    """One small figure with its caption."""

    title: str
    svg: str
    change: str
    look_for: str


def reward_figure(run: RunRecord) -> RewardFigure | None:
    total = series_of(run.metrics, "reward", "total")
    if not total.values:
        return None
    parts: dict[str, Series] = {}
    for name in reward_names(run):
        label = f"{name} (weight {number(run.weights[name])})" if name in run.weights else name
        series = series_of(run.metrics, f"rewards/{name}/mean", label)
        if series.values:
            parts[name] = series
    # One reward at weight 1 is the total: two lines on top of one another would only puzzle.
    only = next(iter(parts)) if len(parts) == 1 and next(iter(parts.values())).values == total.values else ""
    validation = series_of(run.metrics, "eval_reward", "total on validation rows")
    band = _band(run, "reward/min", "reward/max")
    points = len(svg_charts.thinned(total).steps)
    return RewardFigure(
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
    """The rewards that were logged, in the order of their first line."""
    keys = dict.fromkeys(key for line in run.metrics for key in line)
    return [match[1] for key in keys if (match := re.fullmatch(r"rewards/(.+)/mean", key))]


def reward_panels(run: RunRecord) -> list[Panel]:
    """Each reward by itself, with the area from its lowest to its highest completion."""
    panels = []
    for place, name in enumerate(reward_names(run)):
        series = series_of(run.metrics, f"rewards/{name}/mean", "mean")
        if not series.values:
            continue
        band = _band(run, f"rewards/{name}/min", f"rewards/{name}/max")
        svg = svg_charts.small_chart(f"each-{place}", series, band=band)
        says = "The line is the mean of the completions" + (
            ", the area goes from the lowest to the highest. One that never reaches up has nothing right to learn from."
            if band
            else "."
        )
        panels.append(Panel(name, svg, change(series.values), says))
    return panels


def panels(run: RunRecord) -> list[Panel]:
    limit = run.recipe.get("max_completion_length")
    found = []
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
        found.append(Panel(metric.title, svg, change(series.values, share=metric.share) + metric.unit, look_for))
    return found


def not_logged(shown: Sequence[Panel]) -> list[str]:
    titles = {panel.title for panel in shown}
    return [
        metric.title.split(",")[0].lower() for metric in METRICS if not metric.optional and metric.title not in titles
    ]


def always_zero(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """The titles of those that need not be there and that were 0 at every step."""
    found = []
    for metric in METRICS:
        values = series_of(metrics, metric.key).values
        if metric.optional and values and not any(values):
            found.append(
                metric.title[0].lower() + metric.title[1:] if not metric.title.startswith("KL") else metric.title
            )
    return found


def change(values: Sequence[float], *, share: bool = False) -> str:
    """Beginning and end: the means of the first and of the last tenth."""
    tenth = max(1, len(values) // 10)
    ends = [sum(part) / len(part) for part in (values[:tenth], values[-tenth:])]
    return " → ".join(percent(end) if share else number(end) for end in ends)


def _band(run: RunRecord, low: str, high: str) -> tuple[Series, Series] | None:
    lowest, highest = series_of(run.metrics, low, "lowest"), series_of(run.metrics, high, "highest")
    return (lowest, highest) if lowest.values and list(lowest.steps) == list(highest.steps) else None


def _phases(run: RunRecord) -> Iterator[Series]:
    """Seconds of a step by phase, and the rest, over the steps that logged all of them."""
    whole = series_of(run.metrics, "step_time")
    parts = {key: series_of(run.metrics, key, label) for key, label in PHASES}
    at = [dict(zip(series.steps, series.values, strict=True)) for series in parts.values()]
    steps = [step for step in whole.steps if all(step in values for values in at)]
    if not steps:
        return
    for series, values in zip(parts.values(), at, strict=True):
        yield Series(series.label, steps, [max(values[step], 0.0) for step in steps])
    taken = dict(zip(whole.steps, whole.values, strict=True))
    yield Series("the rest", steps, [max(taken[step] - sum(values[step] for values in at), 0.0) for step in steps])
