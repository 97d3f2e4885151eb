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
class ExtraTable:
    """A table with a column for each model, and the change if both were measured; `how` says what was measured."""

    header: tuple[str, ...]
    rows: list[list[str]]
    how: str = ""
    svg: str = ""


def sweep(content: Mapping[str, Any] | None) -> ExtraTable | None:
    """Read the content of a sweep.json (`rlvr.evaluation.shot_sweep.write_sweep`): a row for each number of shots."""
    listed = mapping(content).get("points")
    known = map(mapping, listed) if isinstance(listed, list) else []
    by_shots = [
        (int(point["shots"]), {name: score for name in MODELS if (score := score_of(point, name))}, point)
        for point in known
        if is_number(point.get("shots"))
    ]
    by_shots = sorted((entry for entry in by_shots if entry[1]), key=lambda entry: entry[0])
    models = [name for name in MODELS if any(name in scores for _, scores, _ in by_shots)]
    if not models:
        return None
    both = len(models) == len(MODELS)
    rows = [
        [
            f"{shots:,}",
            *(score_cell(scores.get(name)) for name in models),
            *([gain_cell(point.get("difference"))] if both else []),
        ]
        for shots, scores, point in by_shots
    ]
    lines = []
    for name in models:
        measured = [(place, scores[name]) for place, (_, scores, _) in enumerate(by_shots) if name in scores]
        bars = [Bar(score["accuracy"], score["interval"]["low"], score["interval"]["high"]) for _, score in measured]
        lines.append((name, [place for place, _ in measured], bars))
    svg = svg_charts.sweep_chart("sweep", [row[0] for row in rows], lines)
    return ExtraTable((*models, *(["change"] if both else [])), rows, svg=svg)


def pass_at_k(evaluation: Mapping[str, Any] | None) -> ExtraTable | None:
    """Read the section `pass_at_k` of an evaluation.json: a row for each k."""
    section = mapping(mapping(evaluation).get("pass_at_k"))
    models = {name: values for name in MODELS if (values := mapping(section.get(name)))}
    if not models:
        return None
    gains = mapping(section.get("difference"))
    rows = []
    for k in dict.fromkeys(k for values in models.values() for k in values):
        cells = [mapping(values.get(k)) for values in models.values()]
        row = [f"pass@{k}", *(score_cell({**cell, "accuracy": cell.get("value")}) for cell in cells)]
        rows.append([*row, *([gain_cell(gains.get(k))] if gains else [])])
    how = f"{section.get('samples', 'Several')} samples a row, {section.get('decoding', 'with sampling')}"
    return ExtraTable((*models, *(["change"] if gains else [])), rows, how)


def warnings(content: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The warnings of an evaluation about itself."""
    listed = mapping(content).get("warnings")
    return tuple(warning for warning in listed if isinstance(warning, str)) if isinstance(listed, list) else ()


def score_cell(score: Mapping[str, Any] | None) -> str:
    """An accuracy with its interval."""
    interval = interval_of(mapping(score))
    if score is None or not interval or not is_number(score.get("accuracy")):
        return ABSENT
    return f"{percent(score['accuracy'])} ({100 * interval['low']:.1f} … {100 * interval['high']:.1f})"


def gain_cell(difference: Any) -> str:
    """A difference in points with its interval."""
    gain = mapping(difference)
    interval = interval_of(gain)
    if not interval or not is_number(gain.get("points")):
        return ABSENT
    return f"{points(gain['points'])} ({points(interval['low'])} … {points(interval['high'])})"
