"""Write the page that compares runs: paired differences, differing recipe keys, curves.

Each run is compared with the first one. If two runs answered the same held-out problems, the difference is paired,
problem by problem; otherwise the page says why they can't be compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.artifacts.evaluation_summary import score_of, verdict
from rlvr.errors import InputError
from rlvr.formatting import count, mapping, percent, points, shorten
from rlvr.health import summary
from rlvr.report import svg_charts
from rlvr.report.curves import METRICS, Panel, change, reward_names
from rlvr.report.page import template, write_page
from rlvr.report.run_facts import facts, series_of
from rlvr.report.run_reader import RunRecord, read_run, short_name

MAX_RUNS = len(svg_charts.SERIES)
# Paths and secrets are no differences between runs.
NOT_COMPARED = re.compile(r"output_dir|run_name|.*(hub_token|password|secret|api_key).*")
ABSENT = "–"


@dataclass(frozen=True)
class PairedVerdict:
    """One run against the first; `kind` is as in `rlvr.artifacts.evaluation_summary.EvaluationVerdict`."""

    kind: str
    label: str
    sentence: str


def write_comparison(run_dirs: Sequence[Path], path: Path | None = None) -> Path:
    """Write the page that compares runs, by default as comparison.html in the last directory; return its path.

    Raises:
        InputError: of kind "number-of-runs", "duplicate-run", "not-a-run" or "unwritable".
    """
    if not 2 <= len(run_dirs) <= MAX_RUNS:
        message = f"{len(run_dirs)} runs can't be compared on one page. Give 2 to {MAX_RUNS}."
        raise InputError(message, kind="number-of-runs")
    paths = [folder.resolve() for folder in run_dirs]
    for folder, path_of_run in zip(run_dirs, paths, strict=True):
        if paths.count(path_of_run) > 1:
            raise InputError(f"{folder} is given twice. Give different runs.", kind="duplicate-run", path=folder)
    runs = [read_run(folder) for folder in run_dirs]
    names = _names(runs)
    page = template("comparison.html.jinja").render(
        title=" and ".join(names) if len(names) == 2 else f"{len(names)} runs, compared with {names[0]}",
        names=names,
        runs=runs,
        verdicts=[_compare(names[0], runs[0], name, run) for name, run in zip(names[1:], runs[1:], strict=True)],
        rows=_rows(runs),
        differences=list(_differences([_settings(run) for run in runs], [_defaults(run) for run in runs])),
        versions=list(_differences([_versions(run) for run in runs])),
        reward=_panel(runs, names, "reward", "Reward", "", wide=True),
        panels=_panels(runs, names),
        health=[summary(run.metrics, settings=run.recipe)[1:] for run in runs],
    )
    return write_page(run_dirs[-1] / "comparison.html" if path is None else path, page)


def _names(runs: Sequence[RunRecord]) -> list[str]:
    """The shortest ends of the runs' paths that differ."""
    parts = [run.folder.resolve().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(run.folder) for run in runs]


# ── Accuracy ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _compare(first: str, before: RunRecord, name: str, after: RunRecord) -> PairedVerdict:
    pairs = _pairs(before, after)
    if isinstance(pairs, str):
        return PairedVerdict(
            "unknown", "Not comparable", f"{name} and {first} can't be compared problem by problem: {pairs}."
        )
    from rlvr.evaluation import paired_difference

    difference = paired_difference([one for one, _ in pairs], [other for _, other in pairs])
    low, high = difference.interval.low, difference.interval.high
    shares = [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
    sentence = (
        f"On the same {count(len(pairs), 'held-out problem')} {name} is right in {percent(shares[1])}, {first} in "
        f"{percent(shares[0])} ({points(difference.points)} points, 95 % interval {points(low)} … {points(high)}; "
        f"{difference.gained:,} right only in {name}, {difference.lost:,} only in {first})"
    )
    if low > 0:
        return PairedVerdict("better", f"{name} is better", f"{sentence}.")
    if high < 0:
        return PairedVerdict("worse", f"{name} is worse", f"{sentence}.")
    return PairedVerdict(
        "unclear", "No clear difference", f"{sentence}: the interval includes 0, so this may be chance."
    )


def _pairs(before: RunRecord, after: RunRecord) -> list[tuple[bool, bool]] | str:
    """Whether each of the two trained models was right, by problem; or the reason why there are no pairs."""
    for key in ("task", "split", "metric", "decoding"):
        one, other = (mapping(run.evaluation).get(key) for run in (before, after))
        if one != other:
            return f"their evaluations differ in {key} ({_shown(one)} and {_shown(other)})"
    records = [_records(run) for run in (before, after)]
    if not all(records):
        return "one of them has no held-out answers of its trained model"
    pairs = []
    for row in records[0].keys() & records[1].keys():
        (prompt, right), (other_prompt, other_right) = records[0][row], records[1][row]
        if prompt == other_prompt and isinstance(right, bool) and isinstance(other_right, bool):
            pairs.append((right, other_right))
    return pairs or "they were evaluated on different problems"


def _records(run: RunRecord) -> dict[Any, tuple[str, Any]]:
    from rlvr.data.io import read_rows

    try:
        rows = read_rows(run.folder / "completions" / "evaluation_trained.parquet")
    except InputError:
        return {}
    return {
        row["row"]: (repr(row["prompt"]), row["correct"]) for row in rows if {"row", "prompt", "correct"} <= row.keys()
    }


def _rows(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """The results table: a name, and a cell for each run."""

    def score(run: RunRecord, name: str) -> str:
        result = score_of(run.evaluation, name)
        if result is None:
            return ABSENT
        interval = result["interval"]
        return f"{percent(result['accuracy'])} ({100 * interval['low']:.1f} … {100 * interval['high']:.1f})"

    def gain(run: RunRecord) -> str:
        difference = mapping(mapping(run.evaluation).get("difference"))
        interval = mapping(difference.get("interval"))
        try:
            return f"{points(difference['points'])} ({points(interval['low'])} … {points(interval['high'])})"
        except (KeyError, TypeError):
            return ABSENT

    def reward(run: RunRecord) -> str:
        values = series_of(run.metrics, "reward").values
        return change(values) if values else ABSENT

    known = [dict(facts(run.recipe, run.metrics, run.folder)) for run in runs]

    def fact(name: str) -> list[str]:
        return ["; ".join(facts.get(name, [])) or ABSENT for facts in known]

    return [
        ("verdict", [verdict(run.evaluation).label for run in runs]),
        ("base (95 % interval)", [score(run, "base") for run in runs]),
        ("trained (95 % interval)", [score(run, "trained") for run in runs]),
        ("gain in points (95 % interval)", [gain(run) for run in runs]),
        ("reward, first to last tenth", [reward(run) for run in runs]),
        ("steps", fact("Steps")),
        ("time", fact("Time")),
        ("complete", [run.state or "yes" for run in runs]),
    ]


# ── Recipes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _settings(run: RunRecord) -> dict[str, str]:
    return {key: value for key, value in _flat("", run.recipe) if not NOT_COMPARED.fullmatch(key)}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every leaf with its dotted key. Entries of a list with names, such as rewards, use these as keys."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) and item.get("name") for item in value):
        for item in value:
            rest = {key: inner for key, inner in item.items() if key != "name"}
            yield from _flat(f"{prefix}.{short_name(str(item['name']))}", rest or "listed")
    else:
        yield prefix, _shown(value)


def _shown(value: Any) -> str:
    return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), 300)


def _versions(run: RunRecord) -> dict[str, str]:
    try:
        content = json.loads((run.folder / "versions.json").read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {str(name): _shown(version) for name, version in mapping(content).items()}


def _defaults(run: RunRecord) -> dict[str, str]:
    """The defaults of the keys that a recipe omits; none if the run had other versions of TRL or transformers."""
    from rlvr.artifacts import directory
    from rlvr.config import schema

    recorded, installed = _versions(run), directory.versions()
    if not run.recipe or any(recorded.get(name) != installed.get(name) for name in ("trl", "transformers")):
        return {}
    return {key: _shown(value) for key, value in schema.defaults().items()}


def _differences(
    settings: Sequence[Mapping[str, str]], defaults: Sequence[Mapping[str, str]] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the keys whose values differ between runs. A default counts as a value, whether it is written or not."""
    defaults = defaults or [{} for _ in settings]
    for key in dict.fromkeys(key for one in settings for key in one):
        values = [one.get(key, default.get(key, ABSENT)) for one, default in zip(settings, defaults, strict=True)]
        if len(set(values)) > 1:
            explicit = [key in one or value == ABSENT for one, value in zip(settings, values, strict=True)]
            yield key, [value if own else f"{value} (default)" for value, own in zip(values, explicit, strict=True)]


# ── Curves ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _panels(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Panel]:
    rewards = dict.fromkeys(name for run in runs for name in reward_names(run))
    panels = [_panel(runs, names, f"rewards/{name}/mean", name, f"each-{place}") for place, name in enumerate(rewards)]
    for metric in METRICS:
        lines = [series_of(run.metrics, metric.key) for run in runs]
        if not metric.optional or any(any(line.values) for line in lines):
            panels.append(_panel(runs, names, metric.key, metric.title, share=metric.share, unit=metric.unit))
    return [panel for panel in panels if panel is not None]


def _panel(
    runs: Sequence[RunRecord],
    names: Sequence[str],
    key: str,
    title: str,
    name: str = "",
    *,
    share: bool = False,
    unit: str = "",
    wide: bool = False,
) -> Panel | None:
    """Draw one metric of all runs. A run without the metric keeps its colour and has no line."""
    lines = [series_of(run.metrics, key, run_name) for run, run_name in zip(runs, names, strict=True)]
    if not any(line.values for line in lines):
        return None
    changes = [change(line.values, share=share) + unit if line.values else ABSENT for line in lines]
    svg = svg_charts.overlay_chart(name or re.sub(r"\W", "-", key), lines, share=share, wide=wide)
    return Panel(title, svg, "", "; ".join(f"{run}: {text}" for run, text in zip(names, changes, strict=True)))
