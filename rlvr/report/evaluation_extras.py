"""The table of pass@k."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.artifacts.evaluation import Estimate, Evaluation
from rlvr.artifacts.evaluation_summary import gain_cell, score_cell


@dataclass(frozen=True)
class ExtraTable:
    """A table with a column for each model, and the change if both were measured; `how` says what was measured."""

    header: tuple[str, ...]
    rows: list[list[str]]
    how: str


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
