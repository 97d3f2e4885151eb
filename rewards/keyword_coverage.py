"""Reward the share of required terms that an answer contains, for texts without a verifier.

    keywords: ["refund", ["14 days", "two weeks"]]        # a row's column, plain JSON. An inner list has synonyms
    forbidden: ["guaranteed"]                             # an option for all rows

"You get a refund within two weeks of buying it." contains both terms, and scores 1.

Only the model's own turn counts, without thoughts and invented next problems. A term is a whole word, in any case:
"cat" is not in "category" or "cat-like", "14 days" not in "114 days", "C" not in "C++". Other forms of a word do not
count: list "refund" and "refunds" as synonyms. Chinese, Japanese and Thai have no spaces between words, and are
searched as text.

Known weaknesses: the reward reads words, not meaning. A bare list of the terms, a denial ("no refund") and a repeated
question score as much as a correct answer. Combine this reward with a reward for the whole answer, use a small weight,
and read completions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rlvr import InputError, completion_text, own_turn
from rlvr.errors import row_faults
from rlvr.verifiers.words import fold, is_named

MAX_CHARACTERS = 100_000


def keyword_coverage(
    prompts: list[Any],
    completions: list[Any],
    *,
    keywords: list[Any] | None = None,
    terms: list[Any] | None = None,
    forbidden: list[Any] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Return the share of required terms that the text contains, 0 to 1. Return 0 if it contains a forbidden term.

    Args:
        completions: strings, or lists of chat messages. The first 100,000 characters of the own turn are read.
        keywords: an optional column: for each row a list of entries. An entry is a term, or a list of synonyms.
        terms: entries for all rows, in addition to the entries of the row.
        forbidden: entries that no completion may contain.

    Returns:
        A number from 0 to 1 for each completion.

    Raises:
        InputError: an entry is neither text nor a list of texts, or a row has no entry.
    """
    banned = _entries(forbidden, "forbidden") if forbidden else []
    rewards: list[float | None] = []
    reasons: list[str] = []
    for completion, row in zip(completions, keywords or [None] * len(completions), strict=True):
        required = _required(row, terms)
        text = fold(own_turn(completion_text(completion))[:MAX_CHARACTERS])
        named = [entry for entry in required if is_named(entry, text)]
        said = [entry for entry in banned if is_named(entry, text)]
        rewards.append(0.0 if said else len(named) / len(required))
        reasons.append(f"Named: {_list(named)}. Of {_list(required)}.{f' Forbidden: {_list(said)}.' if said else ''}")
    if log_extra is not None:
        log_extra("keyword_coverage/why", reasons)
    return rewards


def validate_rows(
    *, keywords: list[Any] | None = None, terms: list[Any] | None = None, **kwargs: Any
) -> list[str | None]:
    """Return for each row what is wrong with its keywords, or None. Called before training."""
    return row_faults(lambda row: _required(row, terms), keywords or [])


def _required(row: Any, terms: list[Any] | None) -> list[tuple[str, ...]]:
    """Return the entries of a row and of all rows, each once."""
    own = [] if row is None and terms else _entries(row, "keywords")
    return list(dict.fromkeys(own + (_entries(terms, "terms") if terms else [])))


def _entries(value: Any, key: str) -> list[tuple[str, ...]]:
    entries = [
        tuple(entry) if isinstance(entry, list) else (entry,) for entry in (value if isinstance(value, list) else [])
    ]
    flat = [term for entry in entries for term in entry]
    if not flat or not all(entries) or not all(isinstance(term, str) and re.search(r"\w", term) for term in flat):
        raise InputError(
            f'Reward keyword_coverage, {key}: {value!r:.80} is not a list of terms, such as ["refund", ["14 days", '
            '"two weeks"]]. A term is text with a letter or a digit.',
            kind="invalid-row" if key == "keywords" else "invalid-value",
            key=key,
        )
    return entries


def _list(entries: list[tuple[str, ...]]) -> str:
    return ", ".join(" or ".join(entry) for entry in entries) or "nothing"
