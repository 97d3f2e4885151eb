"""Open the directory of a finished run, and check that its weights and its base are those that it measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.artifacts import directory
from rlvr.artifacts.result_record import ResultRecord, find_faults, read_record
from rlvr.artifacts.run_lock import refuse_if_in_use
from rlvr.config.recipe import Recipe, load_recipe
from rlvr.errors import InputError
from rlvr.modeling import adapters, loading


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended and was measured.

    Attributes:
        recipe: as it ran, with paths resolved.
        record: its result.json.
        weights: the folder of its adapter or model.
    """

    folder: Path
    recipe: Recipe
    record: ResultRecord
    weights: Path

    @property
    def is_adapter(self) -> bool:
        return (self.weights / "adapter_config.json").is_file()

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def base(self) -> dict[str, Any]:
        """The base as others can find it: `name`, `revision`, `digest`, and whether it is known as a folder only."""
        only_local = self.record.base_digest is not None
        return {
            "name": self.record.model,
            "revision": self.record.revision,
            "digest": self.record.base_digest,
            "only_local": only_local,
        }


def open_run(folder: Path, overrides: Sequence[str] = ()) -> FinishedRun:
    """Open a run directory. No weight is loaded.

    Args:
        overrides: of keys of its recipe.

    Raises:
        InputError: the run is alive, has not finished or was not measured; its weights or its base changed since; the
            base is not there.
    """
    if not folder.is_dir():
        message = f"There is no folder {folder}. Give the output_dir of a run."
        raise InputError(message, kind="no-record", path=folder)
    refuse_if_in_use(folder, "Name another run")
    status = (directory.read_status(folder) or {}).get("status")
    if status not in (None, "done"):
        raise InputError(
            f"The run {folder} has not finished: its status is {status}. Continue it with the command that "
            "started it (docs/training.md).",
            kind="run-not-finished",
            path=folder,
        )
    record = read_record(folder)
    if record.trained is None or record.measured.trained is None:
        raise InputError(
            f"The trained model of {folder} was never measured. Run `python scripts/evaluate.py --config "
            f"{folder}/recipe.yaml --adapter {folder}/{record.trained} --compare base --output {folder}`.",
            kind="not-measured",
            path=folder,
        )
    if faults := find_faults(folder, record):
        raise InputError(
            f"{folder} is not what was measured: {' '.join(faults)} Restore the files, or measure the run again "
            "(scripts/evaluate.py).",
            kind="hash-mismatch",
            path=folder,
        )
    recipe = load_recipe(folder / "recipe.yaml", overrides)
    check_base(recipe, record)
    return FinishedRun(folder, recipe, record, folder / record.trained)


def check_base(recipe: Recipe, record: ResultRecord) -> None:
    """Check that the base is there, and the one that was trained on.

    Raises:
        InputError: of kind "model-not-found" or "base-mismatch".
    """
    name = str(recipe.settings["model_name_or_path"])
    try:
        found = Path(loading.find_model(name))
        if not found.is_dir():
            loading.load_config(recipe)
    except InputError as error:
        raise InputError(
            f"The base model of the run is missing: it was loaded from {name}. {error}",
            kind=error.kind,
            key="model_name_or_path",
        ) from error
    if record.base_digest is not None and (not found.is_dir() or adapters.fingerprint(found) != record.base_digest):
        raise InputError(
            f"The base model {found} is not the model of the run: its digest differs. Restore the "
            "folder, or name the right one in the run's recipe.yaml (model_name_or_path).",
            kind="base-mismatch",
            key="model_name_or_path",
            path=found,
        )
