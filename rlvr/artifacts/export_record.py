"""export.json: what an exported model is, and how its answers compare with those that the run measured.

It lists each file with its sha256, and has a digest of itself. It names no path, host or user (docs/export-publish.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlvr.artifacts.directory import seal, write_json
from rlvr.artifacts.sealed_json import damaged, file_digest, read_sealed
from rlvr.errors import InputError

FILE = "export.json"
FORMAT = 1  # increase it if an older version would misread a record


@dataclass(frozen=True)
class Remeasurement:
    """One artifact, loaded as a user loads it and asked the rows of the run again.

    Attributes:
        file: the file that was asked; "" for the whole folder.
        same_prompts: None where prompts can't be compared.
        likelihood_shift: None where the answers are conversations.
    """

    file: str
    loaded: Mapping[str, Any]
    rows: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    difference: Mapping[str, Any]
    same_answers: int
    least_same: float
    same_prompts: int | None
    likelihood_shift: float | None
    most_shift: float
    detectable_points: float
    faults: Sequence[str] = ()


@dataclass(frozen=True)
class ExportRecord:
    """The content of export.json (docs/export-publish.md).

    Attributes:
        kind: "merged", "gguf" or "adapter".
        result: digest of the run's result.json.
        recipe, recipe_digest, train_digest, held_out_digest: as in `ResultRecord`.
        base: `name`, `revision`, `digest`; `only_local` if no hub id is known.
        metric: the metric that decides whether an answer is right.
        files: sha256 by name.
    """

    kind: str
    run: str
    result: str
    recipe: str
    recipe_digest: str
    train_digest: str | None
    held_out_digest: str | None
    base: Mapping[str, Any]
    dtype: str
    metric: str
    measured: Sequence[Remeasurement]
    versions: Mapping[str, str]
    files: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return what `write` writes."""
        return seal(asdict(self), FORMAT)

    def write(self, folder: Path) -> None:
        """Write the record atomically."""
        write_json(folder / FILE, self.as_dict())


def digest_files(folder: Path) -> dict[str, str]:
    """sha256 of each file in an export, except its record."""
    return {path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.name != FILE}


def read_export(folder: Path) -> ExportRecord:
    """Read the record of an export, and check that its files are those that were measured.

    Raises:
        InputError: of kind "no-record", "damaged-file", "later-format" or "hash-mismatch".
    """
    path, fix = folder / FILE, "Export the run again."
    missing = f"{folder} has no {FILE}: it is not an export. Name a folder that scripts/export.py wrote."
    content = read_sealed(path, FORMAT, lambda: missing, fix)
    try:
        measured = [Remeasurement(**part) for part in content.pop("measured")]
        record = ExportRecord(**content, measured=measured)
    except (TypeError, KeyError):
        raise damaged(path, fix) from None
    changed = sorted(set(record.files.items()) ^ set(digest_files(folder).items()))
    if changed:
        message = f"{folder / changed[0][0]} was changed, added or removed after it was measured. {fix}"
        raise InputError(message, kind="hash-mismatch", path=folder / changed[0][0])
    return record
