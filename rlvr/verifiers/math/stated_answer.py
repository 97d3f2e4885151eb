"""A final answer as a completion states it, and the text helpers that the extractors share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.normalize import closing_bracket
from rlvr.verifiers.math.numbers import is_unit_word

MAX_STATEMENTS = 1000  # of each kind; a turn that has more is no answer
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class StatedAnswer:
    """One statement of a final answer.

    Attributes:
        kind: the notation.
        start, end: span of the turn that was read.
        texts: possible readings, the most likely first: the whole text, then the text without an explanation.
        defect: why the text around it makes it no answer ("not \\boxed{42}"); empty if nothing does.
    """

    kind: Literal["mark", "box", "tag", "prose", "bare"]
    start: int
    end: int
    texts: tuple[str, ...]
    defect: str = ""

    @property
    def is_explicit(self) -> bool:
        return self.kind in ("mark", "box", "tag")


class TooManyStatements(Exception):
    """A turn has more statements of one kind than any answer needs."""


def limited(found: Iterable[_Found]) -> Iterator[_Found]:
    """Yield what is found. After `MAX_STATEMENTS`, raise TooManyStatements."""
    for count, one in enumerate(found):
        if count == MAX_STATEMENTS:
            raise TooManyStatements
        yield one


# "the final answer is", "**Answer:**", "answer to the question is equal to", "Ans:"
LEAD = (
    r"(?:answer[ \t*_`]{0,8}(?:[ \t]to[ \t][a-z \t']{1,60})?"
    r"(?:is\b|:|=|[ \t]?[-–—](?=[ \t]+[*$\\(]{0,3}[0-9])|"
    r"would[ ]be\b|equals\b|comes[ ]to\b|(?=\$|\\[(\[]))|(?-i:Ans|ANS)\.?[ \t*_`]{0,8}[:=])"
)
LEAD_REST = r"[ \t*_`:]{0,12}(?:(?:therefore|thus|then|simply|exactly|equal[ ]to)\b)?[ \t:]{0,4}"
LEAD_OF_LINE = re.compile(
    rf"[ \t*_`]{{0,8}}(?:(?:so|thus|therefore|hence),?[ ])?(?:the[ ]|our[ ]|my[ ])?(?:final[ ]|correct[ ])?"
    rf"(?:{LEAD}|answer[ \t*_`]{{0,8}}$){LEAD_REST}",
    re.IGNORECASE,
)
_BRACE = re.compile("[{}]")
BOX = re.compile(r"\\(?:f?boxed|fbox)[ ]{0,4}(?:\{|(?=[0-9]))")
# A formula in any of its delimiters.
FORMULA = re.compile(
    r"\$\$([^$]{1,500})\$\$|\$([^$\n]{1,500})\$|\\\(((?:[^\\\n]|\\(?!\))){1,500})\\\)"
    r"|\\\[((?:[^\\]|\\(?!\])){1,500})\\\]"
)
# A line that can be an answer by itself: a number with its unit, a formula, a few signs without a sentence.
STANDS_ALONE = re.compile(
    r"[\s*_`\"'(\[{+$€£¥₹₩~-]{0,8}(?:US\$)?\.?[0-9][^\n?]{0,120}"
    r"|\$.{1,480}\$\.?|\\[\[(].{1,480}\\[\])]\.?|[$\s]{0,3}[-(\[{]{0,3}\\[a-zA-Z{].{0,480}"
    r"|[(\[][^\n]{1,200}[)\]]\.?|[a-zA-Z]\s?(?:=|<|>|\\).{1,200}|[-(]?[a-zA-Z0-9][-+*/^0-9a-zA-Z(){}. ]{0,2}"
    r"|(?!.*[a-zA-Z]{4})[-+*/^=<>,a-zA-Z0-9(). ]{1,200}",
    re.DOTALL,
)
_WORDS_ALONE = re.compile(r"\(?[A-Za-z]\)?\.?|[A-Z][a-z]{1,20}(?: [A-Za-z]{1,20}){0,3}\.?|\\text\{[^{}]{1,60}\}")
ALONE = re.compile(rf"{_WORDS_ALONE.pattern}|{STANDS_ALONE.pattern}", re.DOTALL)
# Before a value: "about 42".
HEDGED = re.compile(
    r"[\s*_]{0,4}(?:not|about|approximately|approx|roughly|nearly|almost|maybe|perhaps|probably|none|around|either)\b",
    re.IGNORECASE,
)
# "Final Answer: The volume of the prism is 120."
_WHAT_IT_IS = re.compile(
    r"(?:The|So|Thus|Therefore|Hence|There|It|This)\b[^.=\n]{0,120}?\b(?:is|are|equals)[ ]+(?=[-$\\(0-9€£¥₹½¼¾])"
)
DOUBT = re.compile(
    r"\b(?:or|not|no|never|if|wait|actually|wrong|incorrect|alternatively|maybe|perhaps|instead|rather|sorry|hmm|guess"
    r"|unless|suppose|assume|cannot|impossible|except|but|doubt|doubtful|approximately|about|roughly|less|more|than"
    r"|step|first|greater|least|most|times|divided|and)\b|n['’]t\b|\?",
    re.IGNORECASE,
)
# "18. Janet sells the rest", "18, because …": an explanation follows, unless it retracts the answer.
_EXPLANATION = re.compile(
    r"\.\s+(?=[A-Z])(?![A-HJ-Z](?:[.,;)]|$))|,?\s(?:because|since|so|which|where)\b|;\s(?=[a-z]{2})"
)
_RETRACTION = re.compile(
    r"\b(?:or|not|no|wait|actually|wrong|incorrect|alternatively|maybe|perhaps|instead|rather|sorry|correction|hmm"
    r"|however|but|although|though|false|doubt|mistake|mistaken|error|either)\b"
    r"|n['’]t\b|\?",
    re.IGNORECASE,
)


# The end of the Minerva form. What follows on the line is a note, unless it retracts the answer.
_CLOSING = re.compile(
    r"\. I hope it is correct\b(?!.*\b(?:incorrect|wrong|mistakes?|mistaken|errors?|wait|actually|instead|sorry|false"
    r"|no(?=[,.])|or [-$\\0-9]))",
    re.IGNORECASE | re.DOTALL,
)


def possible_readings(text: str, *, exclaimed: bool = False) -> tuple[str, ...]:
    """List the readings of a statement: the whole, without its explanation, its formula alone.

    Args:
        exclaimed: read "!" at the end as punctuation, not as a factorial.
    """
    text = text.strip()
    readings = [text]
    explanation = _EXPLANATION.search(text)
    if explanation and not _RETRACTION.search(text, explanation.start(), explanation.end() + 240):
        readings.append(text[: explanation.start()].strip())
    elif closing := _CLOSING.search(text):
        readings.append(text[: closing.start()].strip())
    if exclaimed and text.endswith("!"):
        readings.append(text.rstrip("!"))
    lead = _WHAT_IT_IS.match(text)
    if lead and not DOUBT.search(text, 0, lead.end()):
        readings.append(readings[-1][lead.end() :])
    formula = FORMULA.match(text)
    if formula is not None and formula.end() < len(text):
        rest = readings[-1][formula.end() :]
        if all(is_unit_word(word) for word in re.findall(r"[^\s.,!*_]+", rest)):
            readings.append(text[: formula.end()])
        else:
            readings.append(readings[-1].replace("$", " ").replace("\\(", " ").replace("\\)", " "))
    return tuple(readings)


def line_from(turn: str, start: int) -> str:
    """Return the rest of the line, cut one character above the limit of an answer."""
    end = turn.find("\n", start, start + MAX_EXPRESSION + 1)
    return turn[start : end if end >= 0 else start + MAX_EXPRESSION + 1]


def next_line(turn: str, start: int) -> str:
    """Return the next line that is not blank, if it starts within 16 characters."""
    end = turn.find("\n", start, start + MAX_EXPRESSION + 1)
    if end < 0:
        return ""
    gap = turn[end : end + 16]
    return line_from(turn, end + len(gap) - len(gap.lstrip()))


def is_on_marked_line(turn: str, start: int) -> bool:
    before = turn[max(0, start - 48) : start]
    return "####" in before[before.rfind("\n") + 1 :]


def match_braces(text: str, start: int, end: int) -> dict[int, int]:
    """Return the index of the closing brace for the index behind each opening one, in one pass."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for brace in _BRACE.finditer(text, start, end):
        if brace[0] == "{":
            opened.append(brace.end())
        elif opened:
            closing[opened.pop()] = brace.start()
    return closing


def unwrap_box(text: str) -> str:
    """Replace the first `\\boxed{18}` of a line by `18`."""
    box = BOX.search(text) if "boxed" in text else None
    end = closing_bracket(text, box.end(), box.end() + MAX_EXPRESSION + 1) if box else -1
    if box is None or end < 0:
        return text
    return text[: box.start()] + text[box.end() : end] + text[end + 1 :]
