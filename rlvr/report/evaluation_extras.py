"""Tables of an evaluation besides greedy accuracy: accuracy by number of shots (sweep.json), and pass@k.

A missing or malformed part counts as not measured.
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
class ShotTable:
    """Accuracy by number of shots: a row for each number, a column for each model, a chart, and warnings."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    svg: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class PassAtK:
    """pass@k: how the answers were sampled, the header, and a row for each k."""

    how: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sweep(content: Mapping[str, Any] | None) -> ShotTable | None:
    """Read the content of a sweep.json (`rlvr.evaluation.shot_sweep.write_sweep`)."""
    listed = mapping(content).get("points")
    by_shots = [
        (int(point["shots"]), point)
        for point in (map(mapping, listed) if isinstance(listed, list) else [])
        if is_number(point.get("shots")) and any(score_of(point, name) for name in MODELS)
    ]
    if not by_shots:
        return None
    by_shots.sort(key=lambda pair: pair[0])
    models = tuple(name for name in MODELS if any(score_of(point, name) for _, point in by_shots))
    both = len(models) == len(MODELS)
    rows = []
    lines: list[tuple[str, list[int], list[Bar]]] = [(name, [], []) for name in models]
    for place, (shots, point) in enumerate(by_shots):
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
    svg = svg_charts.sweep_chart("sweep", [f"{shots:,}" for shots, _ in by_shots], lines)
    return ShotTable((*models, *(["change"] if both else [])), tuple(rows), svg, warnings(content))


def pass_at_k(evaluation: Mapping[str, Any] | None) -> PassAtK | None:
    """Read the section `pass_at_k` of an evaluation.json."""
    section = mapping(mapping(evaluation).get("pass_at_k"))
    models = [name for name in MODELS if mapping(section.get(name))]
    if not models:
        return None
    gains = mapping(section.get("difference"))
    rows = []
    for k in dict.fromkeys(k for name in models for k in mapping(section[name])):
        cells = [f"pass@{k}"]
        for name in models:
            value = mapping(section[name][k]) if k in section[name] else {}
            interval = interval_of(value)
            known = is_number(value.get("value")) and interval
            cells.append(_with_interval({"accuracy": value["value"], "interval": interval}) if known else ABSENT)
        rows.append((*cells, *([_gain(gains.get(k))] if gains else [])))
    how = f"{section.get('samples', 'Several')} samples a row, {section.get('decoding', 'with sampling')}"
    return PassAtK(how, (*models, *(["change"] if gains else [])), tuple(rows))


def warnings(content: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The warnings of an evaluation about itself."""
    listed = mapping(content).get("warnings")
    return tuple(warning for warning in listed if isinstance(warning, str)) if isinstance(listed, list) else ()


def _with_interval(score: Mapping[str, Any]) -> str:
    interval = score["interval"]
    return f"{percent(score['accuracy'])} ({100 * interval['low']:.1f} … {100 * interval['high']:.1f})"


def _gain(difference: Any) -> str:
    gain = mapping(difference)
    interval = interval_of(gain)
    if not interval or not is_number(gain.get("points")):
        return ABSENT
    return f"{points(gain['points'])} ({points(interval['low'])} … {points(interval['high'])})"
