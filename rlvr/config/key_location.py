"""Where a recipe key was written: a line of the file, or the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rlvr.config.schema import nearest
from rlvr.errors import Problem


@dataclass(frozen=True)
class KeyLocation:
    """Location of a key, and the problems that are found there.

    Attributes:
        key: dotted, such as "rewards.answer_format.weight".
        text: the location for people, such as "recipe.yaml, line 3: rewards, entry 2 (answer_format)".
        path, line: the file and the line; None for the command line.
    """

    key: str
    text: str
    path: str | None = None
    line: int | None = None

    @classmethod
    def in_file(cls, key: str, path: str, line: int | None = None) -> KeyLocation:
        return cls(key, f"{path}, line {line}: {key}" if line is not None else f"{path}: {key}", path, line)

    @classmethod
    def on_command_line(cls, key: str) -> KeyLocation:
        return cls(key, f"--{key}")

    def child(self, key: str, text: str | None = None) -> KeyLocation:
        """The location of a key inside this one. `text` is what people read behind this location's text."""
        return replace(self, key=f"{self.key}.{key}", text=f"{self.text}{f': {key}' if text is None else text}")

    def problem(self, text: str, kind: str, suggestion: str | None = None) -> Problem:
        """A problem of this key. `text` continues the sentence that the location begins."""
        message = f"{self.text}{text}" if text.startswith(":") else f"{self.text} {text}"
        return Problem(message, kind, self.key, path=self.path, line=self.line, suggestion=suggestion)

    def unknown(self, known: Iterable[str], what: str, advice: str = "") -> Problem:
        """The problem of this key if it is none of the `known`."""
        close = nearest(self.key.rpartition(".")[2], known)
        question = f". Did you mean {close[0]}?" if close else f"{advice}."
        return self.problem(f"is not {what}{question}", "unknown-key", close[0] if close else None)
