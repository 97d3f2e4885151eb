"""The same evaluation over several numbers of shots: how much of a gain is the format that examples would have shown.

The rows, the verifier and the decoding are the same at every point; only the worked examples in front of each question
differ. They are drawn by the task, from rows that are set aside and in no split, with the task's own seed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.config.recipe import Recipe
from rlvr.data.task import Task
from rlvr.errors import InputError
from rlvr.evaluation.evaluate import Records, held_out_rows
from rlvr.evaluation.results import interval_words
from rlvr.evaluation.scores import Score, compare, suspicion, truncation
from rlvr.formatting import count, p_value_text, points
from rlvr.scoring.registry import load_task

Results = Mapping[str, tuple[Score, Records]]
COLOURS = {"base": "#8a8f98", "trained": "#2563c9"}


@dataclass(frozen=True)
class Point:
    """One number of shots: the recipe that says so, and its task."""

    shots: int
    recipe: Recipe
    task: Task


def shots_of(text: str) -> list[int]:
    """ "0,1,2,4,8" as numbers, in rising order.

    Raises:
        InputError: it is something else.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise InputError(f"--shots {text}: write whole numbers with commas between them, like 0,1,2,4,8.")
    return sorted({int(word) for word in words})


def points_of(recipe: Recipe, shots: Sequence[int]) -> list[Point]:
    """The task of a recipe at each number of shots.

    Raises:
        InputError: the task has no option `shots`, or has other rows at another number of them.
    """
    points = []
    for number in shots:
        changed = replace(recipe, task=replace(recipe.task, options={**recipe.task.options, "shots": number}))
        try:
            points.append(Point(number, changed, load_task(changed.task)))
        except InputError as error:
            if "shots" in str(error) and "shots" not in recipe.task.options:
                raise InputError(f"--shots: the task {recipe.task.name} can't be swept. {error}") from error
            raise
    first = held_out_rows(points[0].task, recipe)
    for point in points[1:]:
        rows = held_out_rows(point.task, recipe)
        same = [name for name in ("id", "question", "final_answer") if name in rows.column_names]
        if len(rows) != len(first) or any(list(rows[name]) != list(first[name]) for name in same):
            raise InputError(
                f"--shots: the task {recipe.task.name} has other held-out rows with {point.shots} shots than with "
                f"{points[0].shots}, so the two can't be compared. A task should set the rows of its shots aside "
                "whatever their number."
            )
    return points


def write_sweep(folder: Path, about: Mapping[str, Any], results: Mapping[int, Results]) -> dict[str, Any]:
    """Writes `sweep.json`, `sweep.svg` and `sweep.png`; returns the JSON's content.

    Args:
        about: as for an evaluation.json; its task is told without `shots`.
        results: for each number of shots, "base" and/or "trained".
    """
    task = {key: value for key, value in about["task"].items() if key != "shots"}
    content: dict[str, Any] = {**about, "task": task, "shots_seed": task.get("seed", "the task's default")}
    # A published score is of one number of shots: the recipe's own.
    own = about["task"].get("shots", 0)
    points: list[dict[str, Any]] = []
    cut_off: dict[str, float] = {}
    warnings = []
    for shots, found in sorted(results.items()):
        point: dict[str, Any] = {"shots": shots, **{name: asdict(score) for name, (score, _) in found.items()}}
        if {"base", "trained"} <= set(found):
            point["difference"] = asdict(compare(found["base"][1], found["trained"][1]))
        if shots == own and (warning := suspicion(about.get("reference"), point.get("base"))):
            warnings.append(warning)
        cut_off |= {f"{name} with {count(shots, 'shot')}": score.cut_off for name, (score, _) in found.items()}
        points.append(point)
    if said := truncation(about, cut_off):
        warnings.append(said)
    content |= {"points": points, **({"warnings": warnings} if warnings else {})}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    draw(content, [folder / "sweep.svg", folder / "sweep.png"])
    return content


def sweep_table(content: Mapping[str, Any]) -> str:
    """The table of a sweep.json, for the terminal."""
    names = [name for name in COLOURS if name in content["points"][0]]
    both = len(names) > 1
    header = ["shots"]
    for name in names:
        header += [name, "95 % interval", "cut off"]
    header += ["difference", "95 % interval", "McNemar"] if both else ["whatever the form"]
    rows = []
    for point in content["points"]:
        cells = [str(point["shots"])]
        for name in names:
            score = point[name]
            cells += [
                f"{100 * score['accuracy']:.1f} %",
                interval_words(score["interval"]),
                f"{100 * score['cut_off']:.0f} %",
            ]
        if both:
            gain = point["difference"]
            cells += [points(gain["points"]), interval_words(gain["interval"], signed=True)]
            cells.append(p_value_text(gain["p_value"]))
        else:
            score = point[names[0]]
            lenient = score["lenient"]
            cells.append("–" if lenient is None else f"{100 * lenient / max(score['rows'], 1):.1f} %")
        rows.append(cells)
    text = console.table(header, rows)
    if content.get("reference"):
        text += f"\n\n  Published: {100 * content['reference']['score']:.1f} % ({content['reference']['source']})"
    return "\n\n".join([text, *(f"  {console.red('Warning:')} {warning}" for warning in content.get("warnings", []))])


def sweep_heading(content: Mapping[str, Any]) -> str:
    first = content["points"][0]
    rows = next(first[name]["rows"] for name in COLOURS if name in first)
    return (
        f"Accuracy ({content['metric']}) by number of shots on {rows} held-out rows of "
        f"{content['task']['name']}/{content['split']}, {content['decoding']} decoding, shots drawn with seed "
        f"{content['shots_seed']}:"
    )


def draw(content: Mapping[str, Any], files: Sequence[Path]) -> None:
    """The sweep as a figure that stands by itself: accuracy over shots with intervals, and the published score."""
    import matplotlib
    from matplotlib.figure import Figure  # not pyplot, which holds state for the whole process

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # a fresh machine builds a font cache, and says so
    points = content["points"]
    places = range(len(points))  # evenly: the numbers double, and 0 has no logarithm
    style = {
        "svg.hashsalt": "sweep",
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        axes = figure.add_subplot()
        names = [name for name in COLOURS if name in points[0]]
        for number, name in enumerate(names):
            scores = [point[name] for point in points]
            values = [100 * score["accuracy"] for score in scores]
            below = [value - 100 * score["interval"]["low"] for value, score in zip(values, scores, strict=True)]
            above = [100 * score["interval"]["high"] - value for value, score in zip(values, scores, strict=True)]
            aside = 0.06 * (number - (len(names) - 1) / 2)  # so that two intervals at one place can be told apart
            axes.errorbar(
                [place + aside for place in places],
                values,
                yerr=[below, above],
                color=COLOURS[name],
                marker="o",
                capsize=3,
                label=name,
            )
        if content.get("reference"):
            axes.axhline(100 * content["reference"]["score"], color="#b45309", linewidth=1, linestyle="--")
            axes.annotate(
                f"published: {content['reference']['source'][:60]}",
                (0, 100 * content["reference"]["score"]),
                xytext=(0, 3),
                textcoords="offset points",
                color="#b45309",
                fontsize=8,
            )
        axes.set_xticks(list(places), [str(point["shots"]) for point in points])
        axes.set_xlabel("shots")
        axes.set_ylabel("right, %")
        axes.set_ylim(0, 100)
        axes.grid(axis="y", color="#e5e7eb")
        axes.set_axisbelow(True)
        rows = points[0][names[0]]["rows"]
        axes.set_title(f"{content['model']}, {rows} rows of {content['task']['name']}", loc="left", fontsize=10)
        if len(names) > 1:
            axes.legend(loc="upper right", ncols=2)
        for file in files:
            figure.savefig(file, dpi=160, metadata={"Date": None} if file.suffix == ".svg" else None)
