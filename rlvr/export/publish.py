"""Publish weights: find them, write their card, list and scan the files, say what will happen, and push."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr import console
from rlvr.artifacts import export_record
from rlvr.artifacts.export_record import ExportRecord
from rlvr.artifacts.result_record import FILE as RECORD
from rlvr.artifacts.result_record import read_record
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.artifacts.sealed_json import file_digest
from rlvr.errors import InputError, Problem
from rlvr.export import hub
from rlvr.export.model_card import hub_id, model_card, published_recipe
from rlvr.export.settings import check_id
from rlvr.export.upload import Files, is_part_of_model, read, scan, size
from rlvr.formatting import byte_count, mapping
from rlvr.report.run_reader import RunRecord, read_run

_RECORDS = ("evaluation.json", "result.json", "recipe.yaml")  # of the run, as evidence beside the card


@dataclass(frozen=True)
class Publication:
    """What would be published: the files, the names of those that stay here, the card, and what forbids it.

    Attributes:
        digests: sha256 of the weights by name, when they were scanned.
    """

    run: str
    files: Files
    digests: Mapping[str, str]
    left_out: tuple[str, ...]
    card: str
    problems: tuple[Problem, ...]

    def describe(self) -> str:
        """The files with their sizes, and what is left out."""
        sizes = {name: size(source) for name, source in self.files.items()}
        rows = [[name, byte_count(each)] for name, each in [*sizes.items(), ("in all", sum(sizes.values()))]]
        return f"{console.table(['file', 'size'], rows)}\n  left out: {', '.join(self.left_out) or 'nothing'}"

    def check(self) -> None:
        """Refuse what must not be uploaded.

        Raises:
            InputError: with all problems.
        """
        if self.problems:
            raise InputError(problems=self.problems)


def prepare(folder: Path, repo: str, run_dir: Path | None = None) -> Publication:
    """Write the card of a run or of an export, and list and scan all files. Nothing is sent.

    Args:
        run_dir: of an export, if its run is not in a usual place.

    Raises:
        InputError: the folder is neither, its files were changed or lie elsewhere, the run has not finished or has no
            weights, or `repo` is not the id of a repository.
    """
    root = folder
    export = export_record.read_export(folder) if (folder / export_record.FILE).is_file() else None
    run = _finished_run(folder if export is None else _find_run(folder, export, run_dir))
    check_id(repo)
    if export is None:
        folder /= str(run.status.get("saved") or ("adapter" if run.recipe.get("use_peft") else "model"))
    kind = _kind_of(folder)
    base = _base_of_adapter(folder) if kind == "adapter" else hub_id(run.recipe.get("model_name_or_path"))
    card = model_card(run, kind, repo, base=base, export=export)
    files = {path.name: read(path, root) for path in sorted(folder.iterdir()) if is_part_of_model(path)}
    files |= {name: read(run.folder / name, run.folder) for name in _RECORDS if (run.folder / name).is_file()}
    digests = {name: file_digest(source) for name, source in files.items() if isinstance(source, Path)}
    files["README.md"] = card.encode("utf-8", "replace")
    if run.recipe_text:
        files["recipe.yaml"] = published_recipe(run).encode()
    left_out = tuple(sorted(path.name for path in folder.iterdir() if path.name not in files))
    private = [path for one in (run.folder, folder) for path in (one, one.resolve())]
    return Publication(run.name, files, digests, left_out, card, tuple(scan(files, private)))


def publish(publication: Publication, repo: str, *, private: bool | None) -> str:
    """Say what will happen, and push; return the address of the commit.

    Raises:
        InputError: it must not be uploaded, or the upload failed. Nothing of the repository's content changed then.
    """
    publication.check()
    console.info(publication.describe())
    return hub.push(repo, publication.files, publication.digests, f"Publish {publication.run}", private=private)


def publish_run(run_dir: Path, model_folder: Path, settings: Mapping[str, Any]) -> int:
    """Push the model of a finished run to the hub, as its recipe says; return the exit code."""
    repo, private = settings["hub_model_id"], settings.get("hub_private_repo")
    words = ["python", "scripts/publish.py", str(run_dir), "--repo", repo, *(["--private"] if private else [])]
    later = f"The run is done and saved: {model_folder}. To publish it later: {shlex.join(words)}"
    try:
        address = publish(prepare(run_dir, repo), repo, private=private)
    except InputError as error:
        console.error(f"{error}\n  {later}")
        return 1
    except KeyboardInterrupt:
        console.error(f"\n  Publishing was stopped. {later}")
        return 130
    console.info(f"  published {address}")
    return 0


# ----------------------------------------------------------------------------------------------------------------------
# Weights, and the run that they come from


def _finished_run(folder: Path) -> RunRecord:
    run = read_run(folder)
    refuse_if_in_use(folder, "Publish it once the run has ended")
    status = run.status.get("status")
    if status not in ("done", None) or run.state:
        left = "its evaluation is left" if status == "trained" else f"its status is {status or 'unknown'}"
        message = f"{folder} has not finished: {left}. Continue it with the command that started it, then publish it."
        raise InputError(message, kind="run-not-finished", path=folder)
    return run


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
