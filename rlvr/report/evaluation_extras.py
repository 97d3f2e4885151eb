"""Tables of an evaluation besides greedy accuracy: accuracy by number of shots (sweep.json), and pass@k."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.artifacts.evaluation import MODELS, Estimate, Evaluation, Sweep
from rlvr.artifacts.evaluation_summary import gain_cell, score_cell
from rlvr.report import svg_charts


@dataclass(frozen=True)
class ExtraTable:
    """A table with a column for each model, and the change if both were measured; `how` says what was measured."""

    header: tuple[str, ...]
    rows: list[list[str]]
    how: str = ""
    svg: str = ""


def sweep(content: Sweep) -> ExtraTable | None:
    """A row for each number of shots."""
    measured = sorted((point for point in content.points if point.scores), key=lambda point: point.shots or 0)
    models = [name for name in MODELS if any(name in point.scores for point in measured)]
    if not models:
        return None
    both = len(models) == len(MODELS)
    rows = [
        [
            f"{point.shots or 0:,}",
            *(score_cell(point.scores.get(name)) for name in models),
            *([gain_cell(point.difference)] if both else []),
        ]
        for point in measured
    ]
    lines = []
    for name in models:
        places = [place for place, point in enumerate(measured) if name in point.scores]
        lines.append((name, places, [measured[place].scores[name] for place in places]))
    svg = svg_charts.sweep_chart("sweep", [row[0] for row in rows], lines)
    return ExtraTable((*models, *(["change"] if both else [])), rows, svg=svg)


def pass_at_k(evaluation: Evaluation) -> ExtraTable | None:
    """A row for each k."""
    section = evaluation.pass_at_k
    if section is None or not section.rates:
        return None
    gains = section.difference
    rows = []
    for k in dict.fromkeys(k for values in section.rates.values() for k in values):
        rates = [values.get(k) for values in section.rates.values()]
        cells = [score_cell(Estimate(rate.value, rate.interval) if rate else None) for rate in rates]
        rows.append([f"pass@{k}", *cells, *([gain_cell(gains.get(k))] if gains else [])])
    how = f"{section.samples} samples a row, {section.decoding}"
    return ExtraTable((*section.rates, *(["change"] if gains else [])), rows, how)
