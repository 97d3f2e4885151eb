"""Read and validate reference answers (golds) with the code that scores completions against them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.extraction import extract_boxed, find_statements
from rlvr.verifiers.math.numbers import Number, format_number
from rlvr.verifiers.math.parsed_answer import ParsedAnswer, Term, parts_of, terms_of
from rlvr.verifiers.math.parser import parse_answer
from rlvr.workers.pool import WorkerPool

# Several words are an answer if \text{…} marks them, or if they deny that there is one.
_MAY_STAND_BARE = re.compile(r".*\\text|\s*(?:no|not|does not)\b", re.IGNORECASE | re.DOTALL)
_REMARK = re.compile(r"(?<=[0-9%])\s?\([A-Za-z .]{1,30}\)$")  # the unit in "168 (steps)"


@dataclass(frozen=True)
class Gold:
    """A parsed gold.

    Attributes:
        written: the answer as written in the data, without the solution before it.
        text: `written` without a remark after it; the input of algebra.
        parsed, number: the parsed answer; its value if it is a number.
        words: the words, if it is words.
        has_percent: whether it has a percent sign.
    """

    written: str
    text: str
    parsed: ParsedAnswer
    number: Number | None
    words: str
    has_percent: bool


def has_percent(text: str) -> bool:
    """Whether a value is in per cent: one sign, after it, and at most a name before it."""
    return _IN_PERCENT.fullmatch(text) is not None


_IN_PERCENT = re.compile(r"(?:[^=%0-9]*=)?[^=%]*(?:%|percent|per cent|pct)[\s.$*)}\]\\]*")


@lru_cache(maxsize=65536)
def read_gold(text: str) -> Gold | str:
    """Read a gold; return the reason as half a sentence if it cannot be read."""
    stated = re.sub(r"<<[^<>]*>>", "", text)
    if "####" in stated:
        stated = stated.rpartition("####")[2]
    elif "boxed" in stated:
        stated = extract_boxed(stated) or stated
    elif "nswer" in stated and (statements := find_statements(stated)):
        stated = statements[-1].texts[-1]
    written = stated.strip()
    stated = _REMARK.sub("", written)
    if not stated:
        return "it is empty"
    parsed = parse_answer(stated)
    if isinstance(parsed, str):
        return parsed
    words = parsed.text if isinstance(parsed, Term) and parsed.kind == "words" else ""
    if " " in words and not _MAY_STAND_BARE.match(text):
        return "it is free text; write an answer of several words as \\text{…}"
    return Gold(
        written=written,
        text=stated,
        parsed=parsed,
        number=parsed.number if isinstance(parsed, Term) else None,
        words=words,
        has_percent=has_percent(stated),
    )


def normalise_gold(text: str) -> str:
    """Return a gold that is a number in a plain spelling.

    "$70,000" becomes "70000", "18.50" becomes "18.5". A worked solution is reduced to its answer: "<<6*7=42>>42",
    "… #### 42" and "… \\boxed{42}" become "42".

    Raises:
        ValueError: it is no number.
    """
    gold = read_gold(text)
    if isinstance(gold, str) or gold.number is None:
        fault = gold if isinstance(gold, str) else "it is no number"
        raise ValueError(f"{quote(text)} is not an answer that can be verified: {fault}")
    return format_number(gold.number)


def gold_faults(golds: Sequence[object]) -> list[str | None]:
    """Return for each gold why the verifier cannot read it, or None.

    Expressions are also read by algebra, in the workers, which takes about a second.
    """
    faults: list[str | None] = [None] * len(golds)
    expressions: dict[str, list[int]] = {}  # text -> rows
    for row, gold in enumerate(golds):
        target = read_gold(gold) if isinstance(gold, str) else f"it is {type(gold).__name__}, but should be text"
        if isinstance(target, str):
            faults[row] = target
        elif any(part.members for part in parts_of(target.parsed)) or any(
            term.kind in ("math", "relation") for term in terms_of(target.parsed)
        ):
            expressions.setdefault(target.text, []).append(row)
    if not expressions:
        return faults
    outcomes = algebra_workers().map([["readable", text] for text in expressions], timeout_s=10.0)
    for rows, outcome in zip(expressions.values(), outcomes, strict=True):
        for row in rows:
            if outcome.status == "done":
                faults[row] = outcome.value
            elif outcome.status != "unavailable":
                faults[row] = f"reading it failed: {outcome.why}"
    return faults


def row_faults(golds: Sequence[object]) -> list[str | None]:
    """Return for each row of the data why its gold cannot be verified, or None."""
    return [
        fault and f"no completion can be verified against its final_answer '{gold}': {fault}"
        for gold, fault in zip(golds, gold_faults(golds), strict=True)
    ]


def quote(text: str) -> str:
    """Quote a text, shortened for a message."""
    text = " ".join(text[:MAX_EXPRESSION].split())
    return f"'{text}'" if len(text) <= 60 else f"'{text[:57]}...'"


@lru_cache(maxsize=1)
def algebra_workers() -> WorkerPool:
    """Return the algebra workers of this process.

    There is one for each core of this rank, and at least two, so that one works while another restarts.
    """
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    cores = len(os.sched_getaffinity(0))
    return WorkerPool("rlvr.verifiers.math.symbolic:handle_request", processes=max(2, min(8, cores // max(ranks, 1))))
