"""Final texts: read from a turn, normalised, and compared as text. The references of a row of the data."""

from __future__ import annotations

import contextlib
import json
import re
import string
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal

from rlvr.errors import InputError
from rlvr.verifiers.math.normalize import closing_bracket

Place = Literal["turn", "last_line", "marker", "boxed", "tag"]
Step = Callable[[str], str]
NORMALISATIONS: dict[str, Step] = {
    "nfkc": lambda text: unicodedata.normalize("NFKC", text),
    "case": str.casefold,
    "punctuation": lambda text: text.translate(str.maketrans("", "", string.punctuation)),
    "articles": lambda text: re.sub(r"\b(a|an|the)\b", " ", text),
    "whitespace": lambda text: " ".join(text.split()),
}
_BOX = re.compile(r"\\f?boxed\s{0,4}\{")


def final_texts(turn: str, answer_in: Place, marker: str) -> list[str]:
    """Return all answers of a turn; none if one is not closed."""
    if answer_in == "turn":
        return [turn]
    if answer_in == "last_line":
        return [turn.rstrip().rpartition("\n")[2]]
    if answer_in == "marker":
        return [line.partition(marker)[2] for line in turn.split("\n") if marker in line]
    if answer_in == "tag":
        parts = re.split(r"(</?answer>)", turn)
        is_closed = parts[1::2] == ["<answer>", "</answer>"] * (len(parts) // 4)
        return parts[2::4] if is_closed else []
    answers, end = [], 0
    while box := _BOX.search(turn, end):
        end = closing_bracket(turn, box.end())
        if end < 0:
            return []
        answers.append(turn[box.end() : end])
    return answers


def read_references(gold: Any) -> list[Any]:
    """Return the references of a row."""
    if isinstance(gold, str) and gold.lstrip().startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            listed = json.loads(gold)
            if all(isinstance(reference, str) for reference in listed):
                return [gold, *listed]
    return gold if isinstance(gold, list) else [gold]


def read_steps(names: list[str] | None) -> list[Step]:
    """Return the normalisations of these names."""
    names = ["nfkc", "whitespace"] if names is None else names
    if unknown := [name for name in names if name not in (*NORMALISATIONS, "squad")]:
        message = f"{unknown[0]!r} is none of {', '.join(NORMALISATIONS)}, squad."
        raise InputError(f"Reward exact_match, option normalise: {message}", kind="invalid-value", key="normalise")
    return [step for name, step in NORMALISATIONS.items() if name in names or ("squad" in names and name != "nfkc")]


def normalised(text: str, steps: Sequence[Step]) -> str:
    for step in steps:
        text = step(text)
    return text.strip() if steps else text  # "#### Paris" has a blank behind its marker
