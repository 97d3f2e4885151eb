"""Where a recipe key was written: a line of a file, or the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rlvr.config.schema import nearest
from rlvr.errors import Problem


class FileLine(NamedTuple):
    """A line of a file, from 1. The file is the recipe, or one that it extends."""

    path: str
    number: int


# By dotted key; None for a key of the command line. An entry of a list has its number, and also its name:
# "rewards.2.weight" and "rewards.answer_format.weight" are the same.
Lines = Mapping[str, FileLine | None]


@dataclass(frozen=True)
class KeyLocation:
    """Location of a key, and the problems that are found there.

    Attributes:
        key: dotted, such as "rewards.answer_format.weight".
        label: the key for people, such as "rewards, entry 2 (answer_format): weight".
        path, line: the file and the line; `path` is None for the command line, `line` for a key that is missing.
        lines: of all keys.
    """

    key: str
    label: str
    path: str | None
    line: int | None = None
    lines: Lines = field(default_factory=dict)

    @classmethod
    def of(cls, key: str, path: str, lines: Lines, label: str | None = None) -> KeyLocation:
        at = lines.get(key, FileLine(path, 0))
        if at is None:
            return cls(key, label or key, None, None, lines)
        return cls(key, label or key, at.path, at.number or None, lines)

    def child(self, key: str, label: str | None = None) -> KeyLocation:
        """The location of a key inside this one. `label` is what people read behind this location's label."""
        inside = f"{self.key}.{key}"
        label = f"{self.label}{f': {key}' if label is None else label}"
        if inside not in self.lines:
            return KeyLocation(inside, label, self.path, self.line, self.lines)
        at = self.lines[inside]
        if at is None:
            return KeyLocation(inside, inside if self.path is not None else label, None, None, self.lines)
        return KeyLocation(inside, label, at.path, at.number, self.lines)

    def problem(self, text: str, kind: str, suggestion: str | None = None) -> Problem:
        """A problem of this key. `text` continues the sentence that the location begins."""
        line = f", line {self.line}" if self.line is not None else ""
        where = f"--{self.label}" if self.path is None else f"{self.path}{line}: {self.label}"
        message = f"{where}{text}" if text.startswith(":") else f"{where} {text}"
        return Problem(message, kind, self.key, path=self.path, line=self.line, suggestion=suggestion)

    def unknown(self, known: Iterable[str], what: str, advice: str = "") -> Problem:
        """The problem of this key if it is none of the `known`."""
        close = nearest(self.key.rpartition(".")[2], known)
        question = f". Did you mean {close[0]}?" if close else f"{advice}."
        return self.problem(f"is not {what}{question}", "unknown-key", close[0] if close else None)
