"""Reward the share of required terms that an answer names in whole sentences, for texts without a verifier.

    keywords: ["refund", ["14 days", "two weeks"]]        # a row's column, plain JSON; an inner list has synonyms
    forbidden: ["guaranteed"]                             # an option for all rows

"You get a refund within two weeks of buying it." names both, and earns 1.

A mention counts
- only in the model's own turn: not in its thoughts, and not in an invented next problem;
- only as a whole word: "cat" is not in "category" or "cat-like", "14 days" not in "114 days", "C" not in "C++". Case,
  width of characters (Unicode's NFKC), and spaces instead of hyphens make no difference. Other forms of a word do: list
  "refund" and "refunds" as synonyms. Chinese, Japanese and Thai have no word boundaries and are searched as text;
- only if it is not negated: "no refund", "isn't refundable", "without any refund", "a refund is not possible". A
  negator is one of the `_WINDOW_LEFT` words before or the `_WINDOW_RIGHT` words after it, within the clause. "Not only"
  and "no later than 14 days" negate nothing. Double negation is not understood;
- only in a sentence with at least `least_words` different other words, and as many as it has mentions; numbers and
  single letters do not count. So a bare list of keywords earns nothing. Repeated mentions earn no more than one.

Exploits: the reward reads words, not meaning. Filler around the terms ("You asked about a refund and about 14 days")
earns as much as a right answer, as does repeating a question that contains them. A denial in other words ("a refund is
out of reach") is missed, and a negator nearby misleads ("If you are not happy we refund" earns nothing). Combine it
with a reward for the whole, give it a small weight, and read completions.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rlvr import InputError, completion_text, own_turn
from rlvr.verifiers.words import HAN, MARKS, SOUTH_EAST_ASIAN, iterate_words

MAX_CHARACTERS = 100_000
MAX_TERM_CHARACTERS = 200

NEGATORS = (
    "no",
    "not",
    "never",
    "without",
    "cannot",
    "neither",
    "nor",
    "none",
    "nothing",
    "nobody",
    "hardly",
    "lack",
    "lacks",
    "refuse",
    "refuses",
    "deny",
    "denies",
    "exclude",
    "excludes",
    "excluding",
)
# "no later than", "not only", "no doubt" deny nothing.
_HARMLESS_AFTER = frozenset(
    (
        "only",
        "just",
        "merely",
        "later",
        "more",
        "less",
        "longer",
        "fewer",
        "earlier",
        "sooner",
        "least",
        "doubt",
        "problem",
        "matter",
        "worries",
    )
)
_PAIRS = (("instead", "of"), ("rather", "than"))
_WINDOW_LEFT = 5
_WINDOW_RIGHT = 2

# A sentence ends at its sign, at an empty line, and before a list item or a heading.
_SENTENCE_END = re.compile(
    r"[.!?…]{1,8}[\"')\]*_”]{0,4}(?=\s|\Z)|[。！？]|;(?=\s)|\n\s{0,8}\n|\n[ \t]{0,16}(?=[-*•#|>]|\d{1,3}[.)]\s)"
)
# A negation ends at one of these, or at a dash between spaces.
_CLAUSE_END = re.compile(r"[,;:()\[\]{}|\"“”，；：、（）]|\s[-–—]{1,3}\s|\bbut\b")
_SPACED_WORD = rf"(?:(?![{HAN}{SOUTH_EAST_ASIAN}])[^\W_]|[{MARKS}])"
_PIECE = re.compile(r"[^\s]{1,200}")
_SEPARATOR = re.compile(r"\s+|[-‐]")


def keyword_coverage(
    prompts: list[Any],
    completions: list[Any],
    *,
    keywords: list[Any] | None = None,
    terms: list[Any] | None = None,
    forbidden: list[Any] | None = None,
    full: bool = False,
    ordered: bool = False,
    least_words: int = 3,
    negators: list[str] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Return the share of required terms that are named, 0 to 1; 0 if a forbidden one is.

    Args:
        completions: strings, or lists of chat messages. The first 100,000 characters of the own turn are read.
        keywords: an optional column: for each row a list of entries. An entry is a term, or a list of synonyms; all
            entries have the same weight.
        terms: entries for all rows, in addition to those of the row.
        forbidden: entries that no completion may name; a negated mention ("this is not guaranteed") is allowed.
        full: pay 1 for all entries, else 0.
        ordered: require the order of the entries; the longest run in order is paid.
        least_words: minimal number of different other words in a sentence whose mentions count. 0 counts all.
        negators: negating words instead of the English ones, in a language with spaces between words.

    Returns:
        A number from 0 to 1 for each completion.

    Raises:
        InputError: neither keywords nor terms, an invalid entry (with its row), lists of different lengths, or an
            invalid option.
    """
    if keywords is not None and (not isinstance(keywords, list) or len(keywords) != len(completions)):
        actual = f"{len(keywords)} lists" if isinstance(keywords, list) else f"{keywords!r:.80}"
        raise InputError(
            f"Reward keyword_coverage: the column keywords has {actual} for {len(completions)} completions. "
            "Pass one list each; use the option terms for terms of all rows.",
            kind="length-mismatch",
            key="keywords",
        )
    rows = [None] * len(completions) if keywords is None else keywords
    required = [_required_entries(row, number, terms) for number, row in enumerate(rows)]
    rules = _check_rules(forbidden, full, ordered, least_words, negators)
    return [_score(completion, entries, rules)[0] for completion, entries in zip(completions, required, strict=True)]


def validate_rows(
    *,
    keywords: list[Any] | None = None,
    terms: list[Any] | None = None,
    forbidden: list[Any] | None = None,
    **kwargs: Any,
) -> list[str | None]:
    """Return for each row what is wrong with its keywords, or None. Called once before training.

    Raises:
        InputError: the option terms or forbidden is invalid.
    """
    for name, entries in (("terms", terms), ("forbidden", forbidden)):
        if entries is not None:
            _parse_entries(entries, name, None)
    faults: list[str | None] = []
    for row in keywords or []:
        try:
            _required_entries(row, None, terms)
            faults.append(None)
        except InputError as error:
            faults.append(str(error))
    return faults


def explain(
    completion: Any,
    *,
    keywords: list[Any] | None = None,
    terms: list[Any] | None = None,
    forbidden: list[Any] | None = None,
    full: bool = False,
    ordered: bool = False,
    least_words: int = 3,
    negators: list[str] | None = None,
    **kwargs: Any,
) -> list[str]:
    """Explain the reward of `keyword_coverage`, one sentence a step; the last one is the reward.

    Args: as `keyword_coverage`, for one row.
    """
    entries = _required_entries(keywords, None, terms)
    reward, steps = _score(completion, entries, _check_rules(forbidden, full, ordered, least_words, negators))
    return [*steps, f"Reward: {reward:g}"]


# ----------------------------------------------------------------------------------------------------------------------
# Options and entries

Entry = tuple[str, ...]


@dataclass(frozen=True)
class _KeywordRules:
    """Checked options for all rows."""

    forbidden: tuple[Entry, ...]
    full: bool
    ordered: bool
    least_words: int
    negators: frozenset[str]


def _check_rules(
    forbidden: list[Any] | None, full: bool, ordered: bool, least_words: int, negators: list[str] | None
) -> _KeywordRules:
    if isinstance(least_words, bool) or not isinstance(least_words, int) or least_words < 0:
        raise InputError(
            f"Reward keyword_coverage, option least_words: {least_words!r} is not a whole number of 0 or more.",
            kind="invalid-value",
            key="least_words",
        )
    if negators is not None and not (isinstance(negators, list) and all(isinstance(word, str) for word in negators)):
        raise InputError(
            f"Reward keyword_coverage, option negators: {negators!r:.80} is not a list of words.",
            kind="invalid-value",
            key="negators",
        )
    return _KeywordRules(
        forbidden=_parse_entries(forbidden, "forbidden", None) if forbidden is not None else (),
        full=full,
        ordered=ordered,
        least_words=least_words,
        negators=frozenset(_fold(word) for word in (NEGATORS if negators is None else negators)),
    )


def _required_entries(keywords: Any, row: int | None, terms: list[Any] | None) -> tuple[Entry, ...]:
    """Return the entries of a row and of all rows, each once."""
    of_all = _parse_entries(terms, "terms", None) if terms is not None else ()
    of_row = _parse_entries(keywords, "keywords", row) if keywords is not None or not of_all else ()
    return tuple(dict.fromkeys((*of_row, *of_all)))


def _parse_entries(value: Any, name: str, row: int | None) -> tuple[Entry, ...]:
    """Parse an option or, if `name` is "keywords", the column of a row."""
    where = f"option {name}"
    if name == "keywords":
        where = "column keywords" if row is None else f"column keywords, row {row} of the batch"
    example = '["refund", ["14 days", "two weeks"]]'
    if not isinstance(value, list) or not value:
        problem = "it is missing" if value is None else f"{value!r:.80} is no list, or empty"
        raise InputError(
            f"Reward keyword_coverage, {where}: {problem}. Write a list of terms, like {example}.",
            kind="invalid-row" if name == "keywords" else "invalid-value",
            key=name,
            row=row,
        )
    entries = []
    for entry in value:
        synonyms = entry if isinstance(entry, list) else [entry]
        if not synonyms or not all(isinstance(term, str) and _is_term(term) for term in synonyms):
            raise InputError(
                f"Reward keyword_coverage, {where}: {entry!r:.80} is neither a term nor a list of synonyms. A term is "
                f"text with a letter or a digit, of at most {MAX_TERM_CHARACTERS} characters, as in {example}.",
                kind="invalid-row" if name == "keywords" else "invalid-value",
                key=name,
                row=row,
            )
        entries.append(tuple(synonyms))
    return tuple(entries)


def _is_term(text: str) -> bool:
    return len(text) <= MAX_TERM_CHARACTERS and any(character.isalnum() for character in text)


@lru_cache(maxsize=8192)
def _pattern(term: str) -> re.Pattern[str]:
    """Compile a pattern that finds the term as a whole word in folded text."""
    folded = _fold(term).strip()
    body = r"(?:\s{1,8}|[-‐])".join(re.escape(part) for part in _SEPARATOR.split(folded))
    first, last = folded[0], folded[-1]
    before = after = ""
    if re.match(_SPACED_WORD, first):
        before = rf"(?<!{_SPACED_WORD})(?<!{_SPACED_WORD}[-‐_])"
    if first.isdigit():
        before += r"(?<!\d[.,])"
    if re.match(_SPACED_WORD, last):
        # "C" is neither in C++ nor in C#, "can" not in can't; "refund" is in refund's.
        after = rf"(?!{_SPACED_WORD})(?![-‐_]{_SPACED_WORD})(?!\+\+|\#)(?!['’]t\b)"
    if last.isdigit():
        after += r"(?![.,]\d)"
    return re.compile(before + body + after)


# ----------------------------------------------------------------------------------------------------------------------
# Mentions


Mention = tuple[int, int]  # start and end in the text


def _score(completion: Any, required: Sequence[Entry], rules: _KeywordRules) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    text = _fold(own_turn(completion_text(completion))[:MAX_CHARACTERS])
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    bounds = [0, *ends, len(text)]
    steps = [f"Read {len(text):,} characters of the own turn."]

    for entry in rules.forbidden:
        for mention in _mentions(text, entry):
            if _negator(text, bounds, mention, rules.negators) is None:
                steps.append(f"{_names(entry)} is forbidden and named: {_around(text, mention)}.")
                return 0.0, steps

    mentions_of_entries = [_mentions(text, entry) for entry in required]
    all_mentions = [mention for mentions in mentions_of_entries for mention in mentions]
    poor = _poor_sentences(text, bounds, all_mentions, rules.least_words)
    counted: list[list[Mention]] = []
    for entry, mentions in zip(required, mentions_of_entries, strict=True):
        valid: list[Mention] = []
        problem = "is not named"
        for mention in mentions:
            negator = _negator(text, bounds, mention, rules.negators)
            if negator is not None:
                problem = f"is negated by {negator!r}: {_around(text, mention)}"
            elif _sentence(bounds, mention) in poor:
                problem = f"is in a sentence with too few other words: {_around(text, mention)}"
            else:
                valid.append(mention)
        steps.append(f"{_names(entry)} {f'is named: {_around(text, valid[0])}' if valid else problem}.")
        counted.append(valid)

    number = _in_order(counted) if rules.ordered else sum(bool(mentions) for mentions in counted)
    steps.append(f"{number} of {len(required)} count{', in their order' if rules.ordered else ''}.")
    if rules.full:
        return float(number == len(required)), steps
    return number / len(required), steps


def _fold(text: str) -> str:
    """Remove differences of case and width, piece by piece: NFKC needs quadratic time for a long run of accents."""
    if not text.isascii():
        text = _PIECE.sub(lambda piece: unicodedata.normalize("NFKC", piece[0]), text)
    return text.casefold().replace("’", "'")


def _mentions(text: str, entry: Entry) -> list[Mention]:
    """Find the mentions of an entry, in text order."""
    return sorted({match.span() for term in entry for match in _pattern(term).finditer(text)})


def _sentence(bounds: Sequence[int], mention: Mention) -> int:
    return bisect_right(bounds, mention[0], hi=len(bounds) - 1) - 1


def _poor_sentences(text: str, bounds: Sequence[int], mentions: Iterable[Mention], least_words: int) -> set[int]:
    """Return the sentences with mentions and too few other words."""
    by_sentence: dict[int, set[tuple[int, int]]] = {}
    for mention in mentions:
        by_sentence.setdefault(_sentence(bounds, mention), set()).add(mention)
    poor = set()
    for sentence, spans in by_sentence.items():
        start, end = bounds[sentence], bounds[sentence + 1]
        others: set[str] = set()
        apart = 0  # mentions that do not overlap an earlier one
        for span_start, span_end in sorted(spans):
            if span_start >= start:
                others.update(filter(_is_content_word, iterate_words(text[start:span_start])))
                apart += 1
            start = max(start, span_end)
        others.update(filter(_is_content_word, iterate_words(text[start:end])))
        if least_words and len(others) < max(least_words, apart):
            poor.add(sentence)
    return poor


def _is_content_word(word: str) -> bool:
    """Whether a word counts: numbers and single Latin letters are the cheapest filler."""
    return not word[0].isdigit() and (len(word) > 1 or not word.isascii())


def _negator(text: str, bounds: Sequence[int], mention: Mention, negators: frozenset[str]) -> str | None:
    """Return the word that negates the mention, or None."""
    sentence = _sentence(bounds, mention)
    left = text[max(bounds[sentence], mention[0] - 120) : mention[0]]
    for clause_end in list(_CLAUSE_END.finditer(left))[-1:]:
        left = left[clause_end.end() :]
    before = [_bare(word) for word in left.split()[-_WINDOW_LEFT:]]
    for index in reversed(range(len(before))):
        if before[index] == "than" and before[index - 1 : index] != ["rather"]:
            break  # "does not take longer than 14 days"
        if _negates(before, index, negators):
            return before[index]
    right = text[mention[1] : min(bounds[sentence + 1], mention[1] + 60)]
    after = [_bare(word) for word in _CLAUSE_END.split(right, maxsplit=1)[0].split()]
    for index in range(min(_WINDOW_RIGHT, len(after))):
        if _negates(after, index, negators):
            return after[index]
    return None


def _negates(words: Sequence[str], index: int, negators: frozenset[str]) -> bool:
    word = words[index]
    after = words[index + 1] if index + 1 < len(words) else ""
    if "not" in negators and ((word, after) in _PAIRS or word.endswith("n't")):
        return True
    return word in negators and after not in _HARMLESS_AFTER


def _bare(word: str) -> str:
    return word.strip(".!?*_`'~")


def _in_order(counted: Sequence[Sequence[Mention]]) -> int:
    """Return the largest number of entries with mentions in the order of the entries."""
    # earliest[k]: the earliest end of k + 1 chosen entries.
    earliest: list[int] = []
    for mentions in counted:
        starts = [mention[0] for mention in mentions]
        for chosen in range(len(earliest), -1, -1):
            at = bisect_left(starts, earliest[chosen - 1] if chosen else 0)
            if at == len(starts):
                continue
            end = mentions[at][1]
            if chosen == len(earliest):
                earliest.append(end)
            else:
                earliest[chosen] = min(earliest[chosen], end)
    return len(earliest)


def _names(entry: Entry) -> str:
    return " or ".join(repr(term) for term in entry)


def _around(text: str, mention: Mention) -> str:
    return repr(" ".join(text[max(0, mention[0] - 30) : mention[1] + 30].split()))
