"""Read a run directory for a report. A missing part is empty; `notes` has a sentence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml.error import YAMLError

from rlvr.artifacts.directory import read_json, read_status
from rlvr.artifacts.evaluation import Evaluation, read_evaluation
from rlvr.artifacts.metrics import read_metrics
from rlvr.config.yaml_reader import parse_yaml
from rlvr.errors import InputError
from rlvr.formatting import count, hide_secrets, is_number, mapping
from rlvr.health.run_metrics import reward_weights, short_name
from rlvr.report.svg_charts import Series

# Values of `status` in run.json (rlvr/artifacts/directory.py).
STATES = ("running", "interrupted", "failed", "trained", "done")


@dataclass(frozen=True)
class RunRecord:
    """The content of a run directory, without completions. What is missing or can't be read is empty."""

    folder: Path
    recipe: Mapping[str, Any]
    recipe_text: str  # without secrets
    metrics: Sequence[Mapping[str, Any]]  # the lines of metrics.jsonl
    evaluation: Evaluation
    versions: Mapping[str, Any]
    status: Mapping[str, Any]  # run.json
    state: str  # a sentence if the run is incomplete
    notes: tuple[str, ...]  # a sentence for each part that can't be read or that another version wrote

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def weights(self) -> dict[str, float]:
        return reward_weights(self.recipe)

    @property
    def tasks(self) -> dict[str, Mapping[str, Any]]:
        """The section `task`, or the entries of `tasks` by their labels."""
        entries = self.recipe.get("tasks")
        if not isinstance(entries, list):
            return {"": mapping(self.recipe.get("task"))}
        return {str(mapping(entry).get("label", number)): mapping(entry) for number, entry in enumerate(entries, 1)}

    @property
    def task_name(self) -> str:
        """The name of the task, or the labels of several; empty if unknown."""
        return " + ".join(label or str(section.get("name", "")) for label, section in self.tasks.items())

    @cached_property
    def metric(self) -> str:
        """The short name of the reward that decides whether an answer is right; empty if unknown."""
        metric = self.evaluation.metric or mapping(self.recipe.get("evaluation")).get("metric")
        if isinstance(metric, str) and metric:
            return short_name(metric)
        return max(self.weights, key=lambda name: self.weights[name], default="")


def read_run(folder: Path) -> RunRecord:
    """Read a run directory, without its completions.

    Raises:
        InputError: of kind "not-a-run" or "later-format".
    """
    problem = ""
    if not folder.is_dir():
        problem = f"There is no folder {folder}."
    elif not any((folder / name).is_file() for name in ("recipe.yaml", "metrics.jsonl")):
        problem = f"{folder} is not a run directory: it holds neither recipe.yaml nor metrics.jsonl."
    if problem:
        raise InputError(f"{problem} Give the output_dir of a run.", kind="not-a-run", path=folder)
    run_json = mapping(read_status(folder))
    status = run_json["status"] if run_json.get("status") in STATES else None
    path = folder / "recipe.yaml"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    recipe, recipe_text = parse_recipe(text), hide_secrets(text)
    metrics = read_metrics(folder / "metrics.jsonl")
    versions = read_json(folder / "versions.json")
    notes = _notes(folder, bool(recipe), bool(recipe_text), len(metrics), status)
    evaluation = Evaluation()
    try:
        evaluation = read_evaluation(folder)
    except InputError as error:
        notes.append(str(error))
    state = _state(recipe, metrics, status)
    return RunRecord(folder, recipe, recipe_text, metrics, evaluation, versions, run_json, state, tuple(notes))


def series_of(metrics: Sequence[Mapping[str, Any]], key: str, label: str = "") -> Series:
    """The finite values of a metric over the steps."""
    points = [(line["step"], line[key]) for line in metrics if is_number(line["step"]) and is_number(line.get(key))]
    return Series(label, [step for step, _ in points], [value for _, value in points])


def steps_of(recipe: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str:
    """The last logged step, and the number that the recipe asks for."""
    wanted = recipe.get("max_steps")
    return f"{metrics[-1]['step']:,}" + (f" of {wanted:,}" if isinstance(wanted, int) and wanted > 0 else "")


@lru_cache(maxsize=8)
def parse_recipe(text: str) -> Mapping[str, Any]:
    """The content of a recipe; empty if it is no YAML mapping."""
    try:
        return mapping(parse_yaml(text)[0])
    except YAMLError:
        return {}


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


def _notes(folder: Path, has_recipe: bool, has_text: bool, lines: int, status: Any) -> list[str]:
    notes = []
    if has_text and not has_recipe:
        notes.append("recipe.yaml is not a YAML mapping, so only its text is shown.")
    log = folder / "metrics.jsonl"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    damaged = sum(bool(line.strip()) for line in text.splitlines()) - lines
    if damaged == 1 and not text.endswith("\n"):
        notes.append("The last line of metrics.jsonl is incomplete: the run is still in progress, or was killed.")
    elif damaged:
        notes.append(f"metrics.jsonl is damaged: {count(damaged, 'line')} can't be read, so steps are missing.")
    if status is None and has_recipe:
        notes.append("run.json is missing or can't be read, so only the steps show whether the run is complete.")
    return notes
