"""JSON files with a format and a sha256 of their content, which shows any later change; digests of other files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr.artifacts.directory import content_digest
from rlvr.errors import InputError


def file_digest(path: Path, algorithm: str | Callable[[], Any] = "sha256") -> str:
    with path.open("rb") as file:
        return str(hashlib.file_digest(file, algorithm).hexdigest())


def read_sealed(path: Path, format: int, why_missing: Callable[[], str], fix: str) -> dict[str, Any]:
    """Read a file, without `format` and `sha256`.

    Args:
        why_missing: returns a message for a file that does not exist.
        fix: a sentence for a file that is damaged or was changed.

    Raises:
        InputError: of kind "no-record", "damaged-file", "later-format" or "hash-mismatch".
    """
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8")))
        version, digest = content.pop("format"), content.pop("sha256")
    except FileNotFoundError:
        raise InputError(why_missing(), kind="no-record", path=path) from None
    except (OSError, ValueError, TypeError, KeyError):
        raise damaged(path, fix) from None
    if version != format:
        raise InputError(
            f"{path} was written by another version of grpo-recipes: its format is {version}, and this version reads "
            f"{format}. Update the project.",
            kind="later-format",
            path=path,
        )
    if digest != content_digest({"format": version, **content}):
        message = f"{path} was changed after it was written: its sha256 does not fit its content. {fix}"
        raise InputError(message, kind="hash-mismatch", path=path)
    return content


def damaged(path: Path, fix: str) -> InputError:
    """The error for a file whose content is not what it should be."""
    return InputError(
        f"{path} can't be read: its content is incomplete or wrong. {fix}", kind="damaged-file", path=path
    )
