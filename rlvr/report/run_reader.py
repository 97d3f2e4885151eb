"""Read a run directory for a report. A missing part is empty; `notes` has a sentence for it."""

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

# Values of `status` in run.json (rlvr/artifacts/directory.py).
STATES = ("running", "interrupted", "failed", "trained", "done")


@dataclass(frozen=True)
class RunRecord:
    """The content of a run directory, without completions.

    Attributes:
        folder: the directory.
        recipe: the recipe as a mapping; empty if it can't be read.
        recipe_text: the text of the file, without secrets.
        metrics: the lines of metrics.jsonl.
        evaluation: the content of evaluation.json, or None.
        shots: the content of sweep.json (accuracy by number of shots), or None.
        state: a sentence if the run is incomplete, else empty.
        notes: a sentence for each part that can't be read or that another version wrote.
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
        """The weight of every reward in the recipe, by its short name."""
        weights = {}
        for entry in entries(self.recipe.get("rewards")):
            weight = entry.get("weight", 1.0)
            if is_number(weight):
                weights[short_name(str(entry.get("name")))] = float(weight)
        return weights

    @cached_property
    def metric(self) -> str:
        """The short name of the reward that decides whether an answer is right; empty if unknown."""
        metric = mapping(self.evaluation).get("metric") or mapping(self.recipe.get("evaluation")).get("metric")
        if isinstance(metric, str) and metric:
            return short_name(metric)
        return max(self.weights, key=lambda name: self.weights[name], default="")


def read_run(folder: Path) -> RunRecord:
    """Read a run directory, without its completions.

    Raises:
        InputError: of kind "not-a-run" or "later-format".
    """
    if not folder.is_dir():
        message = f"There is no folder {folder}. Give the output_dir of a run."
        raise InputError(message, kind="not-a-run", path=folder)
    if not any((folder / name).is_file() for name in ("recipe.yaml", "metrics.jsonl")):
        raise InputError(
            f"{folder} is not a run directory: it holds neither recipe.yaml nor metrics.jsonl. "
            "Give the output_dir of a run.",
            kind="not-a-run",
            path=folder,
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
    """The reward's name in metrics. A recipe may use a path, a dotted name or a function in a file."""
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
        hint = (
            " The run is still in progress, or was killed. Write the report again later." if status == "running" else ""
        )
        return f"No training step has been logged.{hint}"
    last = f"the last logged step is {steps_of(recipe, metrics)}"
    if status == "interrupted":
        return f"Training was interrupted: {last}. The same command continues it."
    if status == "running":
        return f"Training is incomplete: {last}. It is still in progress, or was killed."
    max_steps = recipe.get("max_steps")
    if status is None and isinstance(max_steps, int) and metrics[-1]["step"] < max_steps:
        return f"Training is incomplete: {last}."
    return ""


def _notes(folder: Path, recipe: Mapping[str, Any], recipe_text: str, lines: int, status: Any) -> list[str]:
    notes = []
    if recipe_text and not recipe:
        notes.append("recipe.yaml is not a YAML mapping, so only its text is shown.")
    log = folder / "metrics.jsonl"
    if log.is_file():
        written = sum(bool(line.strip()) for line in log.read_text(encoding="utf-8", errors="replace").splitlines())
        if written == lines + 1:
            notes.append("The last line of metrics.jsonl is incomplete: the run is still in progress, or was killed.")
        elif written > lines:
            notes.append(
                f"metrics.jsonl is damaged at line {lines + 1:,}: the {written - lines:,} lines from there on are "
                "ignored."
            )
    if status is not None and status not in STATES:
        notes.append(
            f"run.json has the unknown status {shorten(str(status), 60)!r}: another version of the project wrote it. "
            "Parts may be missing here."
        )
    elif status is None and recipe and (folder / "run.json").is_file():
        notes.append("run.json can't be read, so only the steps show whether the run is complete.")
    elif status is None and recipe:
        notes.append(
            "There is no run.json: an earlier version of the project wrote this run, or the copy is incomplete. "
            "Only the steps show whether the run is complete."
        )
    for name in ("evaluation.json", "sweep.json"):
        if (folder / name).is_file() and _read_mapping(folder / name) is None:
            notes.append(f"{name} can't be read: it is incomplete or not a JSON object. Evaluate again.")
    return notes
