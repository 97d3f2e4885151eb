"""Draw the charts of a report as SVG elements for an HTML page.

Labels are text in the page's font. Colours are the page's CSS variables, so that one drawing fits light and dark mode:
--ink, --muted, --grid, --base, --trained and --series-0 … --series-5. An inch of a figure is 100 pixels of the page.
"""

from __future__ import annotations

import html
import json
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from statistics import fmean
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure  # not pyplot, which holds state for the whole process
from matplotlib.ticker import MaxNLocator

from rlvr.artifacts.evaluation_summary import Bar

# Placeholders for CSS variables, which replace them in matplotlib's output.
INK, MUTED, GRID, BASE, TRAINED = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05"
SERIES = tuple(f"#0a0b1{number}" for number in range(6))
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    BASE: "var(--base)",
    TRAINED: "var(--trained)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES)},
}
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    # Labels come from recipes and data: a dollar sign does not start a formula.
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.edgecolor": GRID,
    "axes.prop_cycle": f"cycler('color', ['{INK}'])",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}
WHISKER: dict[str, Any] = {"ecolor": INK, "elinewidth": 1.2, "capsize": 3, "capthick": 1.2}  # of an interval
LEGEND: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 4, "borderaxespad": 0}
MAX_POINTS = 300  # in a series; more are indistinguishable at this size


@dataclass(frozen=True)
class Series:
    """One metric over the steps of a run. All values are finite."""

    label: str
    steps: Sequence[float]
    values: Sequence[float]


def thin_out(series: Series, limit: int = MAX_POINTS) -> Series:
    """Reduce a series to at most `limit` points, by means of equally many neighbours."""
    size = -(-len(series.steps) // limit)
    if size <= 1:
        return series
    starts = range(0, len(series.steps), size)
    steps, values = ([fmean(part[at : at + size]) for at in starts] for part in (series.steps, series.values))
    return Series(series.label, steps, values)


def smoothing_window(points: int) -> int:
    """Points that the smoothed line averages: about a tenth of all, odd, at least 3."""
    return max(3, points // 10 | 1)


def smooth(values: Sequence[float]) -> list[float]:
    """The mean around each point (`smoothing_window`), of fewer neighbours at the ends."""
    reach = smoothing_window(len(values)) // 2
    return [fmean(values[max(0, at - reach) : at + reach + 1]) for at in range(len(values))]


def accuracy_chart(name: str, rows: Sequence[tuple[str, Bar | None, Bar | None]]) -> str:
    """Draw horizontal bars with 95 % intervals.

    Args:
        name: of the chart; makes its ids unique within a page.
        rows: label, base and trained of each group of bars, from the top down.
    """
    single = all(base is None or trained is None for _, base, trained in rows)
    height = 0.5 if single else 0.36
    with _style(name):
        figure, axes = _figure(5.2, 0.45 + 0.62 * len(rows))
        for position, (_, base, trained) in enumerate(rows):
            for bar, colour, side in ((base, BASE, -1), (trained, TRAINED, 1)):
                if bar is not None:
                    at, errors = position + (0 if single else side * height * 0.54), [[end] for end in _errors(bar)]
                    bars = axes.barh(at, 100 * bar.accuracy, height, xerr=errors, color=colour, error_kw=WHISKER)
                    axes.bar_label(bars, [f"{100 * bar.accuracy:.1f} %"], padding=5)
        labels = [label if len(label) <= 28 else f"{label[:27]}…" for label, _, _ in rows]
        axes.set_yticks(range(len(rows)), labels, color=INK)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        # Room beyond 100 for the label of a full bar.
        axes.set_xlim(0, 116)
        axes.set_xticks(range(0, 101, 25), [f"{tick} %" for tick in range(0, 101, 25)])
        axes.grid(axis="x")
        axes.spines["bottom"].set_visible(False)
        return _svg(figure, name)


def line_chart(
    name: str,
    lines: Sequence[Series],
    *,
    share: bool = False,
    band: tuple[Series, Series] | None = None,
    points: Series | None = None,
    wide: bool = False,
    legend: bool = False,
) -> str:
    """Draw several lines on the same axes: a metric of one or of several runs, or the rewards of a run.

    Args:
        share: the values are shares (0..1), drawn in percent.
        band: two series; the area between them is drawn.
        points: drawn without a line.
        legend: name the lines. The first one is the total of the others, and thicker.
    """
    if share:
        lines = [Series(line.label, line.steps, [100 * value for value in line.values]) for line in lines]
    with _style(name):
        figure, axes = _figure(10.4, 3.4) if wide else _figure(3.3, 1.75)
        if band is not None:
            low, high = map(thin_out, band)
            axes.fill_between(low.steps, low.values, high.values, color=SERIES[0], alpha=0.13, linewidth=0)
        for number, line in enumerate(lines):
            width = 2.4 if legend and number == 0 else 1.6
            # The first line is on top. A line that equals an earlier one lies on it, dashed, so that both are seen.
            is_equal = any((line.steps, line.values) == (other.steps, other.values) for other in lines[:number])
            layer = 3 + number / 10 if is_equal else 3 - number / 10
            _draw(axes, line, SERIES[number % len(SERIES)], width, layer, (0, (4, 4)) if is_equal else "solid")
        if points is not None:
            axes.plot(points.steps, points.values, color=INK, linestyle="none", marker="D", label=points.label)
        # A share that is always 0 is a line at the bottom, not in the middle of an arbitrary axis.
        values = [value for line in (*lines, *(band or ())) for value in line.values]
        _limit(axes, values, steps=8 if wide else 4, least_top=10 if share else 0)
        axes.grid(axis="y")
        if share:
            axes.yaxis.set_major_formatter("{x:g} %")
        if legend:
            axes.set_xlabel("step")
            if len(lines) > 1 or points is not None:
                axes.legend(**LEGEND, handlelength=1.4)
        return _svg(figure, name, [*lines, *([points] if points else []), *(band or ())], " %" if share else "")


def stacked_chart(name: str, parts: Sequence[Series]) -> str:
    """Draw stacked areas of parts with the same steps, the first at the bottom."""
    thin = [thin_out(part, 150) for part in parts]
    with _style(name):
        figure, axes = _figure(3.3, 1.95)
        colours = [SERIES[number % len(SERIES)] for number in range(len(parts) - 1)] + [GRID]
        axes.stackplot(
            thin[0].steps,
            [part.values for part in thin],
            colors=colours,
            labels=[part.label for part in parts],
            linewidth=0,
            step="mid" if len(thin[0].steps) < 3 else None,
        )
        _limit(axes, [sum(values) for values in zip(*(part.values for part in thin), strict=True)], steps=4)
        axes.grid(axis="y")
        axes.legend(**LEGEND, handlelength=0.8, handletextpad=0.4, columnspacing=0.8, fontsize=8)
        return _svg(figure, name, parts, " s")


@contextmanager
def _style(name: str) -> Iterator[None]:
    """Apply the charts' matplotlib settings, and restore the process's settings afterwards."""
    # On a new machine, matplotlib builds a font cache and logs that.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # The salt makes the ids, and so the page, reproducible.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # Matplotlib measures with its own font, which lacks Chinese, for example. The page's font has it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _errors(bar: Bar) -> tuple[float, float]:
    """The lengths of the interval below and above an accuracy, in percent."""
    return max(0.0, 100 * (bar.accuracy - bar.interval.low)), max(0.0, 100 * (bar.interval.high - bar.accuracy))


def _draw(axes: Axes, series: Series, colour: str, width: float, layer: float, style: Any = "solid") -> None:
    series = thin_out(series)
    smoothed = len(series.values) > 2
    axes.plot(
        series.steps,
        series.values,
        color=colour,
        alpha=0.5,
        linestyle="none",
        marker="o",
        markersize=2.2 if len(series.values) > 100 else 4,
        markeredgewidth=0,
        clip_on=False,
        zorder=layer,
        label=None if smoothed else series.label,
    )
    if smoothed:
        line = smooth(series.values)
        axes.plot(
            series.steps, line, color=colour, linewidth=width, linestyle=style, zorder=layer + 0.05, label=series.label
        )


def _readout(axes: Axes, lines: Sequence[Series], unit: str) -> str:
    """Data for the values that the page's script shows under the pointer.

    The position of the plot in the drawing (as shares of width and height), the range of the x axis, and the name and
    the points of each line. Call it after drawing: the layout is unknown before.
    """
    box = axes.get_position()
    content = {
        "box": [round(share, 4) for share in (box.x0, box.x1, 1 - box.y1, 1 - box.y0)],
        "range": [round(float(end), 4) for end in axes.get_xlim()],
        "unit": unit,
        "lines": [
            [line.label, *([_rounded(value) for value in values] for values in (line.steps, line.values))]
            for line in map(thin_out, lines)
            if line.steps
        ],
    }
    return json.dumps(content, separators=(",", ":"))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 10_000 else round(value)


def _limit(axes: Axes, values: Sequence[float], *, steps: int, least_top: float = 0.0) -> None:
    """Set about `steps` ticks on the x axis; start the y axis at 0 unless a value is negative."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=steps, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    if min(values) >= 0:
        axes.set_ylim(0, max(1.12 * max(values), least_top) or 1)


def _svg(figure: Figure, name: str, lines: Sequence[Series] = (), unit: str = "") -> str:
    """Render the figure as an `<svg>` element for embedding.

    Args:
        lines: their values appear under the pointer, with `unit`.
    """
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # The page scales it and knows the name spaces; the style sheet would apply to the whole page.
    text = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text, count=1)
    text = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    # No reference uses the ids of groups. The other ids are unique only within a figure.
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    # "font: 9px 'DejaVu Sans', …" is matplotlib's font: keep the size, use the page's family.
    text = re.sub(r'style="font: [^;"]*?([\d.]+px) [^;"]*', r'style="font-size: \1', text)
    text = re.sub(r"font-family: [^;\"]*; ", "", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    if lines:
        readout = html.escape(_readout(figure.axes[0], lines, unit))
        text = text.replace("<svg ", f'<svg data-readout="{readout}" ', 1)
    return re.sub(r"\n\s*", "\n", text).strip()
