"""What several checks of one pass have found: everything once, and nothing that only follows from something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from rlvr.config import schema
from rlvr.errors import InputError

Part = TypeVar("Part")


class FaultCollector:
    """Gathers the faults of a recipe, so that they can be told together.

    Args:
        told: sentences that have been told before, on the recipe's text. The values of the keys that they name aren't
            known, so what would be said of those keys now may be untrue, and is left out.
    """

    def __init__(self, told: Collection[str] = ()) -> None:
        self.faults: list[str] = []
        self.warnings: list[str] = []
        self.unclear = keys_in(told)
        self.left_out: set[str] = set()

    def add(self, sentences: Iterable[str]) -> None:
        """Adds faults, one a sentence."""
        for sentence in sentences:
            if about := keys_in([sentence]) & self.unclear:
                self.left_out |= about
            elif sentence not in self.faults:
                self.faults.append(sentence)

    def warn(self, notes: Iterable[str]) -> None:
        """Keeps the warnings among notes, for what is told beside faults."""
        self.warnings += [note for note in notes if note.startswith("warning: ") and not keys_in([note]) & self.unclear]

    def attempt(self, check: Callable[[], Part]) -> Part | None:
        """What a check returns; None if it raises InputError, whose text is then a fault."""
        try:
            return check()
        except InputError as error:
            self.add([str(error)])
            return None

    def collect_if_new(self, check: Callable[[], object]) -> None:
        """A check that stops at its first fault, and knows nothing of ours: it may find one that was found already."""
        try:
            check()
        except InputError as error:
            if not keys_in([str(error)]) & keys_in(self.faults):
                self.add([str(error)])

    def text(self) -> str:
        """All that was found, and the warnings."""
        rest = [f"What depends on {', '.join(sorted(self.left_out))} is checked once that is right."]
        return "\n".join([*self.faults, *(rest if self.left_out else []), *self.warnings])


def keys_in(sentences: Iterable[str]) -> set[str]:
    """The recipe keys that sentences name."""
    words = {word for sentence in sentences for word in re.findall(r"\w+", sentence)}
    return {key for key in words if "_" in key} & set(schema.fields())
