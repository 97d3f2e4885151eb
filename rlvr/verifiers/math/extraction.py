"""Find where a turn states its final answer, in every notation that models use.

In the order of trust:
1. explicit: a line with `####` (`#### 18`, `#### The final answer is 18`), `\\boxed{18}`, `<answer>18</answer>`;
2. prose: "The answer is 18.", "Answer: 18", "A: 18", "Result: 18";
3. bare: a turn that is nothing but an answer, or one sentence with one formula in it.

The result is text with its position; grader.py compares it. Every pattern runs in linear time, also on millions of
characters. Of an answer, only the first `MAX_EXPRESSION` characters are read.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.context import find_prefix_defect
from rlvr.verifiers.math.numbers import to_ascii
from rlvr.verifiers.math.prose import find_bare, find_labelled, find_prose, has_label, speaks_of_answer
from rlvr.verifiers.math.stated_answer import (
    ALONE,
    BOX,
    HEDGED,
    LEAD,
    LEAD_OF_LINE,
    MAX_STATEMENTS,
    STANDS_ALONE,
    StatedAnswer,
    TooManyStatements,
    limited,
    line_from,
    match_braces,
    next_line,
    possible_readings,
    unwrap_box,
)
from rlvr.verifiers.math.text_after import find_suffix_defect


def find_statements(turn: str, *, prose: bool = True, joined: bool = False) -> list[StatedAnswer]:
    """Find every statement of a final answer: explicit ones first, then prose, each in text order.

    Args:
        prose: also read statements that are not explicit.
        joined: read neighbouring boxes ("\\boxed{1} and \\boxed{2}") as one list, for a gold that is a list.
    """
    statements: list[StatedAnswer] = []
    try:
        if "####" in turn:
            statements.extend(find_marked(turn))
        if "boxed" in turn or "fbox" in turn:
            statements.extend(find_boxed(turn, joined))
        if "<" in turn:
            statements.extend(find_tagged(turn))
        if len(statements) > 1:
            statements.sort(key=lambda statement: statement.start)
        if prose:
            if speaks_of_answer(turn):
                statements.extend(find_prose(turn))
            if has_label(turn):
                statements.extend(find_labelled(turn, statements))
            if not statements:
                statements.extend(find_bare(turn))
    except TooManyStatements:
        defect = f"there are over {MAX_STATEMENTS:,} statements of one kind"
        return [StatedAnswer("box", 0, len(turn), ("",), defect)]
    return statements


# What makes a box behind it a claim: "The final answer is that she has \\boxed{9}", "**Result:** \\boxed{9}".
_CLAIM = re.compile(
    rf"(?:\b(?:the|my|our|final|so|thus|hence|therefore),?[ ]+|^[ \t#*_>-]{{0,12}})(?:final[ ]+|correct[ ]+)?{LEAD}"
    r"|^[ \t#*_-]{0,12}(?:(?-i:A)|(?:the[ ])?(?:final[ ])?(?:result|solution))[ *_]{0,3}:",
    re.IGNORECASE | re.MULTILINE,
)
_QUESTION_MARKS = "?？"


def without_intermediate_results(turn: str, statements: Sequence[StatedAnswer]) -> list[StatedAnswer]:
    """Leave out the boxes that a later statement overrides: of several results, the last is the answer.

    A claim (`####`, <answer>, a label, "the answer is …") is never left out. Nor is a box with a question mark between
    it and the next statement, where an invented problem may begin.
    """
    if len(statements) < 2:
        return list(statements)
    starts = sorted(one.start for one in statements)

    def is_overridden(one: StatedAnswer) -> bool:
        place = bisect_left(starts, one.end)
        if one.kind != "box" or place == len(starts) or _is_claimed(turn, one.start):
            return False
        return all(turn.find(mark, one.end, starts[place]) < 0 for mark in _QUESTION_MARKS)

    return [one for one in statements if not is_overridden(one)]


def _is_claimed(turn: str, start: int) -> bool:
    """Whether the sentence of a box says that it is the answer."""
    before = turn[max(0, start - 200) : start]
    sentence = re.split(r"[.!?;](?=\s)|\n\s*\n", before)[-1]
    return _CLAIM.search(sentence) is not None


def extract_boxed(text: str) -> str | None:
    """Return the content of the last box, or of the last neighbouring boxes; None without a box."""
    try:
        boxes = list(find_boxed(text, joined=True)) if "boxed" in text else []
    except TooManyStatements:
        return None
    return boxes[-1].texts[0] if boxes else None


_MARK = re.compile(r"(?<!#)####(?!#)")
# A mark without a statement, unless it is the last: a heading of words, or another mark directly behind.
_NO_HEADING = re.compile(
    r"(?<!#)####(?!#)(?![\s*_`:]{0,20}+####|[ \t*_`]{0,8}+"
    r"(?!so|thus|the|hence|our|my|final|correct|ans|not|about|appro|roughly|nearly|almost|maybe|perhaps|probably|none"
    r"|around|either|us|eur|gbp|inr|rs)[a-z][a-z _']{0,40}+(?![a-z _'=]))",
    re.IGNORECASE | re.ASCII,
)
_NUMBERED_HEADING = re.compile(r"[ \t*_]{0,8}[0-9]{1,3}[.):][*_]{0,3}[ \t]+[^\s]")
_ANSWER_LIKE_START = re.compile(
    r"[\s*_`]{0,8}(?:US|USD|EUR|GBP|INR|Rs\.?)?[\s*_`\"'$€£¥₹\\(\[{=.+~-]{0,12}[0-9]"
    r"|[\s*_`$({\[-]{0,8}\\[a-zA-Z{(\[]"
    r"|[\s*_`$]{0,8}[A-Za-z][A-Za-z _']{0,40}="
)
_LABELLED = re.compile(
    r"[\s*_]{0,4}(?!(?:Step|Part|Case|Note|Problem|Method)\b)(?:A|[A-Z][a-zA-Z ]{2,30}):[*_\s]{1,4}(?=[-$\\0-9])"
)
_BARE_BOX = re.compile(r"[0-9]{1,40}")
# Empty boxes, copied from the problem's text.
_EMPTY_BOX = re.compile(
    r"(?:\s|\\[ ,;:!~]|\\q?quad|\\(?:[hv]?phantom|hspace\*?)\{[^{}]{0,20}\}|\\(?:square|Box|ldots)|[?_ ]){0,40}"
)
# The text between two boxes that form one list.
_JOINT_SPACE = r"(?:[\s$.&]|\\[()\[\],;! ]|\\q?quad|[a-zA-Z](?:_[{}0-9]{1,4})?\s?=)"
_JOINT = re.compile(
    rf"{_JOINT_SPACE}{{0,10}},?{_JOINT_SPACE}{{0,10}}"
    rf"|{_JOINT_SPACE}{{0,6}}(?:\\text\{{)?[a-z() ]{{0,24}}(?:,|\b(?:and|or)\b)"
    rf"{_JOINT_SPACE}{{0,3}}\}}?{_JOINT_SPACE}{{0,10}}"
)
_TAG = re.compile(r"<answer>(?!\s{0,16}<answer>)", re.IGNORECASE)
_CLOSING_TAG = re.compile(r"</answer>", re.IGNORECASE)
_OPERATORS = frozenset("-−+*/^")


def find_marked(turn: str) -> Iterator[StatedAnswer]:
    """Find `#### 18`, up to the end of the line or the next mark."""
    turn_end = len(turn.rstrip())
    for mark in limited(_find_marks(turn)):
        line = line_from(turn, mark.end()).split("####", 1)[0]
        end = mark.end() + len(line)
        text = unwrap_box(line) if "boxed" in line else line
        text = text.lstrip(" \t").removeprefix(":")
        defect = _find_mark_defect(turn[max(0, mark.start() - 64) : mark.start()])
        lead = LEAD_OF_LINE.match(text)
        text = text[lead.end() :] if lead else text
        is_numbered = _NUMBERED_HEADING.match(text) is not None
        readings: tuple[str, ...] = ()  # of a heading, such as "#### Step 1" or "#### 2. Count the eggs"
        if not text.strip(" \t*_`:"):
            # "#### Final answer", with the answer or an explanation on the next line.
            text = next_line(turn, mark.end())
            end += len(text)
            if len(text) <= MAX_EXPRESSION and STANDS_ALONE.fullmatch(to_ascii(text.strip())):
                readings = (unwrap_box(text).strip(),)
        elif lead or (_ANSWER_LIKE_START.match(to_ascii(text)) and not is_numbered):
            readings = possible_readings(text)
        elif (label := _LABELLED.match(text)) and end >= turn_end:
            readings = (text[label.end() :].strip(),)  # the last line: "#### Total: 42"
        elif HEDGED.match(text):
            readings, defect = (text.strip(),), "it hedges"
        elif not is_numbered and end >= turn_end and ALONE.fullmatch(text.strip()):
            readings = (text.strip(),)  # the last line: "#### (C)", "#### p - q"
        if readings:
            yield StatedAnswer("mark", mark.start(), end, readings, defect)


def _find_marks(turn: str) -> Iterator[re.Match[str]]:
    """Find the marks that may state an answer."""
    last = _MARK.match(turn, turn.rfind("####"))
    for mark in _NO_HEADING.finditer(turn):
        if last is None or mark.start() < last.start():
            yield mark
    if last:
        yield last


def _find_mark_defect(before: str) -> str:
    line = before[before.rfind("\n") + 1 :].rstrip(" \t*_`")
    if re.search(r"[-−+/×=<>^]\Z", line):
        return "a sign stands before it"
    if re.search(r"\b(?:not|never|minus|negative|write|if|or)\Z|n['’]t\Z", line, re.IGNORECASE):
        return "the text before it denies it"
    return ""


def find_boxed(turn: str, joined: bool) -> Iterator[StatedAnswer]:
    """Find `\\boxed{18}`, and the defects in the text around it.

    Args:
        joined: read neighbouring boxes as one list.
    """
    boxes: list[tuple[int, int, str]] = []  # start, end, content
    for start, end, content in limited(_find_closed_boxes(turn)):
        first_start, last_end, items = boxes[-1] if boxes and joined else (0, -1, "")
        if last_end >= 0 and start - last_end <= 64 and _JOINT.fullmatch(turn, last_end, start):
            boxes[-1] = first_start, end, f"{items}, {content}"
        else:
            boxes.append((start, end, content))
    for start, end, content in boxes:
        defect = find_prefix_defect(turn[max(0, start - 160) : start])
        if not defect:
            defect = find_suffix_defect(turn[end : end + 160], content)
        yield StatedAnswer("box", start, end, (content,), defect)


def _find_closed_boxes(turn: str) -> Iterator[tuple[int, int, str]]:
    """Find start, end and content of every box that is neither in another box, nor empty, nor cut off."""
    closing = match_braces(turn, turn.find("box"), turn.rfind("box") + MAX_EXPRESSION + 12)
    last_end = 0
    for box in BOX.finditer(turn):
        if box.start() < last_end:
            continue
        if box[0].endswith("{"):
            content_end = closing.get(box.end(), sys.maxsize)
            end = content_end + 1
        else:
            content_end = end = _BARE_BOX.match(turn, box.end()).end()  # type: ignore[union-attr]  # BOX saw a digit
        if content_end - box.end() > MAX_EXPRESSION:
            continue
        content = turn[box.end() : content_end]
        if not _EMPTY_BOX.fullmatch(content):
            last_end = end
            yield box.start(), end, content.strip()


def find_tagged(turn: str) -> Iterator[StatedAnswer]:
    """Find `<answer>18</answer>`; the closing tag may be missing at the end of the turn."""
    for tag in limited(_TAG.finditer(turn)):
        closing = _CLOSING_TAG.search(turn, tag.end(), tag.end() + MAX_EXPRESSION + 10)
        end = closing.start() if closing else min(len(turn), tag.end() + MAX_EXPRESSION + 1)
        text = unwrap_box(turn[tag.end() : end]).strip().removeprefix("####").strip()
        defect = "a sign stands before it" if turn[max(0, tag.start() - 1) : tag.start()] in _OPERATORS else ""
        lead = LEAD_OF_LINE.match(text)
        texts = possible_readings(text[lead.end() :]) if lead else (text,)
        yield StatedAnswer("tag", tag.start(), closing.end() if closing else end, texts, defect)
