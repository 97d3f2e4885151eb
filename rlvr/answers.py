"""Reading the final answer out of a completion, and comparing it exactly with the gold.

What counts as an answer, in the order of trust:
1. explicit: a line with `####` (`#### 18`, `#### The final answer is 18`), `\\boxed{18}`, `<answer>18</answer>`;
2. prose: "The answer is 18.", "Answer: 18".

The policies, all of which err on the side of "wrong":
- Only the model's own turn is read (`own_turn`): not what it thinks aloud between <think> tags, and nothing after the
  next "Question:" that it invents.
- One answer a turn. It may be repeated, but two different final answers score 0, as do several candidates in one
  ("42 or 41"). A `####` line that is a heading ("#### Step 1") is no answer.
- Numbers are compared exactly, as integers or fractions: 42.0005 is not 42, and no integer is too long for a float.
- A unit, a currency sign or a percent sign is dropped, because golds have none: "$18", "18 dollars" and "18%" are 18.
  Words that change the number are not units: "42 thousand" is 42,000, and "42 squared" is unreadable.

What a number may look like is in rlvr/numbers.py. Not covered: numbers in words, expressions to be simplified, sets,
intervals, matrices.

Every pattern here runs in linear time, an answer may have 200 characters and a turn 100,000, and no string raises an
exception. Nothing outside the standard library is imported, so that reward workers and servers start fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rlvr.numbers import MAX_CHARACTERS, Number, in_ascii, plain_number, read_number

MAX_TURN_CHARACTERS = 100_000


@dataclass(frozen=True)
class AnswerVerdict:
    """What the verifier found in one completion.

    Attributes:
        correct: True or False; None if the gold itself cannot be read, which is no fault of the model's.
        extracted: the answer as the model wrote it, None where there is none.
        why: one sentence for a person who asks why this completion got its score.
    """

    correct: bool | None
    extracted: str | None
    why: str


def check_answer(completion: str | list[dict], gold: str, *, prose: bool = True) -> AnswerVerdict:
    """Whether the completion's final answer is the number `gold`.

    Args:
        completion: the text, or a chat completion: a list of messages, of which the last assistant message is read.
        gold: the right answer, in any notation that `normalise_gold` reads.
        prose: whether "The answer is 18." counts where there is no explicit answer. False asks for `####`, a box or
            an <answer> tag.
    """
    gold_value = _gold_value(gold) if isinstance(gold, str) else None
    if gold_value is None:
        return AnswerVerdict(None, None, f"the gold {_shown(str(gold))} is not a number that can be read")
    turn = own_turn(completion_text(completion))
    if len(turn) > MAX_TURN_CHARACTERS:
        return AnswerVerdict(False, None, f"the turn is longer than {MAX_TURN_CHARACTERS:,} characters")

    first: _Candidate | None = None
    for candidate in _candidates(turn, prose):
        if candidate.value is None:
            # Said in passing ("the answer is 15 gallons * 8 pints"), before the answer or without one.
            if not candidate.explicit and (first is None or candidate.start < first.start):
                continue
            return AnswerVerdict(False, candidate.text, f"{_shown(candidate.text)} is not one number that can be read")
        if first is None:
            first = candidate
        elif candidate.value != first.value:
            why = f"two different final answers: {_shown(first.text)} and {_shown(candidate.text)}"
            return AnswerVerdict(False, first.text, why)
    if first is None:
        return AnswerVerdict(False, None, "no final answer in the model's own turn")
    if first.value == gold_value:
        return AnswerVerdict(True, first.text, f"{_shown(first.text)} is {_shown(gold)}")
    return AnswerVerdict(False, first.text, f"{_shown(first.text)} is not {_shown(gold)}")


def normalise_gold(text: str) -> str:
    """The gold as a bare number: "$70,000" -> "70000", "<<6*7=42>>42" -> "42", "18.50" -> "18.5", "2/4" -> "1/2".

    Raises:
        ValueError: it is not one number that can be read.
    """
    value = _gold_value(text)
    if value is None:
        raise ValueError(f"{_shown(text)} is not a number that can be read")
    return plain_number(value)


def completion_text(completion: str | list[dict]) -> str:
    """The text that the model wrote: the completion itself, or the content of its last assistant message."""
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, list):
        return ""
    for message in reversed(completion):
        if isinstance(message, dict) and message.get("role", "assistant") == "assistant":
            content = message.get("content")
            if isinstance(content, list):  # parts, as multimodal templates write them
                texts = [part.get("text") for part in content if isinstance(part, dict)]
                return "".join(text for text in texts if isinstance(text, str))
            return content if isinstance(content, str) else ""
    return ""


# ----------------------------------------------------------------------------------------------------------------------
# The model's own turn

_THINK_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)

# A model that goes on after its answer invents the next problem. Its header stands at the start of a line, perhaps in
# Markdown ("### Question 2:", "**Problem:**", "Q:", "User:"), or is an end-of-turn token that was not taken out.
_NEXT_PROBLEM = re.compile(
    r"""
    ^[ \t#>*_\[(<-]{0,16}
    (?:
        (?:(?:next|new|another|follow-?up|similar|practice|bonus|sample)[ \t]+)?
        (?:question|problem|exercise|example|puzzle|riddle|prompt|instruction|user|human|q)
        (?:
            [ \t]{0,4}(?:[#(]{0,2}[0-9]{1,5}[)]?|[ivx]{1,5})?[ \t*_\])>]{0,8}:        # "Question:", "**Problem 2**:"
          | [ \t]{0,4}[#(]{0,2}[0-9]{1,5}[*_\])]{0,4}[ \t]*(?:[.)]|$)                 # "Q2.", "Problem 3" and no more
          | [*_\])>]{1,8}[ \t]*$                                                      # "**Question**", "[Question]"
          | [ \t]*\Z                                                                  # cut off at the length limit
        )
      | (?:here(?:'s|[ ]is)|now|let(?:'s|[ ]us))[ \t]+(?:try|solve|do|is)?[ \t]*
        (?:another|a[ ]new|the[ ]next|a[ ]similar)[ \t]+(?:problem|question|example|one)\b
    )
    | <\|(?:im_end|im_start|endoftext|end_of_text|eot_id|start_header_id|end|user|system|assistant)\|>
    | </s> | \[INST\]
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)


def own_turn(text: str) -> str:
    """What of the completion is the model's answer to this problem.

    Drops what stands between <think> tags (a missing opening tag was in the prompt; a missing closing one means that
    the model never came to its answer), and everything from the next "Question:"-like header at a line's start. A
    header that opens the completion is one too: such a model did not answer the problem that it was given.
    """
    text = without_thinking(text)
    header = _NEXT_PROBLEM.search(text)
    return text[: header.start()] if header else text


def without_thinking(text: str) -> str:
    """The text outside <think>…</think>; `own_turn` is the beginning of it. Line ends become "\n"."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "<" not in text:
        return text
    kept: list[str] = []
    start, thinking, first_tag = 0, False, True
    for tag in _THINK_TAG.finditer(text):
        closes = tag.group(1) == "/"
        if not thinking and not (closes and first_tag):
            kept.append(text[start : tag.start()])
        thinking, start, first_tag = not closes, tag.end(), False
    if not thinking:
        kept.append(text[start:])
    return "\n".join(kept)  # a line break, so that no marker comes into being from the two sides of what was taken out


# ----------------------------------------------------------------------------------------------------------------------
# Where final answers stand


@dataclass(frozen=True)
class _Candidate:
    """One statement of a final answer; `value` is None where it is not one readable number."""

    start: int
    text: str
    value: Number | None
    explicit: bool


# "the final answer is", "**Answer:**", "answer to the question is equal to"
_LEAD = r"answer[ \t*_`]{0,8}(?:[ \t]to[ \t][a-z \t']{1,60})?(?:is\b|:|=|would[ ]be\b|equals\b|comes[ ]to\b)"
_LEAD_REST = r"[ \t*_`:]{0,12}(?:(?:therefore|thus|then|simply|exactly|equal[ ]to)\b)?[ \t:]{0,4}"
# Not every answer is the answer: "each correct answer is 4 points" is said in passing.
_PROSE = re.compile(
    r"(?:\b(?:the|my|our|final|(?:so|thus|hence|therefore),?)[ ]+|^[ \t#*_>-]{0,12})(?:final[ ]+|correct[ ]+)?"
    rf"{_LEAD}{_LEAD_REST}",
    re.IGNORECASE | re.MULTILINE,
)
_LEAD_OF_LINE = re.compile(
    rf"[ \t*_`]{{0,8}}(?:(?:so|thus|therefore|hence),?[ ])?(?:the[ ]|our[ ]|my[ ])?(?:final[ ]|correct[ ])?"
    rf"(?:{_LEAD}|answer[ \t*_`]{{0,8}}$){_LEAD_REST}",
    re.IGNORECASE,
)
_ANSWER_HEADING = re.compile(r"^[ \t#*_]{0,12}(?:the[ ])?final[ ]answer[ \t*_]{0,8}$", re.IGNORECASE | re.MULTILINE)
_MARK = re.compile(r"(?<!#)####(?!#)")
_NUMBERED_HEADING = re.compile(r"[ \t*_]{0,8}[0-9]{1,3}[.):][*_]{0,3}[ \t]+[^\s]")
_ANSWER_LIKE_START = re.compile(
    r"[\s*_`]{0,8}(?:US|USD|EUR|GBP|INR|Rs\.?)?[\s*_`\"'$€£¥₹\\(\[{=.+~-]{0,12}[0-9]"
    r"|[\s*_`$-]{0,8}\\[dt]?frac"
    r"|[\s*_`$]{0,8}[A-Za-z][A-Za-z _']{0,40}="
)
_BOX = re.compile(r"\\f?boxed[ ]{0,4}\{")
_TAG = re.compile(r"<answer>", re.IGNORECASE)
# What, said right before a statement, takes it back: "I don't think that the answer is 42", "x is not \boxed{42}".
# (\Z, as $ would also match before a line break.)
_TAKEN_BACK = re.compile(
    r"(?:\b(?:if|whether|unless|suppose|assume|assuming|wrong|incorrect|previous|doubt|impossible|not|never|cannot)|n['’]t)"
    r"[ ]+(?:(?:the|my|our|final|correct|case|possible|true|sure|that|think|believe|say|mean)[ ]+){0,8}\Z",
    re.IGNORECASE,
)
_UNEQUAL = re.compile(
    r"(?:\b(?:not|never|wrong|incorrect)|n['’]t)[ ]+(?:(?:be|equal|to|necessarily)[ ]+){0,3}[$: ]{0,4}\Z"
    r"|(?:≠|!=|\\neq?|≤|≥|(?<![a-z][a-z])(?<![-=])[<>]=?|\\[lg](?:t|eq?)?)[ $]{0,4}\Z"
    r"|[=$(][ ]?[-−][ ]?\Z|[0-9]\Z",
    re.IGNORECASE,
)
_ALTERED = re.compile(
    r"[ $*,)]{0,8}(?:or|and|to|/|-)[ $*(]{0,8}\\?[$]?[0-9]|[ ]?[\^!0-9]|[ ]?\\(?:times|cdot|pm)\b", re.IGNORECASE
)


def _candidates(turn: str, prose: bool) -> list[_Candidate]:
    """Every statement of a final answer in the turn: explicit ones first, then prose, each in the order of the text."""
    found: list[_Candidate] = []
    if "####" in turn:
        found.extend(_marked(turn))
    if "boxed" in turn:
        found.extend(_boxed(turn))
    if "<" in turn:
        found.extend(_tagged(turn))
    if len(found) > 1:
        found.sort(key=lambda candidate: candidate.start)
    if prose and _speaks_of_answer(turn):
        found.extend(_told(turn))
    return found


def _speaks_of_answer(turn: str) -> bool:
    """Whether "answer" is anywhere but on `####` lines: most completions need no search for prose."""
    if "NSWER" in turn:
        return True
    at = turn.find("nswer")
    while at >= 0 and _on_marked_line(turn, at):
        at = turn.find("nswer", at + 1)
    return at >= 0


def _marked(turn: str) -> Iterator[_Candidate]:
    """`#### 18`, up to the line's end or the next mark."""
    for mark in _MARK.finditer(turn):
        text = _line_from(turn, mark.end()).split("####", 1)[0]
        if "boxed" in text:
            text = _unboxed(text)
        lead = _LEAD_OF_LINE.match(text)
        text = text[lead.end() :] if lead else text
        if not text.strip(" \t*_`:"):
            # "#### Final answer", with the number on the next line, or with a paragraph that says where it comes from.
            text = _next_line(turn, mark.end())
            value = read_number(_unboxed(text))
            if value is not None:
                yield _Candidate(mark.start(), text.strip(), value, True)
        elif lead or (_ANSWER_LIKE_START.match(in_ascii(text)) and not _NUMBERED_HEADING.match(text)):
            yield _Candidate(mark.start(), text.strip(), _read_statement(text), True)
        # Anything else is a heading ("#### Step 1", "#### 2. Count the eggs").


def _boxed(turn: str) -> Iterator[_Candidate]:
    """`\\boxed{18}`, with whatever is said around it on its line that makes it no answer."""
    for box in _BOX.finditer(turn):
        content = _braced(turn, box.end())
        if content is None:
            continue
        value = read_number(content)
        end = box.end() + len(content) + 1
        if _UNEQUAL.search(turn[max(0, box.start() - 32) : box.start()]) or _ALTERED.match(turn, end):
            value = None
        yield _Candidate(box.start(), content.strip(), value, True)


def _tagged(turn: str) -> Iterator[_Candidate]:
    """`<answer>18</answer>`; the closing tag may be missing at the end of the turn."""
    for tag in _TAG.finditer(turn):
        end = turn.find("</", tag.end(), tag.end() + MAX_CHARACTERS + 1)
        text = turn[tag.end() : end] if end >= 0 else turn[tag.end() : tag.end() + MAX_CHARACTERS + 1]
        text = _unboxed(text).strip().removeprefix("####").strip()
        lead = _LEAD_OF_LINE.match(text)
        yield _Candidate(tag.start(), text, read_number(text[lead.end() :] if lead else text), True)


def _told(turn: str) -> Iterator[_Candidate]:
    """ "The answer is 18." A statement that is unreadable and holds no digit is no statement of a number at all."""
    for lead in _PROSE.finditer(turn):
        if _on_marked_line(turn, lead.start()):
            continue
        text = _line_from(turn, lead.end())
        if not text.strip(" \t*_`:"):
            text = _next_line(turn, lead.end())
        if "boxed" in text:
            continue  # the box was read already
        taken_back = _TAKEN_BACK.search(turn[max(0, lead.start() - 64) : lead.start()])
        value = None if taken_back else _read_statement(text)
        if value is not None or any(character.isdigit() for character in text):
            yield _Candidate(lead.start(), text.strip(), value, False)
    for heading in _ANSWER_HEADING.finditer(turn):
        text = _next_line(turn, heading.end())
        value = read_number(text)
        if value is not None and not _on_marked_line(turn, heading.start()):
            yield _Candidate(heading.start(), text.strip(), value, False)


def _line_from(turn: str, start: int) -> str:
    """The rest of the line, and one character more than an answer may have if it is longer."""
    end = turn.find("\n", start, start + MAX_CHARACTERS + 1)
    return turn[start : end if end >= 0 else start + MAX_CHARACTERS + 1]


def _next_line(turn: str, start: int) -> str:
    """The next line that is not blank, if it comes within 16 characters of the end of this one."""
    end = turn.find("\n", start, start + MAX_CHARACTERS + 1)
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
    for index in range(start, min(len(text), start + MAX_CHARACTERS + 1)):
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


# ----------------------------------------------------------------------------------------------------------------------
# Reading a statement

# "18. Janet sells the rest", "18, because …": what follows is an explanation, unless it takes the answer back.
_EXPLANATION = re.compile(r"\.\s+(?=[A-Z\"(])|,?\s(?:because|since|so|which|where)\b|;\s")
_RETRACTION = re.compile(
    r"\b(?:or|not|no|wait|actually|wrong|incorrect|alternatively|maybe|perhaps|instead|rather|sorry|correction|hmm)\b"
    r"|n['’]t\b|\?",
    re.IGNORECASE,
)


def _read_statement(text: str) -> Number | None:
    """The number at the head of a sentence, which an explanation may follow."""
    value = read_number(text)
    if value is not None:
        return value
    cut = _EXPLANATION.search(text)
    if cut is None or _RETRACTION.search(text, cut.start()):
        return None
    return read_number(text[: cut.start()])


@lru_cache(maxsize=65536)
def _gold_value(text: str) -> Number | None:
    return read_number(re.sub(r"<<[^<>]*>>", "", text), units=False)


def _shown(text: str) -> str:
    """The text in quotes, short enough for a sentence."""
    text = " ".join(text[:MAX_CHARACTERS].split())
    return f"'{text}'" if len(text) <= 60 else f"'{text[:57]}...'"
