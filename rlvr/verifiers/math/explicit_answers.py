"""Find answers in explicit notations: a line with `####`, a box, an <answer> tag."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.context import find_prefix_defect, find_suffix_defect
from rlvr.verifiers.math.numbers import to_ascii
from rlvr.verifiers.math.stated_answer import (
    ALONE,
    BOX,
    LEAD_OF_LINE,
    MAX_STATEMENTS,
    STANDS_ALONE,
    StatedAnswer,
    line_from,
    next_line,
    possible_readings,
    read_braced,
    unwrap_box,
)

_MARK = re.compile(r"(?<!#)####(?!#)")
_NUMBERED_HEADING = re.compile(r"[ \t*_]{0,8}[0-9]{1,3}[.):][*_]{0,3}[ \t]+[^\s]")
_ANSWER_LIKE_START = re.compile(
    r"[\s*_`]{0,8}(?:US|USD|EUR|GBP|INR|Rs\.?)?[\s*_`\"'$€£¥₹\\(\[{=.+~-]{0,12}[0-9]"
    r"|[\s*_`$({\[-]{0,8}\\[a-zA-Z{(\[]"
    r"|[\s*_`$]{0,8}[A-Za-z][A-Za-z _']{0,40}="
)
_LABELLED = re.compile(
    r"[\s*_]{0,4}(?!(?:Step|Part|Case|Note|Problem|Method)\b)[A-Z][a-zA-Z ]{2,30}:[*_\s]{1,4}(?=[-$\\0-9])"
)
_HEDGED = re.compile(
    r"[\s*_]{0,4}(?:not|about|approximately|approx|roughly|nearly|almost|maybe|perhaps|probably|none|around|either)\b",
    re.IGNORECASE,
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
_TAG = re.compile(r"<answer>", re.IGNORECASE)
_CLOSING_TAG = re.compile(r"</answer>", re.IGNORECASE)


def find_marked(turn: str) -> Iterator[StatedAnswer]:
    """Find `#### 18`, up to the end of the line or the next mark."""
    for mark in _MARK.finditer(turn):
        text = line_from(turn, mark.end()).split("####", 1)[0]
        end = mark.end() + len(text)
        if "boxed" in text:
            text = unwrap_box(text)
        defect = _find_mark_defect(turn[max(0, mark.start() - 64) : mark.start()])
        lead = LEAD_OF_LINE.match(text)
        text = text[lead.end() :] if lead else text
        if not text.strip(" \t*_`:"):
            # "#### Final answer", with the answer or an explanation on the next line.
            text = next_line(turn, mark.end())
            if len(text) <= MAX_EXPRESSION and STANDS_ALONE.fullmatch(to_ascii(text.strip())):
                yield StatedAnswer("mark", mark.start(), end + len(text), (unwrap_box(text).strip(),), defect)
        elif lead or (_ANSWER_LIKE_START.match(to_ascii(text)) and not _NUMBERED_HEADING.match(text)):
            yield StatedAnswer("mark", mark.start(), end, possible_readings(text), defect)
        elif (label := _LABELLED.match(text)) and not turn[mark.end() + len(text) :].strip():
            yield StatedAnswer("mark", mark.start(), end, (text[label.end() :].strip(),), defect)  # "#### Total: 42"
        elif _HEDGED.match(text):
            yield StatedAnswer("mark", mark.start(), end, (text.strip(),), "it hedges")
        elif (
            not _NUMBERED_HEADING.match(text)
            and not turn[mark.end() + len(text) :].strip()
            and ALONE.fullmatch(text.strip())
        ):
            yield StatedAnswer("mark", mark.start(), end, (text.strip(),), defect)  # the last: "#### (C)", "#### p - q"
        # Anything else is a heading ("#### Step 1", "#### 2. Count the eggs").


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
    pending: StatedAnswer | None = None
    pending_end = 0
    for box in BOX.finditer(turn):
        if box.start() < pending_end:
            continue  # a box in a box
        if box.group().endswith("{"):
            content = read_braced(turn, box.end())
            end = box.end() + len(content or "") + 1
        else:
            content = _BARE_BOX.match(turn, box.end())[0]  # type: ignore[index]  # BOX saw a digit
            end = box.end() + len(content)
        if content is None or _EMPTY_BOX.fullmatch(content):
            continue
        defect = find_prefix_defect(turn[max(0, box.start() - 160) : box.start()])
        if pending is not None:
            gap = turn[pending_end : box.start()]
            if joined and len(gap) <= 64 and _JOINT.fullmatch(gap):
                pending = StatedAnswer(
                    "box", pending.start, end, (f"{pending.texts[0]}, {content.strip()}",), pending.defect
                )
                pending_end = end
                continue
            yield _with_suffix_defect(pending, turn)
        pending, pending_end = StatedAnswer("box", box.start(), end, (content.strip(),), defect), end
    if pending is not None:
        yield _with_suffix_defect(pending, turn)


def _with_suffix_defect(box: StatedAnswer, turn: str) -> StatedAnswer:
    numeric = any(map(str.isdigit, box.texts[0]))
    defect = box.defect or find_suffix_defect(turn[box.end : box.end + 160], numeric=numeric)
    return StatedAnswer("box", box.start, box.end, box.texts, defect)


def find_tagged(turn: str) -> Iterator[StatedAnswer]:
    """Find `<answer>18</answer>`; the closing tag may be missing at the end of the turn."""
    for count, tag in enumerate(_TAG.finditer(turn)):
        if count > MAX_STATEMENTS:
            return
        closing = _CLOSING_TAG.search(turn, tag.end(), tag.end() + MAX_EXPRESSION + 10)
        end = closing.start() if closing else min(len(turn), tag.end() + MAX_EXPRESSION + 1)
        text = unwrap_box(turn[tag.end() : end]).strip().removeprefix("####").strip()
        defect = "a sign stands before it" if re.search(r"[-−+*/^]\Z", turn[: tag.start()]) else ""
        lead = LEAD_OF_LINE.match(text)
        texts = possible_readings(text[lead.end() :]) if lead else (text,)
        yield StatedAnswer("tag", tag.start(), closing.end() if closing else end, texts, defect)
