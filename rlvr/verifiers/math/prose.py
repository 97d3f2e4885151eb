"""Find final answers that a turn states in prose: "The answer is 18.", "A: 18", or nothing but an answer."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.context import find_prefix_defect, is_denied
from rlvr.verifiers.math.numbers import read_number, to_ascii
from rlvr.verifiers.math.parser import parse_answer
from rlvr.verifiers.math.stated_answer import (
    ALONE,
    DOUBT,
    FORMULA,
    HEDGED,
    LEAD,
    LEAD_OF_LINE,
    LEAD_REST,
    STANDS_ALONE,
    StatedAnswer,
    is_on_marked_line,
    limited,
    line_from,
    next_line,
    possible_readings,
)
from rlvr.verifiers.math.text_after import find_suffix_defect

_FIRST_STEP = re.compile(r"[ \t*_]{0,8}1[.):][*_]{0,3}[ \t]+[^\s]")  # "1. Count the eggs"


def speaks_of_answer(turn: str) -> bool:
    """Whether "answer" occurs outside `####` lines. Most completions need no search for prose."""
    if "ANS" in turn:
        return True
    words = re.finditer("nswer|Ans", turn) if "nswer" in turn or "Ans" in turn else ()
    return any(not is_on_marked_line(turn, word.start()) for word in words)


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
    for lead in limited(_PROSE.finditer(turn)):
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
    for heading in limited(_ANSWER_HEADING.finditer(turn) if "\n" in turn else ()):
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
    for label in limited(_LABEL_LINE.finditer(turn)):
        text = line_from(turn, label.end())
        end = label.end() + len(text)
        pattern = ALONE if label["answer"] else STANDS_ALONE
        hedged = HEDGED.match(text)
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


# The last sentence: "Thus, the final number of fish is \\(300\\)."
_CONCLUSION = re.compile(r"(?:Therefore|Thus|Hence|So)\b,?\s(?!far\b|long\b)")
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])(?<!\bMr\.)(?<!\b[MDJS][rst]\.)(?<!\bMrs\.)(?<!\b[A-Z]\.)\s+(?=\S)")
_LIST_ITEM = re.compile(r"\s*(?:[-*+•]|\(?[0-9a-z]{1,3}[.)])\s")
_NO_CONCLUSION = re.compile(r"\b(?:at least|about|if|suppose|let|needs?|step|equation|what)\b|\?", re.IGNORECASE)
_INLINE = re.compile(r"\\\((.{1,200}?)\\\)")
_ONE_NUMBER = re.compile(r"-?[$€£]?[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?(?:\s?%)?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\}")


def find_conclusion(turn: str) -> Iterator[StatedAnswer]:
    """Find the one number of a last sentence that concludes: "Therefore, Whitney spent a total of $179."."""
    text = turn.rstrip()
    line = text[max(text.rfind("\n") + 1, len(text) - MAX_EXPRESSION) :]
    sentence = _SENTENCE_BREAK.split(line)[-1]
    item = _LIST_ITEM.match(line)
    is_item = item is not None and line[item.end() :].strip() == sentence
    if not sentence.endswith(".") or is_item or not _CONCLUSION.match(sentence) or _NO_CONCLUSION.search(sentence):
        return
    numbers = list(_INLINE.finditer(sentence)) or list(_ONE_NUMBER.finditer(sentence))
    if len(numbers) != 1:
        return
    content = (numbers[0][1] if numbers[0].re is _INLINE else numbers[0][0]).strip().rstrip(",")
    if read_number(content) is None:
        return
    start = len(text) - len(sentence)
    behind = sentence[numbers[0].end() :]
    defect = find_prefix_defect(sentence[: numbers[0].start()]) or find_suffix_defect(behind, content)
    yield StatedAnswer("bare", start + numbers[0].start(), len(text), (content,), defect)
