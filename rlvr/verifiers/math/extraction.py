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
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.context import find_prefix_defect, is_denied
from rlvr.verifiers.math.numbers import read_number, to_ascii
from rlvr.verifiers.math.parser import parse_answer
from rlvr.verifiers.math.stated_answer import (
    ALONE,
    BOX,
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
    match_braces,
    next_line,
    possible_readings,
    unwrap_box,
)
from rlvr.verifiers.math.text_after import find_suffix_defect

_Found = TypeVar("_Found")


def find_statements(
    turn: str, *, prose: bool = True, joined: bool = False, bare_last_line: bool = False
) -> list[StatedAnswer]:
    """Find every statement of a final answer: explicit ones first, then prose, each in text order.

    Args:
        prose: also read statements that are not explicit.
        joined: read neighbouring boxes ("\\boxed{1} and \\boxed{2}") as one list, for a gold that is a list.
        bare_last_line: without any other statement, read a last line that is nothing but a number.
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
            if _speaks_of_answer(turn):
                statements.extend(find_prose(turn))
            if has_label(turn):
                statements.extend(find_labelled(turn, statements))
            if not statements:
                statements.extend(find_bare(turn))
            if bare_last_line and not statements and (lines := find_bare_lines(turn)):
                statements = [*lines, *find_labelled(turn, lines)]
    except TooManyStatements:
        defect = f"there are over {MAX_STATEMENTS:,} statements of one kind"
        return [StatedAnswer("box", 0, len(turn), ("",), defect)]
    return statements


class TooManyStatements(Exception):
    """A turn has more statements of one kind than any answer needs."""


def _limited(found: Iterable[_Found]) -> Iterator[_Found]:
    for count, one in enumerate(found):
        if count == MAX_STATEMENTS:
            raise TooManyStatements
        yield one


def extract_boxed(text: str) -> str | None:
    """Return the content of the last box, or of the last neighbouring boxes; None without a box."""
    try:
        boxes = list(find_boxed(text, joined=True)) if "boxed" in text else []
    except TooManyStatements:
        return None
    return boxes[-1].texts[0] if boxes else None


def _speaks_of_answer(turn: str) -> bool:
    """Whether "answer" occurs outside `####` lines. Most completions need no search for prose."""
    if "ANS" in turn:
        return True
    words = re.finditer("nswer|Ans", turn) if "nswer" in turn or "Ans" in turn else ()
    return any(not is_on_marked_line(turn, word.start()) for word in words)


# ----------------------------------------------------------------------------------------------------------------------
# Explicit notations: a line with `####`, a box, an <answer> tag

_MARK = re.compile(r"(?<!#)####(?!#)")
# A mark without a statement, unless it is the last: a heading of words, or another mark directly behind.
_NO_HEADING = re.compile(
    r"(?<!#)####(?!#)(?![\s*_`:]{0,20}+####|[ \t*_`]{0,8}+"
    r"(?!so|thus|the|hence|our|my|final|correct|ans|not|about|appro|roughly|nearly|almost|maybe|perhaps|probably|none"
    r"|around|either|us|eur|gbp|inr|rs)[a-z][a-z _']{0,40}+(?![a-z _'=]))",
    re.IGNORECASE | re.ASCII,
)
_NUMBERED_HEADING = re.compile(r"[ \t*_]{0,8}[0-9]{1,3}[.):][*_]{0,3}[ \t]+[^\s]")
_FIRST_STEP = re.compile(r"[ \t*_]{0,8}1[.):][*_]{0,3}[ \t]+[^\s]")  # "1. Count the eggs"
_ANSWER_LIKE_START = re.compile(
    r"[\s*_`]{0,8}(?:US|USD|EUR|GBP|INR|Rs\.?)?[\s*_`\"'$€£¥₹\\(\[{=.+~-]{0,12}[0-9]"
    r"|[\s*_`$({\[-]{0,8}\\[a-zA-Z{(\[]"
    r"|[\s*_`$]{0,8}[A-Za-z][A-Za-z _']{0,40}="
)
_LABELLED = re.compile(
    r"[\s*_]{0,4}(?!(?:Step|Part|Case|Note|Problem|Method)\b)(?:A|[A-Z][a-zA-Z ]{2,30}):[*_\s]{1,4}(?=[-$\\0-9])"
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
_TAG = re.compile(r"<answer>(?!\s{0,16}<answer>)", re.IGNORECASE)
_CLOSING_TAG = re.compile(r"</answer>", re.IGNORECASE)
_OPERATORS = frozenset("-−+*/^")


def find_marked(turn: str) -> Iterator[StatedAnswer]:
    """Find `#### 18`, up to the end of the line or the next mark."""
    turn_end = len(turn.rstrip())
    for mark in _limited(_find_marks(turn)):
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
        elif _HEDGED.match(text):
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
    for start, end, content in _limited(_find_closed_boxes(turn)):
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
    for tag in _limited(_TAG.finditer(turn)):
        closing = _CLOSING_TAG.search(turn, tag.end(), tag.end() + MAX_EXPRESSION + 10)
        end = closing.start() if closing else min(len(turn), tag.end() + MAX_EXPRESSION + 1)
        text = unwrap_box(turn[tag.end() : end]).strip().removeprefix("####").strip()
        defect = "a sign stands before it" if turn[max(0, tag.start() - 1) : tag.start()] in _OPERATORS else ""
        lead = LEAD_OF_LINE.match(text)
        texts = possible_readings(text[lead.end() :]) if lead else (text,)
        yield StatedAnswer("tag", tag.start(), closing.end() if closing else end, texts, defect)


# ----------------------------------------------------------------------------------------------------------------------
# Prose ("The answer is 18."), and turns that are nothing but an answer

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
_LABEL = re.compile(r"[\s#*_>-]*(?:Final Answer|FINAL ANSWER|Final answer|Answer|ANSWER|Ans|ANS)[.*_ ]*:")
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
# Words before a value that is not the answer, but made of it: "The half of it is 42."
_OF_ANSWER = re.compile(
    r"\b(?:half|twice|double|triple|square|cube|root|factorial|opposite|negative|inverse|reciprocal|digits?|bound|next|old"
    r"|other|another|different|previous|hint|note|problem|page)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?: is (?:the|our|my) (?:final )?(?:answer|solution|result))?[.!]?")


def find_prose(turn: str) -> Iterator[StatedAnswer]:
    """Find sentences such as "The answer is 18."."""
    for lead in _limited(_PROSE.finditer(turn)):
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
        # A box is a statement of its own, and "Let us check our answer: 2 * 21 = 42" is none.
        if "boxed" in text or _CHECKED.search(turn, max(0, lead.start() - 16), lead.start()):
            continue
        text = text.split("</", 1)[0]
        denied = not _LABEL.match(lead[0]) and is_denied(turn[max(0, lead.start() - 160) : lead.start()])
        defect = "the text before it may deny or change it" if denied or _OTHER.search(lead[0]) else ""
        yield StatedAnswer("prose", lead.start(), end, possible_readings(text, exclaimed=True), defect)
    for heading in _limited(_ANSWER_HEADING.finditer(turn) if "\n" in turn else ()):
        text = _whole_display(turn, heading.end(), next_line(turn, heading.end()))
        if is_on_marked_line(turn, heading.start()) or "boxed" in text:
            continue
        if len(text) <= MAX_EXPRESSION and STANDS_ALONE.fullmatch(to_ascii(text.strip())):
            end = turn.find(text, heading.end()) + len(text)
            yield StatedAnswer("prose", heading.start(), end, possible_readings(text))


# "A: 18", "**Final result:** 18". Not every such line states the final answer: see find_labelled.
_LABEL_LINE = re.compile(
    r"^[ \t#*_-]{0,12}+(?:(?-i:(?P<answer>A))|(?:the[ ])?(?:final[ ])?(?:result|solution))"
    r"[ *_]{0,3}:[ \t*_]{0,8}+(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
_NEXT_ITEM = re.compile(r"(?<![^\s#*_|,;(-])[B-E][*_]{0,3}:")
_WORKING = re.compile(r"[0-9)%][ ]?[-+*/^×÷·−][^=]*=")
_CANDIDATES = re.compile(r"\b(?:or|not)\b")
_DIGIT = re.compile("[0-9]")


def has_label(turn: str, end: int = sys.maxsize) -> bool:
    """Whether a line before `end` begins with "A:", "Result:" or "Solution:"."""
    return turn.find(":", 0, end) >= 0 and _LABEL_LINE.search(turn, 0, end) is not None


def find_labelled(turn: str, others: Sequence[StatedAnswer]) -> list[StatedAnswer]:
    """Find lines such as "A: 18" and "Result: 18", with nothing but an answer behind the label.

    A line "A:" is a statement wherever it stands, unless a "B:" makes it an item of a list. "Result:" and
    "Solution:" may also label a step. They are statements if the last line has such a label, or if no number stands
    between them and another statement.

    Args:
        others: the statements in other notations.
    """
    turn_end = len(turn.rstrip())
    has_items = _NEXT_ITEM.search(turn) is not None
    found: list[StatedAnswer] = []
    steps: list[StatedAnswer] = []
    for label in _limited(_LABEL_LINE.finditer(turn)):
        text = line_from(turn, label.end())
        end = label.end() + len(text)
        pattern = ALONE if label["answer"] else STANDS_ALONE
        hedged = _HEDGED.match(text)
        if "boxed" in text or (label["answer"] and has_items) or _FIRST_STEP.match(text):
            continue
        if not (hedged or pattern.fullmatch(to_ascii(text.strip()))):
            continue
        if end < turn_end and _WORKING.search(text):
            continue  # "Solution: 6 * 7 = 42", the first line of the working
        readings = possible_readings(text, exclaimed=True)
        if all(isinstance(parse_answer(one), str) for one in readings) and not (hedged or _CANDIDATES.search(text)):
            continue
        before = turn[max(0, label.start() - 160) : label.start()]
        defect = find_prefix_defect(before)
        if before.rstrip().endswith(":") and is_denied(f"{before.rstrip()[:-1]},"):  # "Bob says:"
            defect = "the line above denies it"
        (found if label["answer"] else steps).append(StatedAnswer("prose", label.start(), end, readings, defect))
    if steps and steps[-1].end >= turn_end and not (found or others):
        return steps
    runs: list[list[StatedAnswer]] = []  # statements and steps without a number between them
    end = 0
    for one in sorted((*others, *found, *steps), key=lambda one: one.start):
        if not runs or _DIGIT.search(turn, end, one.start):
            runs.append([])
        runs[-1].append(one)
        end = max(end, one.end)
    unclear = set(steps)
    for run in runs:
        labelled = [one for one in run if one in unclear]
        if len(labelled) < len(run) or run[-1].end >= turn_end:
            found.extend(labelled)
    return found


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
    if not text or len(text) > MAX_EXPRESSION or _FIRST_STEP.match(text):
        return
    if "\n" in text and not re.fullmatch(r"(?:\\\[|\$\$)[^$]{1,500}(?:\\\]|\$\$)", text):
        return
    start, end = turn.find(text[0]), len(turn.rstrip())
    formulas = list(FORMULA.finditer(text))
    if len(formulas) == 1:
        before, behind = text[: formulas[0].start()], text[formulas[0].end() :]
        if not before.strip():
            yield StatedAnswer("bare", start, end, possible_readings(text))
        elif _SENTENCE.fullmatch(before) and _SENTENCE_END.fullmatch(behind) and not _is_doubtful(before):
            formula = next(part for part in formulas[0].groups() if part is not None)
            yield StatedAnswer("bare", start, end, (formula.strip(),))
    elif (lead := _SENTENCE.match(text)) and lead.end() and not _is_doubtful(text):
        if read_number(text[lead.end() :]) is not None:  # "So the total is 1,000.99€."
            yield StatedAnswer("bare", start, end, (text[lead.end() :],))
    elif STANDS_ALONE.fullmatch(to_ascii(text)):
        yield StatedAnswer("bare", start, end, (text,))


def _is_doubtful(text: str) -> bool:
    return DOUBT.search(text) is not None or _OF_ANSWER.search(text) is not None


_NUMBER_LINE = re.compile(r"^[^A-Za-z0-9\n]{0,12}[0-9][^A-Za-z\n]{0,60}$", re.MULTILINE)


def find_bare_lines(turn: str) -> list[StatedAnswer]:
    """Find the lines that are nothing but a number, if the last line is one: each is a candidate."""
    found: list[StatedAnswer] = []
    for line in _limited(_NUMBER_LINE.finditer(turn)):
        if read_number(line[0], units=False) is not None:
            above = turn[max(0, line.start() - 160) : line.start()].rstrip()
            ended = not above or above[-1] in ".:!)%$" or above[-1].isdigit()
            defect = "" if ended else find_prefix_defect(f"{above} ")  # "41 or", "6 *"
            found.append(StatedAnswer("bare", line.start(), line.end(), (line[0].strip(),), defect))
    return found if found and found[-1].end >= len(turn.rstrip()) else []
