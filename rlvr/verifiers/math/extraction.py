"""Where a turn states its final answer, in every notation that models use for it.

In the order of trust:
1. explicit: a line with `####` (`#### 18`, `#### The final answer is 18`), `\\boxed{18}`, `<answer>18</answer>`;
2. prose: "The answer is 18.", "Answer: 18";
3. bare: a turn that is nothing but an answer, or one sentence with one formula in it.

What is found here is text with its place; whether it is the right answer is compared elsewhere. Every pattern runs in
linear time, and of an answer only the first `MAX_EXPRESSION` characters are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION
from rlvr.verifiers.math.context import denied_before, spoils_before, spoils_behind
from rlvr.verifiers.math.numbers import in_ascii, is_unit_word


@dataclass(frozen=True)
class Statement:
    """One statement of a final answer.

    Attributes:
        kind: the notation.
        start, end: where it begins in the turn, and where what was read of it ends.
        texts: the answer as it may be read, the likeliest first: whole, or without the explanation that follows it.
        spoiled: what is said around it that makes it no answer ("not \\boxed{42}"), or empty.
    """

    kind: Literal["mark", "box", "tag", "prose", "bare"]
    start: int
    end: int
    texts: tuple[str, ...]
    spoiled: str = ""

    @property
    def explicit(self) -> bool:
        return self.kind in ("mark", "box", "tag")


# "the final answer is", "**Answer:**", "answer to the question is equal to"
_LEAD = (
    r"answer[ \t*_`]{0,8}(?:[ \t]to[ \t][a-z \t']{1,60})?"
    r"(?:is\b|:|=|would[ ]be\b|equals\b|comes[ ]to\b|(?=\$|\\[(\[]))"
)
_LEAD_REST = r"[ \t*_`:]{0,12}(?:(?:therefore|thus|then|simply|exactly|equal[ ]to)\b)?[ \t:]{0,4}"
# Not every answer is the answer: "each correct answer is 4 points" is said in passing.
_PROSE = re.compile(
    r"(?:\b(?:the|my|our|final|(?:so|thus|hence|therefore),?)[ ]+|^[ \t#*_>-]{0,12})(?:final[ ]+|correct[ ]+)?"
    rf"{_LEAD}{_LEAD_REST}",
    re.IGNORECASE | re.MULTILINE,
)
# "Final Answer: The volume of the prism is 120."
_WHAT_IT_IS = re.compile(
    r"(?:The|So|Thus|Therefore|Hence|There|It|This)\b[^.=\n]{0,120}?\b(?:is|are|equals)[ ]+(?=[-$\\(0-9])"
)
_LEAD_OF_LINE = re.compile(
    rf"[ \t*_`]{{0,8}}(?:(?:so|thus|therefore|hence),?[ ])?(?:the[ ]|our[ ]|my[ ])?(?:final[ ]|correct[ ])?"
    rf"(?:{_LEAD}|answer[ \t*_`]{{0,8}}$){_LEAD_REST}",
    re.IGNORECASE,
)
_ANSWER_HEADING = re.compile(
    r"^[ \t]*(?:[#*_]{1,8}[ ]?(?:the[ ])?(?:final[ ])?|(?:the[ ])?final[ ])answer[ \t*_]{0,8}$",
    re.IGNORECASE | re.MULTILINE,
)
_MARK = re.compile(r"(?<!#)####(?!#)")
_NUMBERED_HEADING = re.compile(r"[ \t*_]{0,8}[0-9]{1,3}[.):][*_]{0,3}[ \t]+[^\s]")
_ANSWER_LIKE_START = re.compile(
    r"[\s*_`]{0,8}(?:US|USD|EUR|GBP|INR|Rs\.?)?[\s*_`\"'$€£¥₹\\(\[{=.+~-]{0,12}[0-9]"
    r"|[\s*_`$({\[-]{0,8}\\[a-zA-Z{(\[]"
    r"|[\s*_`$]{0,8}[A-Za-z][A-Za-z _']{0,40}="
)
_BOX = re.compile(r"\\(?:f?boxed|fbox)[ ]{0,4}(?:\{|(?=[0-9]))")
MAX_STATEMENTS = 64  # of each kind; a turn that has more is no answer
# Boxes of a problem's text, to be filled in.
_EMPTY_BOX = re.compile(
    r"(?:\s|\\[ ,;:!~]|\\q?quad|\\(?:[hv]?phantom|hspace\*?)\{[^{}]{0,20}\}|\\(?:square|Box|ldots)|[?_ ]){0,40}"
)
_TAG = re.compile(r"<answer>", re.IGNORECASE)
_CHECKED = re.compile(r"\b(?:check|verify|confirm|see if)[ ]+(?:if[ ]|that[ ])?\Z", re.IGNORECASE)

# A formula in any of its delimiters.
_FORMULA = re.compile(
    r"\$\$([^$]{1,500})\$\$|\$([^$\n]{1,500})\$|\\\(((?:[^\\\n]|\\(?!\))){1,500})\\\)"
    r"|\\\[((?:[^\\]|\\(?!\])){1,500})\\\]"
)
# A line that can be an answer by itself: a number with its unit, a formula, a few signs without a sentence around them.
_STANDS_ALONE = re.compile(
    r"[\s*_`\"'(\[{+$€£¥~-]{0,8}(?:US\$)?\.?[0-9][^\n?]{0,120}"
    r"|\$.{1,480}\$\.?|\\[\[(].{1,480}\\[\])]\.?|[$\s]{0,3}[-(\[{]{0,3}\\[a-zA-Z{].{0,480}"
    r"|[(\[][^\n]{1,200}[)\]]\.?|[a-zA-Z]\s?(?:=|<|>|\\).{1,200}|[-(]?[a-zA-Z0-9][-+*/^0-9a-zA-Z(){}. ]{0,2}"
    r"|(?!.*[a-zA-Z]{4})[-+*/^=<>,a-zA-Z0-9(). ]{1,200}",
    re.DOTALL,
)
_WORDS_ALONE = re.compile(r"\(?[A-Za-z]\)?\.?|[A-Z][a-z]{1,20}(?: [A-Za-z]{1,20}){0,3}\.?|\\text\{[^{}]{1,60}\}")
_ALONE = re.compile(rf"{_WORDS_ALONE.pattern}|{_STANDS_ALONE.pattern}", re.DOTALL)
# What may lead up to the one formula of a turn of one sentence, and follow it.
_SENTENCE = re.compile(
    r"(?:(?:So|Thus|Hence|Therefore|Then|And|Finally)[, ]{1,2})?"
    r"(?:(?:[Ww]e (?:find|get|have|obtain|see|conclude)|[Tt]his (?:gives|means|is)"
    r"|[Ii]t (?:is|equals|follows))(?: that)?"
    r"|[Tt]he [a-z ]{1,60} (?:is|are|equals)|[Aa]nswer)?[:, ]*"
    # "Here is the matrix:", but no problem that is said again: "Compute:", "Find x:"
    r"|(?!(?:Compute|Evaluate|Find|Simplify|Solve|Calculate|Determine|What|Which|How|Given|Let|Consider|Question|Problem"
    r"|Expand|Factor|Not|Wrong|If|Suppose|Step|Nearly|About)\b)[A-Z][a-zA-Z, ]{1,60}:[ ]*"
)
_SENTENCE_END = re.compile(r"(?: is (?:the|our|my) (?:final )?(?:answer|solution|result))?[.!]?")
_DOUBT = re.compile(
    r"\b(?:or|not|no|never|if|wait|actually|wrong|incorrect|alternatively|maybe|perhaps|instead|rather|sorry|hmm|guess"
    r"|unless|suppose|assume|cannot|impossible|except|but|doubt|doubtful|approximately|about|roughly|less|more|than"
    r"|step|first|greater|least|most|times|divided|and)\b|n['’]t\b|\?",
    re.IGNORECASE,
)
# What may stand between two boxes that are one list.
_JOINT_SPACE = r"(?:[\s$.&]|\\[()\[\],;! ]|\\q?quad|[a-zA-Z](?:_[{}0-9]{1,4})?\s?=)"
_JOINT = re.compile(
    rf"{_JOINT_SPACE}{{0,10}},?{_JOINT_SPACE}{{0,10}}"
    rf"|{_JOINT_SPACE}{{0,6}}(?:\\text\{{)?[a-z() ]{{0,24}}(?:,|\b(?:and|or)\b)"
    rf"{_JOINT_SPACE}{{0,3}}\}}?{_JOINT_SPACE}{{0,10}}"
)

# ----------------------------------------------------------------------------------------------------------------------
# What follows or surrounds an answer

# "18. Janet sells the rest", "18, because …": what follows is an explanation, unless it takes the answer back.
_EXPLANATION = re.compile(
    r"\.\s+(?=[A-Z])(?![A-HJ-Z](?:[.,;)]|$))|,?\s(?:because|since|so|which|where)\b|;\s(?=[a-z]{2})"
)
_RETRACTION = re.compile(
    r"\b(?:or|not|no|wait|actually|wrong|incorrect|alternatively|maybe|perhaps|instead|rather|sorry|correction|hmm"
    r"|however|but|although|though|false|doubt|mistake|mistaken|error|either)\b"
    r"|n['’]t\b|\?",
    re.IGNORECASE,
)


def statements(turn: str, *, prose: bool = True, joined: bool = False) -> list[Statement]:
    """Every statement of a final answer in the turn: explicit ones first, then prose, each in the order of the text.

    Args:
        prose: whether anything but explicit statements counts.
        joined: whether neighbouring boxes ("\\boxed{1} and \\boxed{2}") are one list, for a gold that is one.
    """
    found: list[Statement] = []
    if turn.count("box") > MAX_STATEMENTS or turn.count("####") > 4 * MAX_STATEMENTS:
        return [Statement("box", 0, len(turn), ("",), "there are more statements than any answer needs")]
    if "####" in turn:
        found.extend(_marked(turn))
    if "box" in turn:
        found.extend(_boxed(turn, joined))
    if "<" in turn:
        found.extend(_tagged(turn))
    if len(found) > 1:
        found.sort(key=lambda statement: statement.start)
    if prose:
        if _speaks_of_answer(turn):
            found.extend(_told(turn))
        if not found:
            found.extend(_bare(turn))
    return found


def boxes(text: str) -> str | None:
    """What stands in the last box of a text, or in the last few if they are neighbours; None without a box."""
    found = list(_boxed(text, joined=True)) if "boxed" in text else []
    return found[-1].texts[0] if found else None


def _speaks_of_answer(turn: str) -> bool:
    """Whether "answer" is anywhere but on `####` lines: most completions need no search for prose."""
    if "NSWER" in turn:
        return True
    at = turn.find("nswer")
    while at >= 0 and _on_marked_line(turn, at):
        at = turn.find("nswer", at + 1)
    return at >= 0


def _marked(turn: str) -> Iterator[Statement]:
    """`#### 18`, up to the line's end or the next mark."""
    for mark in _MARK.finditer(turn):
        text = _line_from(turn, mark.end()).split("####", 1)[0]
        end = mark.end() + len(text)
        if "boxed" in text:
            text = _unboxed(text)
        spoiled = _spoils_mark(turn[max(0, mark.start() - 64) : mark.start()])
        lead = _LEAD_OF_LINE.match(text)
        text = text[lead.end() :] if lead else text
        if not text.strip(" \t*_`:"):
            # "#### Final answer", with the answer on the next line, or with a paragraph that says where it comes from.
            text = _next_line(turn, mark.end())
            if len(text) <= MAX_EXPRESSION and _STANDS_ALONE.fullmatch(in_ascii(text.strip())):
                yield Statement("mark", mark.start(), end + len(text), (_unboxed(text).strip(),), spoiled)
        elif lead or (_ANSWER_LIKE_START.match(in_ascii(text)) and not _NUMBERED_HEADING.match(text)):
            yield Statement("mark", mark.start(), end, _readings(text), spoiled)
        elif (label := _LABELLED.match(text)) and not turn[mark.end() + len(text) :].strip():
            yield Statement("mark", mark.start(), end, (text[label.end() :].strip(),), spoiled)  # "#### Total: 42"
        elif _HEDGED.match(text):
            yield Statement("mark", mark.start(), end, (text.strip(),), "it hedges")
        elif (
            not _NUMBERED_HEADING.match(text)
            and not turn[mark.end() + len(text) :].strip()
            and _ALONE.fullmatch(text.strip())
        ):
            yield Statement("mark", mark.start(), end, (text.strip(),), spoiled)  # the last: "#### (C)", "#### p - q"
        # Anything else is a heading ("#### Step 1", "#### 2. Count the eggs").


_LABELLED = re.compile(
    r"[\s*_]{0,4}(?!(?:Step|Part|Case|Note|Problem|Method)\b)[A-Z][a-zA-Z ]{2,30}:[*_\s]{1,4}(?=[-$\\0-9])"
)
_HEDGED = re.compile(
    r"[\s*_]{0,4}(?:not|about|approximately|approx|roughly|nearly|almost|maybe|perhaps|probably|none|around|either)\b",
    re.IGNORECASE,
)


def _spoils_mark(before: str) -> str:
    line = before[before.rfind("\n") + 1 :].rstrip(" \t*_`")
    if re.search(r"[-−+/×=<>^]\Z", line):
        return "a sign stands before it"
    if re.search(r"\b(?:not|never|minus|negative|write|if|or)\Z|n['’]t\Z", line, re.IGNORECASE):
        return "what stands before it denies it"
    return ""


def _boxed(turn: str, joined: bool) -> Iterator[Statement]:
    """`\\boxed{18}`, with whatever is said around it on its line that makes it no answer."""
    pending: Statement | None = None
    pending_end = 0
    for box in _BOX.finditer(turn):
        if box.start() < pending_end:
            continue  # a box in a box
        if box.group().endswith("{"):
            content = _braced(turn, box.end())
            end = box.end() + len(content or "") + 1
        else:
            content = _BARE_BOX.match(turn, box.end())[0]  # type: ignore[index]  # a digit is there
            end = box.end() + len(content)
        if content is None or _EMPTY_BOX.fullmatch(content):
            continue
        spoiled = spoils_before(turn[max(0, box.start() - 160) : box.start()])
        if pending is not None:
            gap = turn[pending_end : box.start()]
            if joined and len(gap) <= 64 and _JOINT.fullmatch(gap):
                pending = Statement(
                    "box", pending.start, end, (f"{pending.texts[0]}, {content.strip()}",), pending.spoiled
                )
                pending_end = end
                continue
            yield _finished(pending, turn)
        pending, pending_end = Statement("box", box.start(), end, (content.strip(),), spoiled), end
    if pending is not None:
        yield _finished(pending, turn)


_BARE_BOX = re.compile(r"[0-9]{1,40}")


def _finished(box: Statement, turn: str) -> Statement:
    spoiled = box.spoiled or spoils_behind(turn[box.end : box.end + 160], numeric=any(map(str.isdigit, box.texts[0])))
    return Statement("box", box.start, box.end, box.texts, spoiled)


def _tagged(turn: str) -> Iterator[Statement]:
    """`<answer>18</answer>`; the closing tag may be missing at the end of the turn."""
    for count, tag in enumerate(_TAG.finditer(turn)):
        if count > MAX_STATEMENTS:
            return
        closing = _CLOSING_TAG.search(turn, tag.end(), tag.end() + MAX_EXPRESSION + 10)
        end = closing.start() if closing else min(len(turn), tag.end() + MAX_EXPRESSION + 1)
        text = _unboxed(turn[tag.end() : end]).strip().removeprefix("####").strip()
        spoiled = "a sign stands before it" if re.search(r"[-−+*/^]\Z", turn[: tag.start()]) else ""
        lead = _LEAD_OF_LINE.match(text)
        texts = _readings(text[lead.end() :]) if lead else (text,)
        yield Statement("tag", tag.start(), closing.end() if closing else end, texts, spoiled)


_CLOSING_TAG = re.compile(r"</answer>", re.IGNORECASE)


def _told(turn: str) -> Iterator[Statement]:
    """ "The answer is 18." """
    for count, lead in enumerate(_PROSE.finditer(turn)):
        if count > MAX_STATEMENTS:
            yield Statement("prose", 0, len(turn), ("0",), "there are more statements than any answer needs")
            return
        if _on_marked_line(turn, lead.start()) or _in_tag(turn, lead.start()):
            continue
        text = _line_from(turn, lead.end())
        end = lead.end() + len(text)
        if not text.strip(" \t*_`:"):
            text = _next_line(turn, lead.end())
            end += len(text) + 1
        text = _whole_display(turn, lead.end(), text)
        while (again := _LEAD_OF_LINE.match(text)) and again.end():  # "Final Answer: The final answer is 18."
            text = text[again.end() :]
        if "boxed" in text:
            continue  # the box is a statement of its own
        if _CHECKED.search(turn, max(0, lead.start() - 16), lead.start()):
            continue  # "Let us check our answer: 2 * 21 = 42"
        text = text.split("</", 1)[0]
        is_label = _LABEL.match(lead.group()) is not None
        denied = not is_label and denied_before(turn[max(0, lead.start() - 160) : lead.start()])
        denied = denied or _OTHER.search(lead.group()) is not None
        spoiled = "what stands before it denies it" if denied else ""
        yield Statement("prose", lead.start(), end, _readings(text, exclaimed=True), spoiled)
    for heading in _ANSWER_HEADING.finditer(turn):
        text = _whole_display(turn, heading.end(), _next_line(turn, heading.end()))
        if _on_marked_line(turn, heading.start()) or "boxed" in text:
            continue
        if len(text) <= MAX_EXPRESSION and _STANDS_ALONE.fullmatch(in_ascii(text.strip())):
            end = turn.find(text, heading.end()) + len(text)
            yield Statement("prose", heading.start(), end, _readings(text))


_LABEL = re.compile(r"[\s#*_>-]*(?:Final Answer|FINAL ANSWER|Final answer|Answer|ANSWER)[*_ ]*:")
_OTHER = re.compile(r"\b(?:different|another|other|next|previous|wrong)\b", re.IGNORECASE)


def _in_tag(turn: str, start: int) -> bool:
    opening = turn.rfind("<answer>", max(0, start - MAX_EXPRESSION), start)
    return opening >= 0 and turn.find("</", opening, start) < 0


def _whole_display(turn: str, start: int, line: str) -> str:
    """The line, or the display of several lines that begins in it."""
    opening = line.strip()[:2]
    if opening not in ("\\[", "$$"):
        return line
    begins = turn.index(opening, start)
    display = _FORMULA.match(turn, begins, begins + MAX_EXPRESSION)
    return display.group() if display else line


def _bare(turn: str) -> Iterator[Statement]:
    """A turn of one line that is an answer and nothing else, or one sentence with one formula."""
    text = turn.strip()
    if not text or len(text) > MAX_EXPRESSION:
        return
    if "\n" in text and not re.fullmatch(r"(?:\\\[|\$\$)[^$]{1,500}(?:\\\]|\$\$)", text):
        return
    start, end = turn.find(text[0]), len(turn.rstrip())
    formulas = list(_FORMULA.finditer(text))
    if len(formulas) == 1:
        before, behind = text[: formulas[0].start()], text[formulas[0].end() :]
        if not before.strip():
            yield Statement("bare", start, end, _readings(text))
        elif _SENTENCE.fullmatch(before) and _SENTENCE_END.fullmatch(behind) and not _DOUBT.search(before):
            formula = next(part for part in formulas[0].groups() if part is not None)
            yield Statement("bare", start, end, (formula.strip(),))
    elif _STANDS_ALONE.fullmatch(in_ascii(text)):
        yield Statement("bare", start, end, (text,))


def _readings(text: str, *, exclaimed: bool = False) -> tuple[str, ...]:
    """The statement whole; without an explanation that follows, unless that takes the answer back; its formula.

    Args:
        exclaimed: whether an exclamation mark at the end is one, and no factorial.
    """
    text = text.strip()
    readings = [text]
    cut = _EXPLANATION.search(text)
    if cut is not None and not _RETRACTION.search(text, cut.start(), cut.end() + 240):
        readings.append(text[: cut.start()].strip())
    if exclaimed and text.endswith("!"):
        readings.append(text.rstrip("!"))
    said = _WHAT_IT_IS.match(text)
    if said is not None and not _DOUBT.search(text, 0, said.end()):
        readings.append(readings[-1][said.end() :])
    formula = _FORMULA.match(text)
    if formula is not None and formula.end() < len(text):
        rest = readings[-1][formula.end() :]
        if all(is_unit_word(word) for word in re.findall(r"[^\s.,!*_]+", rest)):
            readings.append(text[: formula.end()])
        else:
            readings.append(readings[-1].replace("$", " ").replace("\\(", " ").replace("\\)", " "))
    return tuple(readings)


def _line_from(turn: str, start: int) -> str:
    """The rest of the line, and one character more than an answer may have if it is longer."""
    end = turn.find("\n", start, start + MAX_EXPRESSION + 1)
    return turn[start : end if end >= 0 else start + MAX_EXPRESSION + 1]


def _next_line(turn: str, start: int) -> str:
    """The next line that is not blank, if it comes within 16 characters of the end of this one."""
    end = turn.find("\n", start, start + MAX_EXPRESSION + 1)
    if end < 0:
        return ""
    gap = turn[end : end + 16]
    return _line_from(turn, end + len(gap) - len(gap.lstrip()))


def _on_marked_line(turn: str, start: int) -> bool:
    before = turn[max(0, start - 48) : start]
    return "####" in before[before.rfind("\n") + 1 :]


def _braced(text: str, start: int) -> str | None:
    """The text from `start`, just behind an opening brace, to the brace that closes it."""
    depth = 1
    for index in range(start, min(len(text), start + MAX_EXPRESSION + 1)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return text[start:index]
    return None


def _unboxed(text: str) -> str:
    """`\\boxed{18}` -> `18` within a line, once."""
    if "boxed" not in text:
        return text
    box = _BOX.search(text)
    content = _braced(text, box.end()) if box else None
    if box is None or content is None:
        return text
    return text[: box.start()] + content + text[box.end() + len(content) + 1 :]
