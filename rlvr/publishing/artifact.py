"""Find what is published: the weights of a run, or of an export, and the run that they come from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rlvr.artifacts import export_record
from rlvr.artifacts.export_record import ExportRecord
from rlvr.artifacts.result_record import FILE as RECORD
from rlvr.artifacts.result_record import read_record
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.errors import InputError
from rlvr.formatting import mapping
from rlvr.publishing.model_card import hub_id
from rlvr.report.run_reader import RunRecord, read_run


@dataclass(frozen=True)
class Artifact:
    """A folder with weights.

    Attributes:
        kind: "adapter", "model" or "gguf".
        base: the id of the base model on the hub; None if there is none.
        run: that trained them.
        export: the record of the export, if they were exported.
    """

    folder: Path
    kind: str
    run: RunRecord
    base: str | None
    export: ExportRecord | None = None


def find_artifact(folder: Path, run_dir: Path | None = None) -> Artifact:
    """What a folder holds: the adapter or the model of a finished run, or an export.

    Args:
        run_dir: of an export, if its run is not in a usual place.

    Raises:
        InputError: the folder is neither, its files were changed, or the run has not finished or has no weights.
    """
    if (folder / export_record.FILE).is_file():
        export = export_record.read_export(folder)
        run = _read_finished_run(run_dir or _find_run(folder, export))
        if _digest(run.folder) != export.result:
            message = f"{folder} was exported of another run than {run.folder}. Name the right one with --run_dir."
            raise InputError(message, kind="hash-mismatch", key="run_dir", path=run.folder)
        weights = folder
    else:
        export, run = None, _read_finished_run(folder)
        weights = folder / str(run.status.get("saved") or ("adapter" if run.recipe.get("use_peft") else "model"))
    kind = kind_of(weights)
    return Artifact(weights, kind, run, base_of(weights, kind, run), export)


def _find_run(folder: Path, export: ExportRecord) -> Path:
    """The directory of an export's run: beside the export, or in runs/."""
    near = folder.absolute().parent
    parents = (near, near / "runs", near.parent / "runs", Path("runs"))
    for candidate in (parent / export.run for parent in parents):
        if _digest(candidate) == export.result:
            return candidate
    raise InputError(
        f"The card is written from the run {export.run}, which is not beside {folder} and not in runs/. Name its "
        "directory with --run_dir.",
        kind="run-not-found",
        key="run_dir",
        path=folder,
    )


def _digest(run_dir: Path) -> str | None:
    """The digest of a run's record; None if there is none."""
    try:
        return read_record(run_dir / RECORD).digest
    except InputError:
        return None


def _read_finished_run(folder: Path) -> RunRecord:
    run = read_run(folder)
    refuse_if_in_use(folder, "Publish it once the run has ended")
    status = run.status.get("status")
    if status not in ("done", None) or run.state:
        left = "its evaluation is left" if status == "trained" else f"its status is {status or 'unknown'}"
        message = f"{folder} has not finished: {left}. Continue it with the command that started it, then publish it."
        raise InputError(message, kind="run-not-finished", path=folder)
    return run


def base_of(folder: Path, kind: str, run: RunRecord) -> str | None:
    """The id of the base on the hub: as an adapter names it, or else as the recipe does.

    Raises:
        InputError: of kind "base-not-on-hub", for an adapter.
    """
    if kind != "adapter":
        return hub_id(run.recipe.get("model_name_or_path"))
    file = folder / "adapter_config.json"
    name = mapping(json.loads(file.read_text(encoding="utf-8"))).get("base_model_name_or_path")
    if hub_id(name) is None:
        raise InputError(
            f"{file}: the base model {name} is a folder, and others can't load the adapter without it. Publish the "
            "merged model (`scripts/export.py RUN_DIR --to merged`). If the folder is a copy of a model on the hub, "
            "set base_model_name_or_path to its id.",
            kind="base-not-on-hub",
            key="base_model_name_or_path",
            path=file,
        )
    return hub_id(name)


def kind_of(folder: Path) -> str:
    """The kind of the weights in a folder."""
    if any(folder.glob("*.gguf")):
        return "gguf"
    if any(folder.glob("*.safetensors")):
        for name, kind in (("adapter_config.json", "adapter"), ("config.json", "model")):
            if (folder / name).is_file():
                return kind
    raise InputError(
        f"{folder} holds no weights: neither .safetensors with their configuration nor .gguf files. Name the "
        f"output_dir of a finished run, or a folder that scripts/export.py wrote.",
        kind="no-weights",
        path=folder,
    )
