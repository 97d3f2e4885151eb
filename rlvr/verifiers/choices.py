"""The choice that a turn states: a letter, or the text of a choice. Read strictly, since a guess is cheap.

A statement is one of

- `\\boxed{C}` and `<answer>C</answer>`;
- a sentence: "The answer is (C).", "Answer: C) Paris", "The correct option is C because …";
- without any of these, a line that is nothing but a choice, if the turn ends in it: "C", "**C**", "C. Paris", "Paris";
  or if the turn begins with it, and a paragraph of reasons follows that denies nothing.

All statements of a turn must name the same choice, and the rest of the first one's sentence no other letter. "A or B",
"AC", "C/D", "Cat" and "C. Rome", where Rome is D, state nothing. A denial, a report, a question and a supposition ("if
the answer is B") are no statements; what takes a statement back ("Or C.") makes the turn state nothing. Letters of
other scripts are no letters; full-width ones are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_CHARACTERS = 1_000_000
MAX_STATEMENTS = 1000
MAX_BEHIND = 200  # characters behind a choice's text in which the text of another is looked for
MAX_LINE = 2000  # characters of a line that is nothing but a choice

_PIECE = re.compile(r"\S{1,200}")  # NFKC needs quadratic time for a long run of accents
_OPEN = r"[ \t#*_`\"'“‘(\[{$]"
_CLOSE = r"[*_`\"'”’)\]}$]"
_OPENING = re.compile(rf"(?:{_OPEN}|\\text\w{{0,2}}\{{|\\math\w\w\{{|\\\()*+")
_KIND = re.compile(r"(?:the[ ])?(?:option|choice|letter|answer)[ ]{1,3}(?=[(*\[]{0,4}[A-Za-z]\b)", re.IGNORECASE)
_LABEL = re.compile(rf"([A-Za-z])((?:{_CLOSE}|\\\))*+)(?![\w+#&/]|[-'’]\w)")
_LEAD = re.compile(
    r"\b(?:(?:ans(?:wer)?|choice|option)(?:[ ](?:choice|option|letter))?(?:[ ]to[ ][^.:\n]{1,60}?)?[*_`]{0,4}[ ]{0,3}"
    r"(?:is\b|would[ ]be\b|must[ ]be\b|should[ ]be\b|[:=]|[-–—](?=[ ]))"
    r"|I(?:'ll|[ ]will|[ ]would)?[ ](?:choose|pick|select)\b)"
    r"[*_`: \t]{0,8}\n{0,2}(?:(?:therefore|thus|then|clearly|indeed|simply)[, ]{1,2})?",
    re.IGNORECASE,
)
# What denies, reports or supposes "the answer is", right before it: "I don't think that", "he says", "if".
_UNASSERTED = re.compile(
    r"(?:(?:n't|\b(?:not|never|cannot))[ ](?:really[ ]|yet[ ]|the[ ])?"
    r"(?:think|believe|say|mean|sure|certain|true|case|clear|correct|follow)"
    r"|\b(?:false|wrong|untrue|incorrect|doubt|doubtful|possible|impossible|unlikely|unclear|first[ ]glance)"
    r"|\b(?:says?|said|claims?|claimed|thinks|thought|argues?|believes|guess|wrote|suggests?|people[ ]think)"
    r"|\b(?:if|whether|unless|suppose|assume|assuming|why)"
    r"|\bif\b[^.:;?!\n]{0,60}\b(?:were|had)\b[^.:;?!\n]{0,60},)"
    r"[ ](?:that[ ])?(?:then[ ])?(?:the[ ]|my[ ]|our[ ]|its[ ])?(?:(?:final|correct|right|best)[ ])*$"
    r"|\b(?:each|every|any)[ ]$",
    re.IGNORECASE,
)
# "Hence, option C is correct.", "So this corresponds to option C."
_CONCLUDED = re.compile(
    r"(?:^|[.!?:]\s)[*_]{0,2}(?:Hence|Therefore|Thus|So),?[ ]"
    r"(?:(?:this|that|it|which)[ ](?:corresponds[ ]to|matches|is)[ ](?:the[ ])?(?:correct[ ])?"
    r"(?:option|choice|answer)[ ](?=[(*\[]{0,3}[A-Z][)*\]]{0,3}[.!])"
    r"|(?:the[ ])?(?:correct[ ])?(?:option|choice|answer)[ ]"
    r"(?=[(*\[]{0,3}[A-Z][)*\]]{0,3}[ ]is[ ](?:the[ ])?(?:correct|right|true|best)"
    r"(?:[ ](?:answer|option|choice))?[.!]))",
    re.MULTILINE,
)
_COVERED = re.compile(
    r"[\s$*(\\:]{0,8}(?:f?boxed\b|<answer>)|[^\n.!?]{0,30}\b(?:answer|choice|option)[*_]{0,4}(?:[ ]is\b|:)",
    re.IGNORECASE,
)
_BOX = re.compile(r"\\(?:f?boxed|fbox)\s{0,4}\{((?:[^{}]|\{[^{}]*\}){0,2000})\}")
_TAG = re.compile(r"<answer>([^<>]{0,2000})</answer>", re.IGNORECASE)
_ANY_BOX_OR_TAG = re.compile(r"\\(?:f?boxed|fbox)\b|<answer>", re.IGNORECASE)
_CONNECTIVE = re.compile(r"[ ]{0,8}(?:(?:so|thus|hence|therefore|finally),?[ ])?(?:it(?:'s|[ ]is)[ ])?", re.IGNORECASE)
_NAMED = re.compile(r"(?<![\w'’&\\-])(?<![0-9] )(?:([A-Z])(?![\w'’&]|-\w)|(?<=\()([a-z])(?=\)))")
_SENTENCE_WORD = re.compile(
    r"[ ](?!(?:is|and|or|was|seems|would|could|might|may|fits|too)\b)[a-z]"
)  # "A whale", "I hope"
_ALTERNATIVE = re.compile(r"[\s,;.]*(?:or|and|nor|and/or)\b|[\s*_]*[/&?]", re.IGNORECASE)
_RETRACTION = re.compile(
    r"\b(?:wait|actually|correction|scratch that|on second thought|i was wrong"
    r"|(?:that|this|it|which)(?:[ ]is|'s|[ ]was|[ ]seems)[ ](?:wrong|incorrect|false|not[ ](?:right|correct)))\b",
    re.IGNORECASE,
)
# A sentence that takes back or widens the one before: "No, C.", "Or C.", "It could also be C."
_SENTENCE = re.compile(r"[.!?](?=\s)|\n")
_OTHERWISE = re.compile(
    r"\W*(?:no|or|nor|maybe|perhaps|possibly|alternatively|either|rather|instead|but|however)\b"
    r"|[^.!?\n]{0,40}\b(?:may|might|could|can)[ ](?:also[ ]|as[ ]well[ ])?be\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"\b(?:wrong|incorrect|not|never|no|but|however)\b|n't\b", re.IGNORECASE)
_VERDICT = re.compile(
    r"(?:is|must be)[ ](?:(?:the[ ])?(?:correct|right|best)(?:[ ](?:answer|option|choice))?|the[ ]answer)"
    r"(?:,?[ ](?:because|since)\b(?P<reason>.*))?\W*$",
    re.IGNORECASE,
)
_REASON = re.compile(r"[ ](?:because|since|as|for|due|is|which)\b")
_SEPARATOR = re.compile(r"(?:[ .:),;–—~-]|\\[ ,;:!]|\*)*+")
_SEVERAL = re.compile(r"[A-Z]{2,26}\b")


@dataclass(frozen=True)
class ChoiceReading:
    """What a turn states: the letter of a choice, or None; and why."""

    letter: str | None
    why: str


@dataclass(frozen=True)
class _Statement:
    """A stated choice, the place behind it, and the place where its line ends."""

    letter: str
    end: int
    line_end: int


class _Contradiction(Exception):
    """A turn names several choices."""


def read_choice(turn: str, choices: Sequence[str] = ()) -> ChoiceReading:
    """Read the choice that a turn states.

    Args:
        choices: the texts of the choices A, B, …; without them, any letter is a choice, and no text.
    """
    if len(turn) > MAX_CHARACTERS:
        return ChoiceReading(None, f"The turn is longer than {MAX_CHARACTERS:,} characters.")
    if not turn.isascii():
        turn = _PIECE.sub(lambda piece: unicodedata.normalize("NFKC", piece[0]), turn)
    options = tuple(choices)
    try:
        stated = _agreeing(_explicit_statements(turn, options))
        if stated:
            _check_rest(turn, stated[0], len(options) or len(LETTERS))
            stated = _agreeing([*stated, *_lines(turn, options, stated[0].line_end)])
        else:
            stated = _agreeing(_lines(turn, options, 0))
            if not stated or (turn[stated[-1].line_end :].strip() and not _opens_turn(turn, stated[0])):
                return ChoiceReading(None, "No statement of an answer was found.")
            if turn[stated[-1].line_end :].strip():
                _check_rest(turn, stated[0], len(options) or len(LETTERS))
    except _Contradiction as error:
        return ChoiceReading(None, f"The turn states no single choice: {error}.")
    return ChoiceReading(stated[0].letter, f"The turn states {stated[0].letter}.")


def _opens_turn(turn: str, first: _Statement) -> bool:
    """Whether a line is the first one, and a paragraph follows that denies nothing."""
    before, after = turn[: first.end].strip(), turn[first.line_end :]
    return "\n" not in before and after.startswith("\n\n") and not _DENIAL.search(after)


def reference_letter(gold: str, choices: Sequence[str] | None) -> str | None:
    """Return the letter of the right choice, which is given by its letter or its text; None if it is none."""
    letter = gold.strip().upper()
    if len(letter) == 1 and letter in LETTERS[: len(choices or LETTERS)]:
        return letter
    return LETTERS[choices.index(gold)] if choices and gold in choices else None


def reference_fault(gold: Any, choices: Any) -> str | None:
    """Return why no turn can state the right choice, as the rest of a sentence about a row; None if one can."""
    if choices is not None:
        if not isinstance(choices, list) or not all(isinstance(choice, str) and choice.strip() for choice in choices):
            return "choices that are no list of texts"
        if not 2 <= len(choices) <= len(LETTERS):
            return f"a number of choices that is not from 2 to {len(LETTERS)}"
        if len({" ".join(choice.split()) for choice in choices}) < len(choices):
            return "two equal choices"
    if not isinstance(gold, str) or reference_letter(gold, choices) is None:
        return "an answer that is none of its choices"
    return None


def _agreeing(statements: Iterable[_Statement]) -> list[_Statement]:
    """Return the statements in the order of the text, if all of them name one choice."""
    found: list[_Statement] = []
    for statement in statements:
        found.append(statement)
        if statement.letter != found[0].letter:
            raise _Contradiction(f"both {found[0].letter} and {statement.letter} are stated")
        if len(found) > MAX_STATEMENTS:
            raise _Contradiction(f"it has more than {MAX_STATEMENTS:,} statements")
    return sorted(found, key=lambda statement: statement.end)


def _explicit_statements(turn: str, choices: tuple[str, ...]) -> Iterator[_Statement]:
    """Yield the choices in boxes, tags and sentences."""
    closed = 0
    for pattern in (_BOX, _TAG):
        for match in pattern.finditer(turn):
            closed += 1
            content = match[1].strip()
            stated = _read(content, 0, choices)
            if stated is None or not _is_no_more(content[stated.end :], choices):
                _check_unread(content, len(choices) or len(LETTERS))
                continue
            yield _Statement(stated.letter, match.end(), _line_end(turn, match.end()))
    if closed != sum(1 for _ in _ANY_BOX_OR_TAG.finditer(turn)):
        raise _Contradiction("a box or a tag is nested or not closed")
    for lead in _CONCLUDED.finditer(turn):
        if (stated := _read(turn, lead.end(), choices)) is not None:
            yield stated
    for number, lead in enumerate(_LEAD.finditer(turn)):
        if number == MAX_STATEMENTS:
            raise _Contradiction(f"it has more than {MAX_STATEMENTS:,} statements")
        before = turn[max(turn.rfind("\n", 0, lead.start()) + 1, lead.start() - 80) : lead.start()]
        if _COVERED.match(turn, lead.end()) or _UNASSERTED.search(before):
            continue
        stated = _read(turn, lead.end(), choices)
        if stated is None:
            _check_unread(turn[lead.end() : _line_end(turn, lead.end())], len(choices) or len(LETTERS))
        elif turn[stated.end : stated.end + 1] != "?":
            yield stated


def _check_unread(text: str, count: int) -> None:
    """Refuse an answer that names letters, but not one of them in a form that can be read."""
    text = _SENTENCE.split(text[:1000], 1)[0]
    several = _SEVERAL.match(text)
    letters = LETTERS[:count]
    named = any(letter in letters for letter in _named(text)) or (several and set(several[0]) <= set(letters))
    if named and not re.match(r"(?:not|n't|never)\b", text, re.IGNORECASE):
        raise _Contradiction(f"{text[:60]!r} is not one choice")


def _check_rest(turn: str, first: _Statement, count: int) -> None:
    """Refuse another letter, or a retraction, after the first statement."""
    rest = turn[first.end :]
    if _RETRACTION.search(rest):
        raise _Contradiction(f"{first.letter} is retracted")
    for place, sentence in enumerate(_SENTENCE.split(rest)):
        if place and not _OTHERWISE.match(sentence):
            continue  # "A, C and D are cities in other countries."
        for letter in _named(sentence):
            if letter != first.letter and letter in LETTERS[:count]:
                raise _Contradiction(f"{letter} is named after {first.letter}")


def _named(text: str) -> Iterator[str]:
    """Yield the letters that stand alone, less the words A and I of a sentence."""
    for match in _NAMED.finditer(text):
        if not (match[1] and match[1] in "AI" and _SENTENCE_WORD.match(text, match.end())):
            yield (match[1] or match[2]).upper()


def _lines(turn: str, choices: tuple[str, ...], start: int) -> Iterator[_Statement]:
    """Yield the lines from `start` that are nothing but a choice."""
    while start < len(turn):
        end = _line_end(turn, start)
        if end - start < MAX_LINE and turn[start:end].strip():
            connective = _CONNECTIVE.match(turn, start)
            stated = _read(turn, connective.end() if connective else start, choices)
            rest = turn[stated.end : end] if stated else ""
            verdict = _VERDICT.match(rest.strip())
            if verdict and any(_named(verdict["reason"] or "")):
                verdict = None
            if stated and "?" not in rest and (verdict or _is_no_more(rest, choices)):
                yield stated
        start = end + 1


def _is_no_more(rest: str, choices: tuple[str, ...]) -> bool:
    """Whether the rest of a line adds nothing to a choice. If the texts of the choices are unknown, one may follow."""
    if choices or not re.match(r"[*_]{0,3}[.:)]", rest):
        return not re.search(r"\w", rest)
    return not any(_named(rest))


def _read(text: str, start: int, choices: tuple[str, ...]) -> _Statement | None:
    """Read a choice that begins at `start`; None if none does, or if another one follows at once."""
    opening = _OPENING.match(text, start)
    start = opening.end() if opening else start
    end = _line_end(text, start)
    letters, stop = _longest(text, start, choices)
    if len(letters) == 1:
        others = [one for letter, one in zip(LETTERS, choices, strict=False) if letter != letters]
        near = min(end, stop + MAX_BEHIND)
        if _ALTERNATIVE.match(text, stop) or any(_pattern(one).search(text, stop, near) for one in others):
            return None
        return _Statement(letters, stop, end)
    kind = _KIND.match(text, start)
    opened = text[opening.start() : start] if opening else ""
    if kind:
        opening = _OPENING.match(text, kind.end())
        opened, start = (opening[0], opening.end()) if opening else ("", kind.end())
    label = _LABEL.match(text, start)
    if label is None:
        return None
    letter, stop = label[1].upper(), label.end()
    is_marked = bool(kind) or any(sign in opened + label[2] for sign in "([{*$`") or text[stop : stop + 1] in ".:),;"
    is_alone = not text[stop:end].strip(" .!")
    if letter not in LETTERS[: len(choices) or len(LETTERS)] or (label[1].islower() and not (is_marked or is_alone)):
        return None
    if letter in "AI" and not is_marked and _SENTENCE_WORD.match(text, stop) and not _REASON.match(text, stop):
        return None
    if _ALTERNATIVE.match(text, stop):
        return None
    separator = _SEPARATOR.match(text, stop)
    follows = separator.end() if separator else stop
    letters, described = _longest(text, follows, choices)
    if letters and (letter not in letters or _ALTERNATIVE.match(text, described)):
        return None
    return _Statement(letter, described if letters else stop, end)


def _longest(text: str, start: int, choices: tuple[str, ...]) -> tuple[str, int]:
    """Return the letters of the longest choice whose text begins at `start`, and its end; "" if none does.

    Case matters only between choices that differ in nothing else. A choice of one letter is not read as text.
    """
    ends = {}
    for letter, choice in zip(LETTERS, choices, strict=False):
        if (len(choice.strip()) > 1 or choice.strip().isdigit()) and (match := _pattern(choice).match(text, start)):
            ends[letter] = match.end()
    end = max(ends.values(), default=start)
    letters = [letter for letter in ends if ends[letter] == end]
    same_case = [
        letter for letter in letters if text.startswith(choices[LETTERS.index(letter)].strip().rstrip("."), start)
    ]
    return "".join(same_case if len(letters) > 1 and same_case else letters), end


@lru_cache(maxsize=4096)
def _pattern(choice: str) -> re.Pattern[str]:
    words = unicodedata.normalize("NFKC", choice[:2000]).strip().rstrip(".").split()
    return re.compile(r"(?<![\w.-])" + r"[ \t]+".join(map(re.escape, words)) + r"(?![\w%]|[.,]\d|-\w)", re.IGNORECASE)


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return end if end >= 0 else len(text)
