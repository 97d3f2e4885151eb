"""Split text of any script into words and numbers, and find terms in it.

Chinese and Japanese count as two characters a word; Thai, Lao, Tibetan, Burmese and Khmer as six. A word of more than
24 letters counts as several, so a loop without spaces is a loop, too.

A term is found as a whole word, in any case and width, with spaces or hyphens between its parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

# Combining marks. Python's \w leaves them out, which would cut Hindi and Arabic words to pieces.
MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    r"\u0900-\u0963\u0966-\u0dff\u1dc0-\u1dff\u200c\u200d"
)
# Scripts without spaces between words: Chinese and Japanese, then Thai, Lao, Tibetan, Burmese and Khmer.
HAN = (
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
SOUTH_EAST_ASIAN = r"\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
WORD = re.compile(
    rf"""
    \d{{1,24}}(?:[.,]\d{{1,24}}){{0,8}}                                 # 3.14, 1,000,000
    | [{HAN}]{{1,2}}
    | [{SOUTH_EAST_ASIAN}]{{1,6}}
    | (?:(?![{HAN}{SOUTH_EAST_ASIAN}])[^\W\d_]|[{MARKS}]){{1,24}}
    """,
    re.VERBOSE,
)
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
