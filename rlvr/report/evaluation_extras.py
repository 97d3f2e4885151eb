"""What an evaluation may have measured beside one greedy answer: accuracy by shots (sweep.json), and pass@k.

A part that is missing or malformed counts as not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlvr.artifacts.evaluation_summary import MODELS, Bar, interval_of, score_of
from rlvr.formatting import is_number, mapping, percent, points
from rlvr.report import svg_charts

ABSENT = "–"


@dataclass(frozen=True)
class Sweep:
    """A table (a row for each number of shots, a column for each model) and its figure; warnings in words."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    svg: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Samples:
    """pass@k: how it was sampled, the header, and a row for each k."""

    how: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sweep(content: Mapping[str, Any] | None) -> Sweep | None:
    """The content of a sweep.json (see `rlvr.evaluation.shot_sweep.write_sweep`) for the page."""
    listed = mapping(content).get("points")
    found = [
        (int(point["shots"]), point)
        for point in (map(mapping, listed) if isinstance(listed, list) else [])
        if is_number(point.get("shots")) and any(score_of(point, name) for name in MODELS)
    ]
    if not found:
        return None
    found.sort(key=lambda pair: pair[0])
    models = tuple(name for name in MODELS if any(score_of(point, name) for _, point in found))
    both = len(models) == len(MODELS)
    rows = []
    lines: list[tuple[str, list[int], list[Bar]]] = [(name, [], []) for name in models]
    for place, (shots, point) in enumerate(found):
        cells = [f"{shots:,}"]
        for name, places, bars in lines:
            score = score_of(point, name)
            cells.append(_with_interval(score) if score else ABSENT)
            if score:
                places.append(place)
                bars.append(Bar(score["accuracy"], score["interval"]["low"], score["interval"]["high"]))
        if both:
            cells.append(_gain(point.get("difference")))
        rows.append(tuple(cells))
    svg = svg_charts.sweep_chart("sweep", [f"{shots:,}" for shots, _ in found], lines)
    return Sweep((*models, *(["change"] if both else [])), tuple(rows), svg, warnings(content))


def samples(evaluation: Mapping[str, Any] | None) -> Samples | None:
    """The section `pass_at_k` of an evaluation.json for the page."""
    found = mapping(mapping(evaluation).get("pass_at_k"))
    models = [name for name in MODELS if mapping(found.get(name))]
    if not models:
        return None
    gains = mapping(found.get("difference"))
    rows = []
    for k in dict.fromkeys(k for name in models for k in mapping(found[name])):
        cells = [f"pass@{k}"]
        for name in models:
            value = mapping(found[name][k]) if k in found[name] else {}
            interval = interval_of(value)
            known = is_number(value.get("value")) and interval
            cells.append(_with_interval({"accuracy": value["value"], "interval": interval}) if known else ABSENT)
        rows.append((*cells, *([_gain(gains.get(k))] if gains else [])))
    how = f"{found.get('samples', 'Several')} samples a row, {found.get('decoding', 'with sampling')}"
    return Samples(how, (*models, *(["change"] if gains else [])), tuple(rows))


def warnings(content: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What an evaluation says against itself."""
    said = mapping(content).get("warnings")
    return tuple(warning for warning in said if isinstance(warning, str)) if isinstance(said, list) else ()


def _with_interval(score: Mapping[str, Any]) -> str:
    interval = score["interval"]
    return f"{percent(score['accuracy'])} ({100 * interval['low']:.1f} … {100 * interval['high']:.1f})"


def _gain(difference: Any) -> str:
    gain = mapping(difference)
    interval = interval_of(gain)
    if not interval or not is_number(gain.get("points")):
        return ABSENT
    return f"{points(gain['points'])} ({points(interval['low'])} … {points(interval['high'])})"
