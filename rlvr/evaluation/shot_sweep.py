"""Repeat an evaluation over several numbers of shots: is a gain only the format that examples show as well?

Rows, verifier and decoding are the same at every point; only the worked examples before each question differ. The task
draws them with its own seed, from rows that are in no split.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.artifacts.evaluation import MODELS, Interval, Score
from rlvr.artifacts.evaluation_summary import interval_words
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.recipe import Recipe
from rlvr.config.specs import Reference
from rlvr.data.task import TEXT_COLUMNS, Task
from rlvr.errors import InputError
from rlvr.evaluation.evaluate import Records
from rlvr.evaluation.measured import held_out_rows
from rlvr.evaluation.scores import compare, reference_warning, truncation_warning, unscored_warning
from rlvr.formatting import count, p_value_text, percent, points
from rlvr.scoring.registry import load_task

ShotResults = Mapping[str, tuple[Score, Records]]


@dataclass(frozen=True)
class SweepPoint:
    """One number of shots: its recipe and its task."""

    shots: int
    recipe: Recipe
    task: Task


def parse_shots(text: str) -> list[int]:
    """Parse "0,1,2,4,8" into numbers, in rising order.

    Raises:
        InputError: the text is no such list.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        message = f"--shots {text}: write whole numbers with commas between them, such as 0,1,2,4,8."
        raise InputError(message, kind="invalid-value", key="--shots")
    return sorted({int(word) for word in words})


def sweep_points(recipe: Recipe, shots: Sequence[int]) -> list[SweepPoint]:
    """Load the task of a recipe at each number of shots.

    Raises:
        InputError: the task has no option `shots`, or has other rows at another number of them.
    """
    points, [own] = [], recipe.tasks
    for number in shots:
        changed = replace(own, options={**own.options, "shots": number})
        try:
            points.append(SweepPoint(number, replace(recipe, tasks=(changed,)), load_task(changed)))
        except InputError as error:
            if error.kind == "unknown-option" and error.key == "shots":
                raise InputError(
                    f"--shots: the task {own.name} has no option shots.",
                    kind="unsupported-task",
                    key="--shots",
                ) from error
            raise
    first = held_out_rows(points[0].task, recipe)
    for point in points[1:]:
        rows = held_out_rows(point.task, recipe)
        same = TEXT_COLUMNS.intersection(rows.column_names)
        if len(rows) != len(first) or any(rows[name][:] != first[name][:] for name in same):
            raise InputError(
                f"--shots: the task {own.name} has other held-out rows with {point.shots} shots than with "
                f"{points[0].shots}, so the two can't be compared. The task must set the same rows aside for every "
                "number of shots.",
                kind="unsupported-task",
                key="--shots",
            )
    return points


def write_sweep(folder: Path, about: Mapping[str, Any], results: Mapping[int, ShotResults]) -> dict[str, Any]:
    """Write `sweep.json`; return its content.

    Args:
        about: as `describe_evaluation` returns it; `shots` is removed from its task.
        results: for each number of shots, "base" and/or "trained".

    Raises:
        InputError: of kind "run-in-use".
    """
    refuse_if_in_use(folder, "Name another folder")
    task = {key: value for key, value in about["task"].items() if key != "shots"}
    content: dict[str, Any] = {**about, "task": task, "shots_seed": task.get("seed", "the task's default")}
    # A published score is of one number of shots: the recipe's own.
    own = about["task"].get("shots", 0)
    points: list[dict[str, Any]] = []
    measured: dict[str, Score] = {}
    reference = Reference(**about["reference"]) if about.get("reference") else None
    warnings = []
    for shots, scores in sorted(results.items()):
        point: dict[str, Any] = {"shots": shots, **{name: asdict(score) for name, (score, _) in scores.items()}}
        if {"base", "trained"} <= set(scores):
            point["difference"] = asdict(compare(scores["base"][1], scores["trained"][1]))
        if shots == own and "base" in scores and (warning := reference_warning(reference, scores["base"][0])):
            warnings.append(warning)
        measured |= {f"{name} with {count(shots, 'shot')}": score for name, (score, _) in scores.items()}
        points.append(point)
    limit = about.get("settings", {}).get("max_new_tokens")
    warnings += [warning for warning in (truncation_warning(limit, measured), unscored_warning(measured)) if warning]
    content["points"] = points
    if warnings:
        content["warnings"] = warnings
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return content


def sweep_table(content: Mapping[str, Any]) -> str:
    """Format the table of a sweep.json for the terminal."""
    names = [name for name in MODELS if name in content["points"][0]]
    both = len(names) > 1
    header = ["shots"]
    for name in names:
        header += [name, "95 % interval", "cut off"]
    header += ["difference", "95 % interval", "McNemar"] if both else ["right in any format"]
    rows = []
    for point in content["points"]:
        cells = [str(point["shots"])]
        for name in names:
            score = point[name]
            cells += [
                percent(score["accuracy"]),
                interval_words(Interval(**score["interval"])),
                f"{100 * score['cut_off']:.0f} %",
            ]
        if both:
            gain = point["difference"]
            interval = interval_words(Interval(**gain["interval"]), signed=True)
            cells += [points(gain["points"]), interval, p_value_text(gain["p_value"])]
        else:
            lenient = point[names[0]]["lenient"]
            cells.append("–" if lenient is None else percent(lenient / max(point[names[0]]["rows"], 1)))
        rows.append(cells)
    text = console.table(header, rows)
    if content.get("reference"):
        text += f"\n\n  Published: {percent(content['reference']['score'])} ({content['reference']['source']})"
    return "\n\n".join([text, *(f"  {console.red('Warning:')} {warning}" for warning in content.get("warnings", []))])


def sweep_heading(content: Mapping[str, Any]) -> str:
    first = content["points"][0]
    rows = next(first[name]["rows"] for name in MODELS if name in first)
    return (
        f"Accuracy ({content['metric']}) by number of shots on {rows} held-out rows of "
        f"{content['task']['name']}/{content['split']}, {content['decoding']} decoding, shots drawn with seed "
        f"{content['shots_seed']}:"
    )
