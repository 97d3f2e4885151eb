"""Tests by reference: a file that the server holds, so that a batch need not carry megabytes of tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.errors import InputError
from rlvr.reward_server.limits import Refused


class References:
    """The rows of a JSONL file by their `id`; only where they lie is kept in memory.

    Args:
        path: of the file; None: nothing can be referred to.

    Raises:
        InputError: it can't be read, or a row has no id, or one that another has.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._places: dict[str, int] = {}
        if path is None:
            return
        try:
            with path.open("rb") as file:
                place = 0
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        self._note(number, line, place)
                    place += len(line)
        except OSError as error:
            raise InputError(f"--tests {path} can't be read: {error.strerror}.") from error

    def __len__(self) -> int:
        return len(self._places)

    def _note(self, number: int, line: bytes, place: int) -> None:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"--tests {self.path}, line {number}: no JSON: {error}.") from error
        if not isinstance(row, dict) or not isinstance(row.get("id"), str | int):
            raise InputError(f"--tests {self.path}, line {number}: a row should be an object with an id.")
        name = str(row["id"])
        if name in self._places:
            raise InputError(f"--tests {self.path}, line {number}: the id {name!r} comes twice.")
        self._places[name] = place

    def row(self, name: str) -> Mapping[str, Any]:
        """The row with an id.

        Raises:
            Refused: there is none.
        """
        if name not in self._places or self.path is None:
            held = f"holds {len(self._places):,} others" if self.path is not None else "was started without --tests"
            raise Refused(404, f"There are no tests with the id {name!r:.200}: this server {held}.")
        with self.path.open("rb") as file:
            file.seek(self._places[name])
            found = json.loads(file.readline())
        if str(found.get("id")) != name:
            raise Refused(503, f"The server's file of tests has changed under it: {name!r:.200} is gone. Restart it.")
        return dict(found)

    def resolve(self, column: str, values: Sequence[Any]) -> list[Any]:
        """A column whose entries {"id": …} are replaced by what the file holds in that column.

        Raises:
            Refused: there is no such row, or it lacks the column.
        """
        rows: dict[str, Any] = {}
        resolved = []
        for value in values:
            if not (isinstance(value, dict) and value.keys() == {"id"} and isinstance(value["id"], str | int)):
                resolved.append(value)
                continue
            name = str(value["id"])
            if name not in rows:
                row = self.row(name)
                if column not in row:
                    raise Refused(404, f"The tests with the id {name!r:.200} have no column {column}.")
                rows[name] = row[column]
            resolved.append(rows[name])
        return resolved
