"""Terms that a text names: whole words, in any case and width, with spaces or hyphens between their parts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from rlvr.verifiers.words import HAN, MARKS, SOUTH_EAST_ASIAN

_LETTER = rf"(?:(?![{HAN}{SOUTH_EAST_ASIAN}])[^\W_]|[{MARKS}])"  # of a script with spaces between words


def fold(text: str) -> str:
    """Remove differences of case and width, piece by piece: NFKC needs quadratic time for a long run of accents."""
    return re.sub(r"\S{1,200}", lambda piece: unicodedata.normalize("NFKC", piece[0]), text).casefold()


@lru_cache(maxsize=8192)
def _pattern(term: str) -> re.Pattern[str]:
    """Compile a pattern that finds the term as a whole word in folded text."""
    body = r"[\s\-‐]{1,8}".join(re.escape(part) for part in re.split(r"[\s\-‐]+", fold(term.strip())))
    return re.compile(rf"(?<!{_LETTER})(?<!{_LETTER}[-‐])(?<!\d[.,]){body}(?!{_LETTER}|[-‐]{_LETTER}|[.,]\d|\+\+|\#)")


def is_named(synonyms: Iterable[str], text: str) -> bool:
    """Whether a folded text has one of the synonyms."""
    return any(_pattern(term).search(text) for term in synonyms)
