"""The text of a recipe while it is read: its keys, where each was written, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.config.inheritance import KEY as EXTENDS
from rlvr.config.inheritance import REPLACES, read_with_bases
from rlvr.config.key_location import FileLine, KeyLocation
from rlvr.config.overrides import apply_override
from rlvr.errors import Problem


class RecipeText:
    """The content of a recipe file with its overrides, and what is wrong with it so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        content, lines = read_with_bases(path)
        self.content, self.lines = content, dict[str, FileLine | None](lines)

    def override(self, overrides: Sequence[tuple[str, Any]], sections: Sequence[str]) -> None:
        """Apply the values of the command line.

        Args:
            sections: the keys whose values may be set by parts.
        """
        for key, value in overrides:
            for each in [each for each in self.lines if each.startswith(f"{key}.")]:
                del self.lines[each]
            self.lines[key] = None
            if value is not None and self.lines.get(other := REPLACES.get(key, ""), None) is not None:
                del self.content[other], self.lines[other]  # the file's; with both on the command line, TRL refuses
            if key == EXTENDS:
                self.problems.append(self.location(key).problem("is a key of recipe files.", "invalid-override"))
                continue
            fault = apply_override(self.content, key, value, sections)
            if fault is not None:
                self.problems.append(self.location(key).problem(f": {fault}", "invalid-override"))

    def expand_home(self) -> None:
        """Replace the "~" of paths, as a shell does: some libraries would, and others make a folder of this name."""
        # The section sagemaker is about another machine.
        self.content |= {key: _expanded(value) for key, value in self.content.items() if key != "sagemaker"}

    def is_overridden(self, key: str, prefix: str) -> bool:
        """Whether the command line sets `key` itself, or a key that begins with `prefix`."""
        return any(line is None and (each == key or each.startswith(prefix)) for each, line in self.lines.items())

    def location(self, key: str) -> KeyLocation:
        """Where a key was written, or is missing."""
        return KeyLocation.of(key, str(self.path), self.lines)


def _expanded(value: Any) -> Any:
    if isinstance(value, str):
        return os.path.expanduser(value) if value.startswith("~/") else value
    if isinstance(value, dict):
        return {key: _expanded(one) for key, one in value.items()}
    return [_expanded(one) for one in value] if isinstance(value, list) else value
