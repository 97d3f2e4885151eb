"""Golds: the right answers of a data set, read and checked once, by the code that scores completions against them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.extraction import boxes, statements
from rlvr.verifiers.math.numbers import Number, plain_number
from rlvr.verifiers.math.parser import Form, Group, Term, read_form, terms_of
from rlvr.workers.pool import WorkerPool

# Several words are an answer if they are marked as one, or say that there is none.
_MAY_STAND_BARE = re.compile(r".*\\text|\s*(?:no|not|does not)\b", re.IGNORECASE | re.DOTALL)
_REMARK = re.compile(r"(?<=[0-9%])\s?\([A-Za-z .]{1,30}\)$")  # the unit in "168 (steps)"


@dataclass(frozen=True)
class Gold:
    """A gold as it was read.

    Attributes:
        written: the answer as it stands in the data, without the solution that leads to it.
        text: the same without a remark behind it; what algebra is asked about.
        form, number: what it is; the number if it is one.
        has_percent, is_several, is_words: whether it has a percent sign, has several parts, is words.
        shown: the gold in quotes, short, for sentences.
    """

    written: str
    text: str
    form: Form
    number: Number | None
    has_percent: bool
    is_several: bool
    is_words: bool
    shown: str


def has_percent(text: str) -> bool:
    """Whether the value of this is in per cent: one sign, behind it, and no sum in front of it."""
    return _IN_PERCENT.fullmatch(text) is not None


_IN_PERCENT = re.compile(r"[^=%]*(?:%|percent)[\s.$*)}\]\\]*")


@lru_cache(maxsize=65536)
def read_gold(text: str) -> Gold | str:
    """The gold, or why it can't be read."""
    stated = re.sub(r"<<[^<>]*>>", "", text)
    if "####" in stated:
        stated = stated.rpartition("####")[2]
    elif "boxed" in stated:
        stated = boxes(stated) or stated
    elif "nswer" in stated and (said := statements(stated)):
        stated = said[-1].texts[-1]
    written = stated.strip()
    stated = _REMARK.sub("", written)
    if not stated:
        return "it is empty"
    form = read_form(stated)
    if isinstance(form, str):
        return form
    if isinstance(form, Term) and form.kind == "words" and " " in form.text and not _MAY_STAND_BARE.match(text):
        return "it is free text; several words that are the answer stand in \\text{…}"
    number = form.number if isinstance(form, Term) and not (form.name and form.kind != "number") else None
    words = isinstance(form, Term) and form.kind == "words"
    return Gold(written, stated, form, number, has_percent(stated), isinstance(form, Group), words, shown(text))


def normalise_gold(text: str, *, number: bool = False) -> str:
    """The gold in a plain spelling: "$70,000" -> "70000", "18.50" -> "18.5", "2/4" -> "1/2", "$\\sqrt3$" -> "\\sqrt3".

    A worked solution is reduced to its answer: "<<6*7=42>>42", "… #### 42" and "… \\boxed{42}" are "42".

    Args:
        number: whether the gold must be a number.

    Raises:
        ValueError: it can't be read; with the reason. Whether algebra can read it, `gold_faults` says.
    """
    found = read_gold(text)
    if number and not isinstance(found, str) and found.number is None:
        found = "it is no number"
    if isinstance(found, str):
        raise ValueError(f"{shown(text)} is not an answer that can be verified: {found}")
    if found.number is not None and not found.form.name:
        return plain_number(found.number)
    return found.text.strip("$ ") if found.text.count("$") in (0, 2) else found.text


def gold_faults(golds: Sequence[object]) -> list[str | None]:
    """For each gold, why the verifier can't read it, or None.

    Expressions are put to algebra too (in workers, with a generous deadline), so it takes a second where there are any.
    """
    faults: list[str | None] = []
    ask: dict[int, str] = {}
    for row, gold in enumerate(golds):
        if not isinstance(gold, str):
            faults.append(f"it is {type(gold).__name__}, but should be text")
            continue
        found = read_gold(gold)
        faults.append(found if isinstance(found, str) else None)
        if not isinstance(found, str) and any(term.kind in ("math", "relation") for term in terms_of(found.form)):
            ask[row] = found.text
    questions = list(dict.fromkeys(ask.values()))
    outcomes = workers().map([["readable", text] for text in questions], timeout_s=10.0) if questions else []
    known = dict(zip(questions, outcomes, strict=True))
    for row, text in ask.items():
        outcome = known[text]
        if outcome.status == "done":
            faults[row] = outcome.value["why"]
        elif outcome.status != "unavailable":
            faults[row] = f"reading it failed: {outcome.why}"
    return faults


def shown(text: str) -> str:
    """The text in quotes, short enough for a sentence."""
    text = " ".join(text[:MAX_EXPRESSION].split())
    return f"'{text}'" if len(text) <= 60 else f"'{text[:57]}...'"


@lru_cache(maxsize=1)
def workers() -> WorkerPool:
    """As many workers as there are cores for this rank, and two at least: while one is replaced, the other works."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    cores = len(os.sched_getaffinity(0))
    return WorkerPool("rlvr.verifiers.math.symbolic:ask", processes=max(2, min(8, cores // max(ranks, 1))))
