"""The text format in which Prometheus is told figures: https://prometheus.io/docs/instrumenting/exposition_formats."""

from __future__ import annotations

import math
from collections.abc import Iterable


def sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    """One figure, by its name and labels."""
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{pairs}}} {_number(value)}" if pairs else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    # Half a character, as a model may write one, would leave the whole page unwritable.
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").encode(errors="replace").decode()


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
