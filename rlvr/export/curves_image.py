"""The curves of a run as one image for its model card; the report has more, which react to the pointer."""

from __future__ import annotations

from io import BytesIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure  # not pyplot, which holds state for the whole process

from rlvr.health.run_metrics import logged_rewards
from rlvr.report.run_reader import RunRecord, series_of
from rlvr.report.svg_charts import Series, smooth, thin_out

_METRICS = (("completions/mean_length", "Completion length, tokens"), ("entropy", "Entropy, nats"))


def draw_curves(run: RunRecord) -> bytes | None:
    """A PNG of the rewards, the completion length and the entropy over the steps; None if nothing was logged."""
    rewards = [series_of(run.metrics, "reward", "total")]
    rewards += [series_of(run.metrics, f"rewards/{name}/mean", name) for name in logged_rewards(run.metrics)]
    panels = [("Reward", rewards), *((title, [series_of(run.metrics, key)]) for key, title in _METRICS)]
    panels = [(title, [line for line in lines if line.values]) for title, lines in panels]
    panels = [(title, lines) for title, lines in panels if lines]
    if not panels:
        return None
    # Labels come from recipes: a dollar sign does not start a formula.
    with matplotlib.rc_context({"font.size": 9, "text.parse_math": False}):
        figure = Figure(figsize=(10, 3), layout="constrained", dpi=120)
        for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            axes.set_title(title, loc="left")
            axes.set_xlabel("step")
            axes.grid(axis="y", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            for line in lines:
                _draw(axes, thin_out(line))
            if len(lines) > 1:
                axes.legend(frameon=False)
        image = BytesIO()
        figure.savefig(image, format="png", metadata={"Software": None})
    return image.getvalue()


def _draw(axes: Axes, line: Series) -> None:
    [points] = axes.plot(line.steps, line.values, ".", alpha=0.35, markersize=3)
    axes.plot(line.steps, smooth(line.values), color=points.get_color(), label=line.label)
