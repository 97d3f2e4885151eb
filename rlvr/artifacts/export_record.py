"""export.json: what an exported model is, and how its answers compare with those that the run measured.

It lists each file with its sha256, and has a digest of itself. It names no path, host or user (docs/export.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlvr.artifacts import directory
from rlvr.artifacts.result_record import content_digest, file_digest
from rlvr.errors import InputError

FILE = "export.json"
FORMAT = 1  # increase it if an older version would misread a record


@dataclass(frozen=True)
class Remeasurement:
    """One artifact, loaded as a user loads it and asked the rows of the run again.

    Attributes:
        file: the file that was asked; "" for the whole folder.
        loaded: how it was loaded: the program, dtype and quantisation.
        rows: the first rows of the held-out split.
        before, after: `correct`, `rows`, `accuracy` and `interval` of the run and of the artifact.
        difference: artifact minus run on the same rows, with `p_value` of McNemar's exact test.
        same_answers: rows whose greedy answer is the same text.
        least_same: the share of rows that must have the same answer.
        same_prompts: rows whose prompt has the run's tokens with the artifact's tokenizer and chat template; None where
            that can't be compared.
        likelihood_shift: how far the log-probabilities of the run's first answers moved, as a share of their size; None
            where the answers are conversations.
        most_shift: the limit of it.
        detectable_points: the smallest loss of accuracy that McNemar's test tells from chance on so many rows.
        faults: why it is worse than the run; empty if it isn't.
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
    """The content of export.json.

    Attributes:
        kind: "merged", "gguf" or "adapter".
        run: name of the run directory.
        result: digest of the run's result.json.
        recipe, recipe_digest, train_digest, held_out_digest: as in `ResultRecord`.
        base: `name`, `revision`, `digest`; `only_local` if no hub id is known.
        dtype: of the weights; of an adapter, that of its base.
        metric: that decides whether an answer is right.
        measured: each artifact.
        versions: of the libraries.
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

    @property
    def digest(self) -> str:
        """sha256 of the canonical content."""
        return content_digest({"format": FORMAT, **asdict(self)})

    def as_dict(self) -> dict[str, Any]:
        """Return what `write` writes."""
        return {"format": FORMAT, **asdict(self), "sha256": self.digest}

    def write(self, folder: Path) -> None:
        """Write the record atomically."""
        directory.write_json(folder / FILE, self.as_dict())


def digest_files(folder: Path) -> dict[str, str]:
    """sha256 of each file in an export, except its record."""
    return {path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.name != FILE}


def read_export(folder: Path) -> ExportRecord:
    """Read the record of an export, and check that its files are those that were measured.

    Raises:
        InputError: of kind "no-record", "damaged-file", "later-format" or "hash-mismatch".
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, digest = content.pop("format"), content.pop("sha256")
    except FileNotFoundError:
        message = f"{folder} has no {FILE}: it is not an export. Name a folder that scripts/export.py wrote."
        raise InputError(message, kind="no-record", path=path) from None
    except (OSError, ValueError, AttributeError, KeyError):
        raise _damaged(path) from None
    if version != FORMAT:
        message = f"{path} has the format {version}, and this version reads {FORMAT}. Update the project."
        raise InputError(message, kind="later-format", path=path)
    try:
        measured = [Remeasurement(**part) for part in content.pop("measured")]
        record = ExportRecord(**content, measured=measured)
    except (TypeError, KeyError):
        raise _damaged(path) from None
    changed = sorted(set(record.files.items()) ^ set(digest_files(folder).items()))
    if digest != record.digest or changed:
        what = changed[0][0] if changed else FILE
        message = f"{folder / what} was changed, added or removed after it was measured. Export the run again."
        raise InputError(message, kind="hash-mismatch", path=folder / what)
    return record


def _damaged(path: Path) -> InputError:
    return InputError(
        f"{path} can't be read: it is no record of an export. Export the run again.", kind="damaged-file", path=path
    )
