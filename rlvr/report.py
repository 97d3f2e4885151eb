"""The report of a run: one self-contained HTML page, made from the run directory alone.

Whatever a run directory lacks (it is still training, it failed, it has no evaluation, its last line is half written)
is left out with a sentence that says so. Prompts, completions and names are data from elsewhere: the template escapes
them all, and the page allows itself neither scripts nor requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr import figures, samples
from rlvr.errors import InputError
from rlvr.figures import Series
from rlvr.health import summary
from rlvr.metrics import read_metrics
from rlvr.run_directory import read_status
from rlvr.run_facts import entries, facts, series_of, steps_of
from rlvr.verdict import bars, count, is_number, mapping, number, percent, table, verdict


@dataclass(frozen=True)
class Metric:
    """A metric of TRL's that the report draws, and what a reader should look for in it."""

    key: str
    title: str
    look_for: str
    unit: str = ""
    share: bool = False
    optional: bool = False  # left out without a word where it is absent or always 0


METRICS = (
    Metric(
        "completions/mean_length",
        "Completion length",
        "Longer is fine while the reward rises with it; longer without more reward is rambling.",
        unit=" tokens",
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
        "rewards/unscored_fraction",
        "Rows without a score",
        "Left out because a verifier failed, which is no fault of the model; above 0, look at the verifier.",
        share=True,
        optional=True,
    ),
)


@dataclass(frozen=True)
class RewardFigure:
    """The reward over the steps.

    Attributes:
        only: the name of the one reward that the total consists of; empty where there are several.
        change: the total at the beginning and at the end, in words.
        last_step: the last step that was logged.
        lines_a_point: how many logged lines a point stands for.
        window: how many points the smoothed line averages; 0 without such a line.
    """

    svg: str
    only: str
    change: str
    last_step: int
    lines_a_point: int
    window: int


@dataclass(frozen=True)
class Panel:
    """One small figure with its caption."""

    title: str
    svg: str
    change: str
    look_for: str


def write_report(run_dir: Path) -> Path:
    """Writes report.html into a run directory and returns its path.

    Raises:
        InputError: the directory is not there, holds no run, or can't be written to.
    """
    if not run_dir.is_dir():
        raise InputError(f"There is no folder {run_dir}: give the one that a run wrote to (its recipe's output_dir).")
    if not any((run_dir / name).is_file() for name in ("recipe.yaml", "metrics.jsonl")):
        raise InputError(
            f"{run_dir} holds neither recipe.yaml nor metrics.jsonl, so no run has written to it: "
            "give the output_dir of a run."
        )
    path = run_dir / "report.html"
    page = _page(run_dir)
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"The report {path} can't be written: {error.strerror}.") from error
    return path


def _page(run_dir: Path) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # For our own drawings, in which matplotlib has escaped every label, and for nothing else.
    environment.filters["drawing"] = Markup
    environment.filters["count"] = count

    recipe, recipe_text = _read_recipe(run_dir / "recipe.yaml")
    metrics = read_metrics(run_dir / "metrics.jsonl")
    evaluation = _read_evaluation(run_dir / "evaluation.json")
    accuracies, sources = bars(evaluation)
    panels = _panels(recipe, metrics)
    changed = samples.changed_answers(run_dir / "completions")
    return environment.get_template("report.html.jinja").render(
        title=run_dir.resolve().name,
        subtitle=_subtitle(recipe),
        verdict=verdict(evaluation),
        state=_state(recipe, metrics, run_dir),
        health=summary(metrics, settings=recipe)[1:],
        failure=_failure(run_dir),
        table=table(evaluation),
        accuracy_chart=figures.accuracy_chart("accuracy", accuracies) if accuracies else "",
        sources_shown=len(accuracies) - 1,
        sources=sources,
        reward=_reward_figure(recipe, metrics),
        panels=panels,
        not_logged=_not_logged(panels),
        facts=facts(recipe, metrics, run_dir),
        recipe_text=recipe_text,
        training_answers=samples.training_answers(run_dir / "completions"),
        gained=changed[0] if changed else None,
        lost=changed[1] if changed else None,
    )


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_recipe(path: Path) -> tuple[Mapping[str, Any], str]:
    """The recipe as a mapping (empty where it can't be read), and as text without what opens an account."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}, ""
    try:
        content = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError):
        content = None
    shown = re.sub(r"(?m)^([\s-]*[\w-]*(?:hub_token|password|secret|api_key)\s*:).*$", r"\1 (not shown)", text)
    return mapping(content), shown


def _read_evaluation(path: Path) -> Mapping[str, Any] | None:
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8", errors="replace"))) or None
    except (OSError, ValueError):
        return None


# ── How the run went ────────────────────────────────────────────────────────────────────────────────────────────────


def _subtitle(recipe: Mapping[str, Any]) -> str:
    model, task = recipe.get("model_name_or_path"), mapping(recipe.get("task")).get("name")
    return f"{model}, trained on {task} with GRPO" if model and task else ""


def _state(recipe: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], run_dir: Path) -> str:
    """A sentence where the run isn't whole, else nothing."""
    if not metrics:
        return "No training step has been logged."
    last = f"the last step logged is {steps_of(recipe, metrics)}"
    status = mapping(read_status(run_dir)).get("status")
    if status == "interrupted":
        return f"Training was interrupted: {last}. The same command continues it."
    if status == "running":
        return f"Training has not come to its end: {last}."
    wanted = recipe.get("max_steps")
    if status is None and isinstance(wanted, int) and metrics[-1]["step"] < wanted:
        return f"Training has not come to its end: {last}."
    return ""


def _failure(run_dir: Path) -> tuple[str, str] | None:
    """A sentence on the failure.txt of a run, and its whole text; None where nothing failed."""
    path, log = run_dir / "failure.txt", run_dir / "metrics.jsonl"
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        resumed = log.is_file() and log.stat().st_mtime > path.stat().st_mtime
    except OSError:
        return None
    if not text:
        return None
    what = "The run failed once and went on later" if resumed else "The run failed"
    return f"{what}: {samples.shortened(text.splitlines()[-1], 500)}", text


def _reward_figure(recipe: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> RewardFigure | None:
    total = series_of(metrics, "reward", "total")
    if not total.values:
        return None
    weights = {
        re.split(r"[/.:]", str(entry.get("name")).removesuffix(".py"))[-1]: entry.get("weight")
        for entry in entries(recipe.get("rewards"))
    }
    parts: dict[str, Series] = {}
    for key in dict.fromkeys(key for line in metrics for key in line):
        if match := re.fullmatch(r"rewards/(.+)/mean", key):
            name, weight = match[1], weights.get(match[1])
            series = series_of(metrics, key, f"{name} (weight {number(weight)})" if is_number(weight) else name)
            if series.values:
                parts[name] = series
    # One reward at weight 1 is the total: two lines on top of one another would only puzzle.
    only = next(iter(parts)) if len(parts) == 1 and next(iter(parts.values())).values == total.values else ""
    validation = series_of(metrics, "eval_reward", "total on validation rows")
    points = len(figures.thinned(total).steps)
    return RewardFigure(
        svg=figures.reward_chart(
            "reward", total, [] if only else list(parts.values()), validation if validation.values else None
        ),
        only=only,
        change=_change(total.values),
        last_step=int(total.steps[-1]),
        lines_a_point=-(-len(total.steps) // points),
        window=figures.smoothing_window(points) if points > 2 else 0,
    )


def _panels(recipe: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> list[Panel]:
    limit = recipe.get("max_completion_length")
    panels = []
    for metric in METRICS:
        series = series_of(metrics, metric.key, metric.title)
        if not series.values or (metric.optional and not any(series.values)):
            continue
        svg = figures.small_chart(re.sub(r"\W", "-", metric.key), series, share=metric.share)
        look_for = metric.look_for.replace("{limit}", f" of {limit} tokens" if isinstance(limit, int) else "")
        panels.append(Panel(metric.title, svg, _change(series.values, share=metric.share) + metric.unit, look_for))
    return panels


def _not_logged(panels: Sequence[Panel]) -> list[str]:
    shown = {panel.title for panel in panels}
    return [
        metric.title.split(",")[0].lower() for metric in METRICS if not metric.optional and metric.title not in shown
    ]


def _change(values: Sequence[float], *, share: bool = False) -> str:
    """Beginning and end: the means of the first and of the last tenth."""
    tenth = max(1, len(values) // 10)
    ends = [sum(part) / len(part) for part in (values[:tenth], values[-tenth:])]
    return " → ".join(percent(end) if share else number(end) for end in ends)
