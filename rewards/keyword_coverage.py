"""The share of required terms that an answer names in whole sentences: for texts that no verifier can compute.

    keywords: ["refund", ["14 days", "two weeks"]]        # a row's column, plain JSON; an inner list holds synonyms
    forbidden: ["guaranteed"]                             # an option for all rows

"You get a refund within two weeks of buying it." names both, and earns 1.

A mention counts
- in the model's own turn only: not in its thoughts, and not in the next problem that it invents;
- as a whole word: "cat" is not in "category" or in "cat-like", "14 days" not in "114 days", "C" not in "C++". Case, the
  width of characters (Unicode's NFKC), and spaces against hyphens make no difference. Other forms of a word do: list
  "refund" and "refunds" as synonyms. Chinese, Japanese and Thai have no word boundaries and are searched as they are;
- unless it is negated: "no refund", "isn't refundable", "without any refund", "a refund is not possible". Negators are
  looked for among the `_WINDOW_LEFT` words before and the `_WINDOW_RIGHT` words after it, up to the nearest comma or
  other sign. "Not only" and "no later than 14 days" negate nothing. Double negation is not understood;
- in a sentence that says something: with at least `least_words` different words beside the terms, and as many as it
  has mentions; numbers and single letters are none. So a bare list of the keywords earns nothing. Naming a term twice
  earns no more than once.

What it can be fooled by: this reads words, not sense. A sentence of filler around the terms ("You asked about a refund
and about 14 days") earns the same as a right answer, and so does repeating a question that holds the terms. A denial in
other words ("a refund is out of reach") is not seen. Where a negator is near, it says wrong ("If you are not happy we
refund" earns nothing for the refund). Use it beside a reward that judges the whole, with a small weight, and read what
the policy writes.
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
    "no", "not", "never", "without", "cannot", "neither", "nor", "none", "nothing", "nobody", "hardly", "lack", "lacks",
    "refuse", "refuses", "deny", "denies", "exclude", "excludes", "excluding",
)  # fmt: skip
# "no later than", "not only", "no doubt": what follows is said, not denied.
_HARMLESS_AFTER = frozenset(
    ("only", "just", "merely", "later", "more", "less", "longer", "fewer", "earlier", "sooner", "least", "doubt",
     "problem", "matter", "worries")
)  # fmt: skip
_PAIRS = (("instead", "of"), ("rather", "than"))
_WINDOW_LEFT = 5
_WINDOW_RIGHT = 2

# A sentence ends at its sign, at an empty line, and before a line that opens with a list's mark or a heading's.
_SENTENCE_END = re.compile(
    r"[.!?…]{1,8}[\"')\]*_”]{0,4}(?=\s|\Z)|[。！？]|;(?=\s)|\n\s{0,8}\n|\n[ \t]{0,16}(?=[-*•#|>]|\d{1,3}[.)]\s)"
)
# A negation reaches no further than to one of these, or to a dash between spaces.
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
    """The share of the required terms that are named, 0 to 1; 0 where a forbidden one is.

    Args:
        completions: strings, or lists of chat messages. The first 100,000 characters of the own turn are read.
        keywords: a column of the data, where it has one: for each row a list of entries. An entry is a term, or a list
            of synonyms of which any will do; every entry counts the same.
        terms: entries for all rows, beside those of the row or instead of them.
        forbidden: entries that must not be named in any row; a negated mention ("this is not guaranteed") is none.
        full: whether to pay for all entries or nothing.
        ordered: whether the entries must be named in their order; paid is the longest run of them that is in order.
        least_words: how many different other words a sentence must have for its mentions to count. 0 counts all.
        negators: the words that negate, in place of the English ones, in a language with spaces between words.

    Returns:
        A number from 0 to 1 for each completion.

    Raises:
        InputError: neither keywords nor terms, an entry that is neither a term nor a list of terms (with its row), not
            one list of keywords for each completion, or an option of the wrong kind.
    """
    if keywords is not None and (not isinstance(keywords, list) or len(keywords) != len(completions)):
        there = f"{len(keywords)} lists" if isinstance(keywords, list) else f"{keywords!r:.80}"
        raise InputError(
            f"Reward keyword_coverage: the column keywords has {there} for {len(completions)} completions. "
            "Give one list each; what holds for all rows goes into the option terms."
        )
    rows = [None] * len(completions) if keywords is None else keywords
    wanted = [_wanted(row, f"row {number} of the batch", terms) for number, row in enumerate(rows)]
    rules = _rules(forbidden, full, ordered, least_words, negators)
    return [_judge(completion, entries, rules)[0] for completion, entries in zip(completions, wanted, strict=True)]


def validate_rows(
    *,
    keywords: list[Any] | None = None,
    terms: list[Any] | None = None,
    forbidden: list[Any] | None = None,
    **kwargs: Any,
) -> list[str | None]:
    """For each row of the data, what is wrong with its keywords, or None. Called once, before training.

    Raises:
        InputError: the terms for all rows or the forbidden ones are malformed.
    """
    for name, entries in (("terms", terms), ("forbidden", forbidden)):
        if entries is not None:
            _entries(entries, f"option {name}")
    faults: list[str | None] = []
    for row in keywords or []:
        try:
            _wanted(row, "this row", terms)
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
    """Why `keyword_coverage` gives this completion its reward: a sentence a step, the last one says the reward.

    Args: as `keyword_coverage`, for one row.
    """
    entries = _wanted(keywords, "this row", terms)
    reward, steps = _judge(completion, entries, _rules(forbidden, full, ordered, least_words, negators))
    return [*steps, f"Reward: {reward:g}"]


# ----------------------------------------------------------------------------------------------------------------------
# What is asked for

Entry = tuple[str, ...]


@dataclass(frozen=True)
class _Rules:
    """The options that hold for all rows, checked."""

    forbidden: tuple[Entry, ...]
    full: bool
    ordered: bool
    least_words: int
    negators: frozenset[str]


def _rules(
    forbidden: list[Any] | None, full: bool, ordered: bool, least_words: int, negators: list[str] | None
) -> _Rules:
    if isinstance(least_words, bool) or not isinstance(least_words, int) or least_words < 0:
        raise InputError(
            f"Reward keyword_coverage, option least_words: {least_words!r} is not a whole number of 0 or more."
        )
    if negators is not None and not (isinstance(negators, list) and all(isinstance(word, str) for word in negators)):
        raise InputError(f"Reward keyword_coverage, option negators: {negators!r:.80} is not a list of words.")
    return _Rules(
        forbidden=_entries(forbidden, "option forbidden") if forbidden is not None else (),
        full=full,
        ordered=ordered,
        least_words=least_words,
        negators=frozenset(_folded(word) for word in (NEGATORS if negators is None else negators)),
    )


def _wanted(row: Any, where: str, terms: list[Any] | None) -> tuple[Entry, ...]:
    """The entries of a row and those of all rows, each once."""
    of_all = _entries(terms, "option terms") if terms is not None else ()
    of_row = _entries(row, f"column keywords, {where}") if row is not None or not of_all else ()
    return tuple(dict.fromkeys((*of_row, *of_all)))


def _entries(value: Any, where: str) -> tuple[Entry, ...]:
    example = '["refund", ["14 days", "two weeks"]]'
    if not isinstance(value, list) or not value:
        is_none = "there is none" if value is None else f"{value!r:.80} is no list with something in it"
        raise InputError(f"Reward keyword_coverage, {where}: {is_none}. Write a list of terms, like {example}.")
    entries = []
    for entry in value:
        synonyms = entry if isinstance(entry, list) else [entry]
        if not synonyms or not all(isinstance(term, str) and _is_term(term) for term in synonyms):
            raise InputError(
                f"Reward keyword_coverage, {where}: {entry!r:.80} is neither a term nor a list of synonyms. A term is "
                f"text with a letter or a digit in it, of at most {MAX_TERM_CHARACTERS} characters, as in {example}."
            )
        entries.append(tuple(synonyms))
    return tuple(entries)


def _is_term(text: str) -> bool:
    return len(text) <= MAX_TERM_CHARACTERS and any(character.isalnum() for character in text)


@lru_cache(maxsize=8192)
def _pattern(term: str) -> re.Pattern[str]:
    """Finds the term as a whole word in folded text."""
    folded = _folded(term).strip()
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
# What is there


@dataclass(frozen=True)
class _Mention:
    start: int
    end: int


def _judge(completion: Any, wanted: Sequence[Entry], rules: _Rules) -> tuple[float, list[str]]:
    """The reward, and the sentences that explain it."""
    text = _folded(own_turn(completion_text(completion))[:MAX_CHARACTERS])
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    bounds = [0, *ends, len(text)]
    steps = [f"Read {len(text):,} characters of the own turn."]

    for entry in rules.forbidden:
        for mention in _mentions(text, entry):
            if _negator(text, bounds, mention, rules.negators) is None:
                steps.append(f"{_names(entry)} is forbidden and named: {_around(text, mention)}.")
                return 0.0, steps

    found = [_mentions(text, entry) for entry in wanted]
    poor = _poor_sentences(text, bounds, [mention for mentions in found for mention in mentions], rules.least_words)
    counted: list[list[_Mention]] = []
    for entry, mentions in zip(wanted, found, strict=True):
        good: list[_Mention] = []
        fault = "is not named"
        for mention in mentions:
            negator = _negator(text, bounds, mention, rules.negators)
            if negator is not None:
                fault = f"is negated by {negator!r}: {_around(text, mention)}"
            elif _sentence(bounds, mention) in poor:
                fault = f"stands in a sentence that says too little else: {_around(text, mention)}"
            else:
                good.append(mention)
        steps.append(f"{_names(entry)} {f'is named: {_around(text, good[0])}' if good else fault}.")
        counted.append(good)

    number = _in_order(counted) if rules.ordered else sum(bool(mentions) for mentions in counted)
    steps.append(f"{number} of {len(wanted)} count{', in their order' if rules.ordered else ''}.")
    if rules.full:
        return float(number == len(wanted)), steps
    return number / len(wanted), steps


def _folded(text: str) -> str:
    """Without differences of case and width. In pieces, as sorting a long row of accents takes quadratic time."""
    if not text.isascii():
        text = _PIECE.sub(lambda piece: unicodedata.normalize("NFKC", piece[0]), text)
    return text.casefold().replace("’", "'")


def _mentions(text: str, entry: Entry) -> list[_Mention]:
    """Where one of the synonyms stands, in the order of the text."""
    spans = {match.span() for term in entry for match in _pattern(term).finditer(text)}
    return [_Mention(*span) for span in sorted(spans)]


def _sentence(bounds: Sequence[int], mention: _Mention) -> int:
    return bisect_right(bounds, mention.start, hi=len(bounds) - 1) - 1


def _poor_sentences(text: str, bounds: Sequence[int], mentions: Iterable[_Mention], least_words: int) -> set[int]:
    """The sentences with mentions that have too few words beside them."""
    by_sentence: dict[int, set[tuple[int, int]]] = {}
    for mention in mentions:
        by_sentence.setdefault(_sentence(bounds, mention), set()).add((mention.start, mention.end))
    poor = set()
    for sentence, spans in by_sentence.items():
        start, end = bounds[sentence], bounds[sentence + 1]
        others: set[str] = set()
        apart = 0  # mentions that do not overlap an earlier one
        for span_start, span_end in sorted(spans):
            if span_start >= start:
                others.update(filter(_says_something, iterate_words(text[start:span_start])))
                apart += 1
            start = max(start, span_end)
        others.update(filter(_says_something, iterate_words(text[start:end])))
        if least_words and len(others) < max(least_words, apart):
            poor.add(sentence)
    return poor


def _says_something(word: str) -> bool:
    """Numbers and single Latin letters are the cheapest filling."""
    return not word[0].isdigit() and (len(word) > 1 or not word.isascii())


def _negator(text: str, bounds: Sequence[int], mention: _Mention, negators: frozenset[str]) -> str | None:
    """The word that negates the mention, None if it stands as said."""
    sentence = _sentence(bounds, mention)
    left = text[max(bounds[sentence], mention.start - 120) : mention.start]
    for clause_end in list(_CLAUSE_END.finditer(left))[-1:]:
        left = left[clause_end.end() :]
    before = [_bare(word) for word in left.split()[-_WINDOW_LEFT:]]
    for index in reversed(range(len(before))):
        if before[index] == "than" and before[index - 1 : index] != ["rather"]:
            break  # "does not take longer than 14 days"
        if _negates(before, index, negators):
            return before[index]
    right = text[mention.end : min(bounds[sentence + 1], mention.end + 60)]
    after = [_bare(word) for word in _CLAUSE_END.split(right, maxsplit=1)[0].split()]
    for index in range(min(_WINDOW_RIGHT, len(after))):
        if _negates(after, index, negators):
            return after[index]
    return None


def _negates(said: Sequence[str], index: int, negators: frozenset[str]) -> bool:
    word = said[index]
    after = said[index + 1] if index + 1 < len(said) else ""
    if "not" in negators and ((word, after) in _PAIRS or word.endswith("n't")):
        return True
    return word in negators and after not in _HARMLESS_AFTER


def _bare(word: str) -> str:
    return word.strip(".!?*_`'~")


def _in_order(counted: Sequence[Sequence[_Mention]]) -> int:
    """The largest number of entries with mentions one behind the other, in the order of the entries."""
    # earliest[k]: where the first k + 1 entries that were chosen end at the earliest.
    earliest: list[int] = []
    for mentions in counted:
        starts = [mention.start for mention in mentions]
        for chosen in range(len(earliest), -1, -1):
            at = bisect_left(starts, earliest[chosen - 1] if chosen else 0)
            if at == len(starts):
                continue
            end = mentions[at].end
            if chosen == len(earliest):
                earliest.append(end)
            else:
                earliest[chosen] = min(earliest[chosen], end)
    return len(earliest)


def _names(entry: Entry) -> str:
    return " or ".join(repr(term) for term in entry)


def _around(text: str, mention: _Mention) -> str:
    return repr(" ".join(text[max(0, mention.start - 30) : mention.end + 30].split()))
