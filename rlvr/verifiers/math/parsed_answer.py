"""The parsed form of an answer: terms, and collections of terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rlvr.verifiers.math.numbers import Number


class UnreadableAnswer(Exception):
    """An answer that cannot be parsed; the message says why, as half a sentence."""


@dataclass(frozen=True)
class Term:
    """A part of an answer that has no inner structure.

    Attributes:
        kind: "number"; "words" (compared as text); "math" (an expression); "relation" (an equation that is no
            assignment, or an inequality).
        text: canonical spelling without spaces; words are in lower case, except a single letter.
        number: value of a number.
        name: the "x" of "x = 5", for a whole answer or an item of a list.
    """

    kind: Literal["number", "words", "math", "relation"]
    text: str
    number: Number | None = None
    name: str = ""


@dataclass(frozen=True)
class Collection:
    """Several parsed answers in one.

    Attributes:
        kind: "list" (values in any order, as in "2, 3" or "x = 2 or x = 3"), "set", "tuple" (also intervals), "union"
            (of sets or intervals), "matrix" (its items are rows, which are lists).
        brackets: opening and closing bracket of a tuple; empty for other kinds.
    """

    kind: Literal["list", "set", "tuple", "union", "matrix"]
    items: tuple[ParsedAnswer, ...]
    brackets: str = ""
    name: str = ""


ParsedAnswer = Term | Collection


def terms_of(answer: ParsedAnswer) -> Iterator[Term]:
    """Yield every term of a parsed answer."""
    if isinstance(answer, Term):
        yield answer
    else:
        for item in answer.items:
            yield from terms_of(item)
