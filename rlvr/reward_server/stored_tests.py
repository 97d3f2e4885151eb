"""Tests that the server holds in a file. Requests refer to them by id, so a batch need not carry megabytes of tests."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.reward_server.request_limits import RequestError


class StoredTests:
    """The rows of a JSONL file by their `id`. Only their offsets are kept in memory.

    Args:
        path: the file; None: no stored tests.

    Raises:
        InputError: the file can't be read, or a row has no id or a duplicate one.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._offsets: dict[str, int] = {}
        if path is None:
            return
        offset = 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        row_id = str(json.loads(line)["id"])
                        if self._offsets.setdefault(row_id, offset) != offset:
                            message = f"--tests {path}, line {number}: duplicate id {row_id!r}."
                            raise InputError(message, kind="duplicate-id", line=number)
                    offset += len(line)
        except OSError as error:
            message = f"--tests {path} can't be read: {error.strerror}."
            raise InputError(message, kind="unreadable-file", path=path) from error
        except (ValueError, TypeError, KeyError) as error:
            message = f"--tests {path}, line {number}: a row must be a JSON object with an id."
            raise InputError(message, kind="invalid-json", line=number) from error

    def __len__(self) -> int:
        return len(self._offsets)

    def row(self, row_id: str) -> Mapping[str, Any]:
        """The row with an id."""
        if row_id not in self._offsets or self.path is None:
            stored = f"holds {len(self._offsets):,} others" if self.path is not None else "was started without --tests"
            message = f"There are no tests with the id {row_id!r:.200}: this server {stored}."
            raise RequestError(404, message, kind="unknown-id")
        try:
            with self.path.open("rb") as file:
                file.seek(self._offsets[row_id])
                row: dict[str, Any] = json.loads(file.readline())
            if str(row["id"]) != row_id:
                raise KeyError(row_id)
        except (OSError, ValueError, TypeError, KeyError) as error:
            message = f"The server's file of tests has changed: {row_id!r:.200} is gone. Restart the server."
            raise RequestError(503, message, kind="tests-changed") from error
        return row

    def resolve(self, column: str, values: Sequence[Any]) -> list[Any]:
        """Replace entries {"id": …} of a column by that column of the stored rows, each read once."""
        row = functools.cache(self.row)
        try:
            return [row(str(value["id"]))[column] if _is_reference(value) else value for value in values]
        except KeyError as error:
            message = f"A row of the stored tests to which the request refers has no column {column}."
            raise RequestError(404, message, kind="missing-column") from error


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"id"} and isinstance(value["id"], str | int)
