"""Where a recipe key was written: a line of the file, or the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rlvr.config.schema import nearest
from rlvr.errors import Problem

# Lines of the file by dotted key, from 1; None for a key of the command line. An entry of a list has its number, and
# also its name: "rewards.2.weight" and "rewards.answer_format.weight" are the same.
Lines = Mapping[str, int | None]


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
        is_override = lines.get(key, 0) is None
        return cls(key, label or key, None if is_override else path, lines.get(key), lines)

    def child(self, key: str, label: str | None = None) -> KeyLocation:
        """The location of a key inside this one. `label` is what people read behind this location's label."""
        inside = f"{self.key}.{key}"
        if self.path is not None and self.lines.get(inside, 0) is None:
            return KeyLocation(inside, inside, None, None, self.lines)
        label = f"{self.label}{f': {key}' if label is None else label}"
        return KeyLocation(inside, label, self.path, self.lines.get(inside, self.line), self.lines)

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
