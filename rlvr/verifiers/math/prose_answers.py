"""Find answers in prose ("The answer is 18."), and turns that are nothing but an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.context import is_denied
from rlvr.verifiers.math.numbers import to_ascii
from rlvr.verifiers.math.stated_answer import (
    DOUBT,
    FORMULA,
    LEAD,
    LEAD_OF_LINE,
    LEAD_REST,
    MAX_STATEMENTS,
    STANDS_ALONE,
    StatedAnswer,
    is_on_marked_line,
    line_from,
    next_line,
    possible_readings,
)

# Not every "answer" is the final answer: "each correct answer is 4 points".
_PROSE = re.compile(
    r"(?:\b(?:the|my|our|final|(?:so|thus|hence|therefore),?)[ ]+|^[ \t#*_>-]{0,12})(?:final[ ]+|correct[ ]+)?"
    rf"{LEAD}{LEAD_REST}",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWER_HEADING = re.compile(
    r"^[ \t]*(?:[#*_]{1,8}[ ]?(?:the[ ])?(?:final[ ])?|(?:the[ ])?final[ ])answer[ \t*_]{0,8}$",
    re.IGNORECASE | re.MULTILINE,
)
_LABEL = re.compile(r"[\s#*_>-]*(?:Final Answer|FINAL ANSWER|Final answer|Answer|ANSWER)[*_ ]*:")
_OTHER = re.compile(r"\b(?:different|another|other|next|previous|wrong)\b", re.IGNORECASE)
_CHECKED = re.compile(r"\b(?:check|verify|confirm|see if)[ ]+(?:if[ ]|that[ ])?\Z", re.IGNORECASE)
# The text before and after the formula in a turn of one sentence with one formula.
_SENTENCE = re.compile(
    r"(?:(?:So|Thus|Hence|Therefore|Then|And|Finally)[, ]{1,2})?"
    r"(?:(?:[Ww]e (?:find|get|have|obtain|see|conclude)|[Tt]his (?:gives|means|is)"
    r"|[Ii]t (?:is|equals|follows))(?: that)?"
    r"|[Tt]he [a-z ]{1,60} (?:is|are|equals)|[Aa]nswer)?[:, ]*"
    # "Here is the matrix:", but not a repeated problem: "Compute:", "Find x:"
    r"|(?!(?:Compute|Evaluate|Find|Simplify|Solve|Calculate|Determine|What|Which|How|Given|Let|Consider|Question|Problem"
    r"|Expand|Factor|Not|Wrong|If|Suppose|Step|Nearly|About)\b)[A-Z][a-zA-Z, ]{1,60}:[ ]*"
)
_SENTENCE_END = re.compile(r"(?: is (?:the|our|my) (?:final )?(?:answer|solution|result))?[.!]?")


def find_prose(turn: str) -> Iterator[StatedAnswer]:
    """Find sentences such as "The answer is 18."."""
    for count, lead in enumerate(_PROSE.finditer(turn)):
        if count > MAX_STATEMENTS:
            yield StatedAnswer("prose", 0, len(turn), ("0",), "there are more statements than any answer needs")
            return
        if is_on_marked_line(turn, lead.start()) or _in_tag(turn, lead.start()):
            continue
        text = line_from(turn, lead.end())
        end = lead.end() + len(text)
        if not text.strip(" \t*_`:"):
            text = next_line(turn, lead.end())
            end += len(text) + 1
        text = _whole_display(turn, lead.end(), text)
        while (lead_again := LEAD_OF_LINE.match(text)) and lead_again.end():  # "Final Answer: The final answer is 18."
            text = text[lead_again.end() :]
        if "boxed" in text:
            continue  # the box is a statement of its own
        if _CHECKED.search(turn, max(0, lead.start() - 16), lead.start()):
            continue  # "Let us check our answer: 2 * 21 = 42"
        text = text.split("</", 1)[0]
        is_label = _LABEL.match(lead.group()) is not None
        denied = not is_label and is_denied(turn[max(0, lead.start() - 160) : lead.start()])
        denied = denied or _OTHER.search(lead.group()) is not None
        defect = "the text before it denies it" if denied else ""
        yield StatedAnswer("prose", lead.start(), end, possible_readings(text, exclaimed=True), defect)
    for heading in _ANSWER_HEADING.finditer(turn):
        text = _whole_display(turn, heading.end(), next_line(turn, heading.end()))
        if is_on_marked_line(turn, heading.start()) or "boxed" in text:
            continue
        if len(text) <= MAX_EXPRESSION and STANDS_ALONE.fullmatch(to_ascii(text.strip())):
            end = turn.find(text, heading.end()) + len(text)
            yield StatedAnswer("prose", heading.start(), end, possible_readings(text))


def _in_tag(turn: str, start: int) -> bool:
    opening = turn.rfind("<answer>", max(0, start - MAX_EXPRESSION), start)
    return opening >= 0 and turn.find("</", opening, start) < 0


def _whole_display(turn: str, start: int, line: str) -> str:
    """Return the line, or the multi-line formula that begins in it."""
    opening = line.strip()[:2]
    if opening not in ("\\[", "$$"):
        return line
    begins = turn.index(opening, start)
    display = FORMULA.match(turn, begins, begins + MAX_EXPRESSION)
    return display.group() if display else line


def find_bare(turn: str) -> Iterator[StatedAnswer]:
    """Find the answer of a turn that is nothing but an answer, or one sentence with one formula."""
    text = turn.strip()
    if not text or len(text) > MAX_EXPRESSION:
        return
    if "\n" in text and not re.fullmatch(r"(?:\\\[|\$\$)[^$]{1,500}(?:\\\]|\$\$)", text):
        return
    start, end = turn.find(text[0]), len(turn.rstrip())
    formulas = list(FORMULA.finditer(text))
    if len(formulas) == 1:
        before, behind = text[: formulas[0].start()], text[formulas[0].end() :]
        if not before.strip():
            yield StatedAnswer("bare", start, end, possible_readings(text))
        elif _SENTENCE.fullmatch(before) and _SENTENCE_END.fullmatch(behind) and not DOUBT.search(before):
            formula = next(part for part in formulas[0].groups() if part is not None)
            yield StatedAnswer("bare", start, end, (formula.strip(),))
    elif STANDS_ALONE.fullmatch(to_ascii(text)):
        yield StatedAnswer("bare", start, end, (text,))
