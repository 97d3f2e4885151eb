"""Tests that the server holds in a file. Requests refer to them by id, so a batch need not carry megabytes of tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.reward_server.request_error import RequestError


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
        try:
            with path.open("rb") as file:
                offset = 0
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        self._add(number, line, offset)
                    offset += len(line)
        except OSError as error:
            message = f"--tests {path} can't be read: {error.strerror}."
            raise InputError(message, kind="unreadable-file", path=path) from error

    def __len__(self) -> int:
        return len(self._offsets)

    def _add(self, number: int, line: bytes, offset: int) -> None:
        where = f"--tests {self.path}, line {number}"
        try:
            row_id = str(json.loads(line)["id"])
        except (ValueError, TypeError, KeyError) as error:
            message = f"{where}: a row must be a JSON object with an id."
            raise InputError(message, kind="invalid-json", line=number) from error
        if row_id in self._offsets:
            raise InputError(f"{where}: duplicate id {row_id!r}.", kind="duplicate-id", line=number)
        self._offsets[row_id] = offset

    def row(self, row_id: str) -> Mapping[str, Any]:
        """The row with an id.

        Raises:
            RequestError: there is none.
        """
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
        """Replace entries {"id": …} of a column by that column of the stored rows, each read once.

        Raises:
            RequestError: there is no such row, or it lacks the column.
        """
        stored: dict[str, Any] = {}
        resolved = []
        for value in values:
            if isinstance(value, dict) and value.keys() == {"id"} and isinstance(value["id"], str | int):
                row_id = str(value["id"])
                if row_id not in stored:
                    row = self.row(row_id)
                    if column not in row:
                        message = f"The tests with the id {row_id!r:.200} have no column {column}."
                        raise RequestError(404, message, kind="missing-column")
                    stored[row_id] = row[column]
                value = stored[row_id]
            resolved.append(value)
        return resolved
