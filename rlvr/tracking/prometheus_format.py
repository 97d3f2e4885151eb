"""Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats."""

from __future__ import annotations

import math
from collections.abc import Iterable


def sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    """Format one sample."""
    pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
    return f"{name}{{{pairs}}} {_format_number(value)}" if pairs else f"{name} {_format_number(value)}"


def _escape(text: str) -> str:
    # A model may write a lone surrogate, which can't be encoded.
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").encode(errors="replace").decode()


def _format_number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
