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
        members: what stands before it in a chain of equals ("\\sqrt{4}" in "\\sqrt{4} = 2"), for algebra to compare.
    """

    kind: Literal["number", "words", "math", "relation"]
    text: str
    number: Number | None = None
    name: str = ""
    members: tuple[ParsedAnswer, ...] = ()


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
    members: tuple[ParsedAnswer, ...] = ()


ParsedAnswer = Term | Collection


def parts_of(answer: ParsedAnswer) -> Iterator[ParsedAnswer]:
    """Yield a parsed answer and every part of it."""
    yield answer
    for item in () if isinstance(answer, Term) else answer.items:
        yield from parts_of(item)


def terms_of(answer: ParsedAnswer) -> Iterator[Term]:
    """Yield every term of a parsed answer."""
    return (part for part in parts_of(answer) if isinstance(part, Term))
