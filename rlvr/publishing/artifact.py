"""Find what is published: the weights of a run, or of an export, and the run that they come from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.errors import InputError
from rlvr.formatting import mapping
from rlvr.publishing.model_card import hub_id
from rlvr.report.run_reader import RunRecord, read_run

_EXPORT = "scripts/export.py"


@dataclass(frozen=True)
class Artifact:
    """A folder with weights.

    Attributes:
        kind: "adapter", "model" or "gguf".
        base: the id of the base model on the hub; None if there is none.
        run: that trained them.
        export: a paragraph (Markdown) on how they were exported and measured again; empty if they were not.
    """

    folder: Path
    kind: str
    run: RunRecord
    base: str | None
    export: str = ""


def find_artifact(folder: Path) -> Artifact:
    """The adapter or the model of a finished run.

    Raises:
        InputError: of kind "not-a-run", "run-in-use", "run-not-finished" or "no-weights".
    """
    run = read_run(folder)
    refuse_if_in_use(folder, "Publish it once the run has ended")
    status = run.status.get("status")
    if status not in ("done", None) or run.state:
        left = "its evaluation is left" if status == "trained" else f"its status is {status or 'unknown'}"
        message = f"{folder} has not finished: {left}. Continue it with the command that started it, then publish it."
        raise InputError(message, kind="run-not-finished", path=folder)
    weights = folder / str(run.status.get("saved") or ("adapter" if run.recipe.get("use_peft") else "model"))
    kind = kind_of(weights)
    return Artifact(weights, kind, run, base_of(weights, kind, run))


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
        f"output_dir of a finished run, or a folder that {_EXPORT} wrote.",
        kind="no-weights",
        path=folder,
    )
