"""A run directory as a report reads it. Whatever it lacks is empty here, and said in a sentence under `notes`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr.artifacts.directory import read_status
from rlvr.artifacts.metrics import read_metrics
from rlvr.errors import InputError
from rlvr.formatting import is_number, mapping, shorten
from rlvr.report.run_facts import entries, steps_of

# What run.json may say (rlvr/artifacts/directory.py).
STATES = ("running", "interrupted", "failed", "trained", "done")


@dataclass(frozen=True)
class RunRecord:
    """What a run directory says.

    Attributes:
        folder: the directory.
        recipe: the recipe as a mapping; empty where it can't be read.
        recipe_text: the same as it stands in the file, without what opens an account.
        metrics: the lines of metrics.jsonl.
        evaluation: the content of evaluation.json, or None.
        shots: the content of sweep.json, the accuracy by the number of shots, or None.
        state: a sentence where the run isn't whole, else nothing.
        notes: a sentence for each part that can't be read, or that another version wrote.
    """

    folder: Path
    recipe: Mapping[str, Any]
    recipe_text: str
    metrics: Sequence[Mapping[str, Any]]
    evaluation: Mapping[str, Any] | None
    shots: Mapping[str, Any] | None
    state: str
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight of every reward that the recipe lists, by its short name."""
        found = {}
        for entry in entries(self.recipe.get("rewards")):
            weight = entry.get("weight", 1.0)
            if is_number(weight):
                found[short_name(str(entry.get("name")))] = float(weight)
        return found

    @cached_property
    def metric(self) -> str:
        """The short name of the reward that decides whether an answer is right; empty where nothing says so."""
        said = mapping(self.evaluation).get("metric") or mapping(self.recipe.get("evaluation")).get("metric")
        if isinstance(said, str) and said:
            return short_name(said)
        return max(self.weights, key=lambda name: self.weights[name], default="")


def read_run(folder: Path) -> RunRecord:
    """Reads all of a run directory but its completions.

    Raises:
        InputError: the directory is not there, no run has written to it, or one of a later version has.
    """
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}: give the one that a run wrote to (its recipe's output_dir).")
    if not any((folder / name).is_file() for name in ("recipe.yaml", "metrics.jsonl")):
        raise InputError(
            f"{folder} holds neither recipe.yaml nor metrics.jsonl, so no run has written to it: "
            "give the output_dir of a run."
        )
    status = read_status(folder)
    recipe, recipe_text = _read_recipe(folder / "recipe.yaml")
    metrics = read_metrics(folder / "metrics.jsonl")
    evaluation, shots = (_read_mapping(folder / name) for name in ("evaluation.json", "sweep.json"))
    return RunRecord(
        folder=folder,
        recipe=recipe,
        recipe_text=recipe_text,
        metrics=metrics,
        evaluation=evaluation,
        shots=shots,
        state=_state(recipe, metrics, mapping(status).get("status")),
        notes=tuple(_notes(folder, recipe, recipe_text, len(metrics), mapping(status).get("status"))),
    )


def short_name(reward: str) -> str:
    """What the metrics call a reward that a recipe may name by a path, a dotted name or a function in a file."""
    return re.split(r"[/.:]", reward.removesuffix(".py"))[-1]


def _read_recipe(path: Path) -> tuple[Mapping[str, Any], str]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}, ""
    try:
        content = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        content = None
    shown = re.sub(r"(?m)^([\s-]*[\w-]*(?:hub_token|password|secret|api_key)\s*:).*$", r"\1 (not shown)", text)
    return mapping(content), shown


def _read_mapping(path: Path) -> Mapping[str, Any] | None:
    try:
        return mapping(json.loads(path.read_text(encoding="utf-8", errors="replace"))) or None
    except (OSError, ValueError, RecursionError):
        return None


def _state(recipe: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], status: Any) -> str:
    if not metrics:
        going = " The run is still going, or was killed: make the report again later." if status == "running" else ""
        return f"No training step has been logged.{going}"
    last = f"the last step logged is {steps_of(recipe, metrics)}"
    if status == "interrupted":
        return f"Training was interrupted: {last}. The same command continues it."
    if status == "running":
        return f"Training has not come to its end: {last}. It is still going, or was killed."
    wanted = recipe.get("max_steps")
    if status is None and isinstance(wanted, int) and metrics[-1]["step"] < wanted:
        return f"Training has not come to its end: {last}."
    return ""


def _notes(folder: Path, recipe: Mapping[str, Any], recipe_text: str, lines: int, status: Any) -> list[str]:
    notes = []
    if recipe_text and not recipe:
        notes.append("recipe.yaml is no YAML mapping, so what was asked for is shown as it stands there.")
    log = folder / "metrics.jsonl"
    if log.is_file():
        written = sum(bool(line.strip()) for line in log.read_text(encoding="utf-8", errors="replace").splitlines())
        if written == lines + 1:
            notes.append("The last line of metrics.jsonl is half written (the run is still going, or was killed).")
        elif written > lines:
            notes.append(
                f"metrics.jsonl is broken at line {lines + 1:,}: the {written - lines:,} lines from there on "
                "are left out."
            )
    if status is not None and status not in STATES:
        notes.append(
            f"run.json says that the run is {shorten(str(status), 60)!r}, which this version of the project doesn't "
            "know: another version wrote it, and some of it may be missing here."
        )
    elif status is None and recipe and (folder / "run.json").is_file():
        notes.append("run.json can't be read, so whether the run came to its end is judged by its steps alone.")
    elif status is None and recipe:
        notes.append(
            "There is no run.json: an earlier version of the project made this run, or it was copied in part. Whether "
            "it came to its end is judged by its steps alone."
        )
    for name in ("evaluation.json", "sweep.json"):
        if (folder / name).is_file() and _read_mapping(folder / name) is None:
            notes.append(f"{name} can't be read: it is half written or no JSON object. Evaluate again.")
    return notes
