"""result.json: what a run trained on what and what it gained, in one small file that outlives the run directory.

It rests on the files that it lists with their digests, and has a digest of itself. It names no path, host or user. Two
equal runs have equal records except for `times`, `command` and `commit`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rlvr.artifacts import directory, evaluation
from rlvr.artifacts.evaluation import Evaluation, Measured, as_json, from_json, read_evaluation
from rlvr.artifacts.identity import RESUME_MAY_CHANGE
from rlvr.artifacts.metrics import read_metrics
from rlvr.artifacts.sealed_json import damaged, file_digest, read_sealed
from rlvr.config import schema
from rlvr.config.batch_plan import batch_sizes
from rlvr.config.recipe import RESOLVED, Recipe
from rlvr.config.yaml_reader import read_yaml
from rlvr.errors import InputError
from rlvr.formatting import is_number, mapping, without_folder
from rlvr.health.run_metrics import short_name
from rlvr.modeling import adapters, loading
from rlvr.modeling.digests import hub_revision

FILE = "result.json"
FORMAT = 1  # increase it if an older version would misread a record
SEEDS = ("seed", "data_seed")
# No number of a result depends on these keys. The seeds are a field of their own.
_NOT_IN_DIGEST = (RESUME_MAY_CHANGE - {"evaluation"}) | {*SEEDS, RESOLVED, "sagemaker"}
_MODEL_FILES = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt")
_OF_A_CHECKPOINT = ("training_args.bin", "trainer_state.json", "complete.json")


@dataclass(frozen=True)
class ResultRecord:
    """The content of result.json (docs/evaluation.md#records-and-tables-of-runs has the fields)."""

    recipe: str
    recipe_digest: str
    model: str
    revision: str | None
    base_digest: str | None
    trained: str | None
    task: Mapping[str, Any]
    rewards: Mapping[str, float]
    train_digest: str | None
    held_out_digest: str | None
    evaluation: Mapping[str, Any] | None
    seeds: Mapping[str, int | None]
    processes: int
    launcher: str
    steps: int
    stopped_early: bool
    tokens: Mapping[str, int]
    versions: Mapping[str, str]
    hardware: Mapping[str, str]
    files: Mapping[str, str]
    times: Mapping[str, Any]
    command: str | None = None
    commit: str | None = None
    recipe_file_digest: str | None = None
    completions_per_update: int | None = None

    @property
    def digest(self) -> str:
        """sha256 of the canonical content."""
        return str(directory.seal(asdict(self), FORMAT)["sha256"])

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of completions per second of training, updates and rewards included; None without a time."""
        seconds = 3600 * self.times["training_hours"]
        return self.tokens["generated"] / seconds if seconds else None

    @property
    def measured(self) -> Evaluation:
        """The evaluation; empty if nothing was measured."""
        content = dict(self.evaluation or {})
        settings = {"max_new_tokens": content.pop("max_new_tokens", None)}
        return from_json(Evaluation, {**content, "settings": settings})

    def write(self, path: Path) -> None:
        """Write the record atomically."""
        directory.write_json(path, directory.seal(asdict(self), FORMAT))


def record_run(folder: Path, recipe: Recipe, *, trained: str | None = None) -> ResultRecord:
    """Write the record of a run directory, from its files.

    Args:
        recipe: as it ran.
        trained: the folder of what was measured; default: the one that the run saves.
    """
    status = directory.read_status(folder) or {}
    identity, content = mapping(status.get("identity")), recipe.as_dict()
    is_complete = status.get("status") in ("trained", "done")
    if trained is None and is_complete:
        trained = "adapter" if recipe.settings.get("use_peft") else "model"
    metrics = read_metrics(folder / "metrics.jsonl")
    processes = int(identity.get("processes", 1))
    sizes = batch_sizes(recipe, processes)
    versions = directory.read_json(folder / "versions.json")
    record = ResultRecord(
        recipe=_name(folder, recipe),
        recipe_digest=recipe_digest(folder),
        **_base(recipe),
        trained=trained,
        task=_task(recipe),
        rewards={short_name(spec.name): spec.weight for spec in recipe.rewards},
        train_digest=identity.get("rows"),
        **_measured(folder),
        seeds={name: content.get(name, schema.defaults().get(name)) for name in SEEDS},
        processes=processes,
        launcher=str(identity.get("launcher", "plain")),
        steps=metrics[-1]["step"] if metrics else 0,
        stopped_early=not is_complete,
        tokens=_tokens(metrics),
        versions={name: versions[name] for name in ("python", *directory.LIBRARIES) if name in versions},
        hardware=mapping(status.get("machine")),
        files=_files(folder, trained),
        times={
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "training_hours": round(training_seconds(metrics) / 3600, 4),
        },
        **mapping(status.get("origin")),
        completions_per_update=sizes.completions // sizes.steps * sizes.accumulation,
    )
    record.write(folder / FILE)
    return record


def record_evaluation(folder: Path, recipe: Recipe, trained: str | None) -> ResultRecord:
    """Renew the record of a run that was measured again; `recipe` is the run's own, for a run without a record."""
    try:
        earlier = read_record(folder / FILE)
    except InputError:
        return record_run(folder, recipe, trained=trained)
    trained = trained or earlier.trained
    record = replace(earlier, trained=trained, files=_files(folder, trained), **_measured(folder))
    record.write(folder / FILE)
    return record


def other_measurement(record: ResultRecord, recipe: Recipe) -> str | None:
    """Say why an evaluation by `recipe` does not belong into a run's record; None if it does."""
    base = _base(recipe)
    if record.base_digest is not None or base["base_digest"] is not None:
        is_same = record.base_digest == base["base_digest"]
    else:
        is_same = record.model == base["model"] and record.revision in (None, base["revision"])
    if not is_same:
        return f"the base of the run, {record.model}, is another one or has changed"
    task = json.loads(json.dumps(_task(recipe), default=str))
    return None if record.task == task else "the task, or an option of it, is another one"


def read_record(path: Path) -> ResultRecord:
    """Read a record.

    Args:
        path: the file, or its run directory.

    Raises:
        InputError: of kind "no-record", "damaged-file", "later-format" or "hash-mismatch".
    """
    folder, path = (path, path / FILE) if path.is_dir() else (path.parent, path)
    fix = "Restore the file, or measure the run again (scripts/evaluate.py)."
    content = read_sealed(path, FORMAT, lambda: _why_missing(folder, path), fix)
    try:
        record = ResultRecord(**content)
        _ = record.measured
    except (TypeError, ValueError):
        raise damaged(path, fix) from None
    return record


def find_faults(folder: Path, record: ResultRecord) -> list[str]:
    """What a run directory has that its record does not rest on, a sentence each; empty if all digests fit."""
    faults = []
    for name, digest in record.files.items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{name} is missing.")
        elif file_digest(path) != digest:
            faults.append(f"{name} was changed after the run was recorded.")
    if not (folder / "recipe.yaml").is_file() or recipe_digest(folder) != record.recipe_digest:
        faults.append("recipe.yaml is not the recipe that was recorded.")
    if not faults and _measured(folder) != {
        "evaluation": record.evaluation,
        "held_out_digest": record.held_out_digest,
    }:
        faults.append("The recorded accuracy is not that of evaluation.json and its held-out rows.")
    return faults


def recipe_digest(folder: Path) -> str:
    """The digest of a run directory's recipe.yaml, equal for runs that differ only in seeds, paths and logging."""
    content, _ = read_yaml(folder / "recipe.yaml")
    return directory.content_digest(digested_keys(content))


def digested_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a recipe that its digests cover: no seeds, paths and logging, and not where it runs."""
    return {key: value for key, value in content.items() if key not in _NOT_IN_DIGEST}


def training_seconds(metrics: Sequence[Mapping[str, Any]]) -> float:
    """Seconds of the training steps, without interruptions."""
    seconds, before = 0.0, 0
    for line in metrics:
        if is_number(line.get("step_time")):
            # The value of a line is the mean of the steps since the line before it.
            seconds += line["step_time"] * (line["step"] - before)
            before = line["step"]
    return seconds


def _tokens(metrics: list[dict[str, Any]]) -> dict[str, int]:
    seen, generated = 0.0, 0.0
    for line in metrics:
        total = line.get("num_tokens")
        completion, prompt = line.get("completions/mean_length"), line.get("prompts/mean_length")
        if is_number(total):
            if is_number(completion) and is_number(prompt) and completion + prompt:
                generated += (total - seen) * completion / (completion + prompt)
            seen = total
    return {"trained": round(seen), "generated": round(generated)}


def _name(folder: Path, recipe: Recipe) -> str:
    """The recipe's file name without .yaml, from the first line of recipe.yaml if that is the file."""
    if recipe.path.name != "recipe.yaml":
        return recipe.path.stem
    title = re.match(r"# (\S+?)(\.yaml)? as it ran", (folder / "recipe.yaml").read_text(encoding="utf-8"))
    return title[1] if title else recipe.path.stem


def _task(recipe: Recipe) -> dict[str, Any]:
    tasks = {}
    for spec in recipe.tasks:
        options = {key: without_folder(value) for key, value in spec.options.items() if value is not None}
        weight = {"weight": spec.weight} if spec.weight else {}
        tasks[spec.label] = {"name": short_name(spec.name), **options, **weight}
    return {"name": recipe.task_name, "tasks": tasks} if recipe.is_mixture else tasks[""]


def _base(recipe: Recipe) -> dict[str, Any]:
    """The fields of a record that name the base model."""
    name = str(recipe.settings["model_name_or_path"])
    folder = Path(loading.find_model(name))
    if folder.is_dir():
        return {"model": folder.resolve().name, "revision": None, "base_digest": adapters.fingerprint(folder)}
    loading.load_config(recipe)  # `hub_revision` reads what the hub's client keeps of it
    commit = hub_revision(recipe)
    return {"model": name, "revision": commit or recipe.settings.get("model_revision"), "base_digest": None}


def _measured(folder: Path) -> dict[str, Any]:
    """The fields of a record that evaluation.json and the held-out answers decide."""
    if not (folder / evaluation.FILE).is_file():
        return {"evaluation": None, "held_out_digest": None}
    content = read_evaluation(folder)
    figures: dict[str, Any] = {
        "metric": short_name(content.metric),
        "split": content.split,
        "decoding": content.decoding,
        "max_new_tokens": content.max_new_tokens,
    }
    tasks = {label: {"metric": part.metric, **_figures(part)} for label, part in content.tasks.items()}
    others = {"verifier": content.verifier, **_figures(content), "tasks": tasks, "average": as_json(content.average)}
    figures |= {name: part for name, part in others.items() if part}
    tables = [folder / "completions" / f"evaluation_{name}.parquet" for name in ("trained", "base")]
    digest = None
    if table := next((path for path in tables if path.is_file()), None):
        columns = [name for name in ("row", "prompt", "final_answer") if name in pq.read_schema(table).names]
        digest = directory.content_digest(pq.read_table(table, columns=columns).to_pylist())
    return {"evaluation": figures, "held_out_digest": digest}


def _figures(results: Measured) -> dict[str, Any]:
    kept = ("rows", "correct", "accuracy", "interval", "unscored")
    models = {name: {key: asdict(score)[key] for key in kept} for name, score in results.scores.items()}
    return models | ({"difference": asdict(results.difference)} if results.difference is not None else {})


def _files(folder: Path, trained: str | None) -> dict[str, str]:
    paths = [folder / "evaluation.json"]
    if trained is not None:
        paths += sorted((folder / trained).glob("*"))
    return {
        str(path.relative_to(folder)): file_digest(path)
        for path in paths
        if path.is_file() and path.suffix in _MODEL_FILES and path.name not in _OF_A_CHECKPOINT
    }


def _why_missing(folder: Path, path: Path) -> str:
    """Why a folder has no record, and the fix."""
    if not folder.is_dir():
        return f"There is no folder {folder}. Give the output_dir of a run."
    if not (folder / "recipe.yaml").is_file():
        return f"{folder} has no {path.name}: it is not a run directory. Give the output_dir of a run."
    status = (directory.read_status(folder) or {}).get("status")
    if status == "done":
        return (
            f"{folder} has no {path.name}. Measure it again (scripts/evaluate.py --config {folder}/recipe.yaml "
            f"--adapter {folder}/adapter --compare base --output {folder})."
        )
    why = f", and {folder}/failure.txt says why" if status == "failed" else ""
    return (
        f"{folder} has no {path.name}: the run has not finished (its status is {status}{why}). The same command "
        "continues it."
    )
