"""Find what is published: the weights of a run, or of an export, and the run that they come from."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlvr.artifacts import export_record
from rlvr.artifacts.export_record import ExportRecord
from rlvr.artifacts.result_record import FILE as RECORD
from rlvr.artifacts.result_record import read_record
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.errors import InputError
from rlvr.export.model_card import hub_id
from rlvr.formatting import mapping
from rlvr.report.run_reader import RunRecord, read_run


@dataclass(frozen=True)
class Artifact:
    """A folder with weights of a kind, the run that trained them, and their export's record, if they have one.

    Attributes:
        kind: "adapter", "model" or "gguf".
        base: the id of the base model on the hub.
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
    export = export_record.read_export(folder) if (folder / export_record.FILE).is_file() else None
    run_dir = folder if export is None else _find_run(folder, export, run_dir)
    run = read_run(run_dir)
    refuse_if_in_use(run_dir, "Publish it once the run has ended")
    status = run.status.get("status")
    if status not in ("done", None) or run.state:
        left = "its evaluation is left" if status == "trained" else f"its status is {status or 'unknown'}"
        message = f"{run_dir} has not finished: {left}. Continue it with the command that started it, then publish it."
        raise InputError(message, kind="run-not-finished", path=run_dir)
    if export is None:
        folder /= str(run.status.get("saved") or ("adapter" if run.recipe.get("use_peft") else "model"))
    kind = _kind_of(folder)
    base = _base_of_adapter(folder) if kind == "adapter" else hub_id(run.recipe.get("model_name_or_path"))
    return Artifact(folder, kind, run, base, export)


def _find_run(folder: Path, export: ExportRecord, run_dir: Path | None) -> Path:
    """The directory of an export's run: as named, beside the export, or in runs/."""
    near = folder.absolute().parent
    candidates = [near / export.run, near.parent / "runs" / export.run, Path("runs", export.run)]
    for candidate in [run_dir] if run_dir else candidates:
        with suppress(InputError):  # it has no record
            if read_record(candidate / RECORD).digest == export.result:
                return candidate
    raise InputError(
        f"{run_dir or 'No folder beside the export or in runs/'} is not the run {export.run} that {folder} was "
        "exported from, and the card is written from that run. Name its directory with --run_dir.",
        kind="run-not-found",
        key="run_dir",
        path=folder,
    )


def _base_of_adapter(folder: Path) -> str:
    file = folder / "adapter_config.json"
    name = mapping(json.loads(file.read_text(encoding="utf-8"))).get("base_model_name_or_path")
    base = hub_id(name)
    if base is None:
        raise InputError(
            f"{file}: the base model {name} is a folder, and others can't load the adapter without it. Publish the "
            "merged model (`scripts/export.py RUN_DIR --to merged`). If the folder is a copy of a model on the hub, "
            "set base_model_name_or_path to its id.",
            kind="base-not-on-hub",
            key="base_model_name_or_path",
            path=file,
        )
    return base


def _kind_of(folder: Path) -> str:
    for weights, config, kind in (
        ("*.gguf", "*", "gguf"),
        ("*.safetensors", "adapter_config.json", "adapter"),
        ("*.safetensors", "config.json", "model"),
    ):
        if any(folder.glob(weights)) and any(folder.glob(config)):
            return kind
    raise InputError(
        f"{folder} holds no weights: neither .safetensors with their configuration nor .gguf files. Name the "
        f"output_dir of a finished run, or a folder that scripts/export.py wrote.",
        kind="no-weights",
        path=folder,
    )
