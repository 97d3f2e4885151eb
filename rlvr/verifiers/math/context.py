"""Decide whether the text around a stated answer changes it.

A box is the answer only if nothing around it changes it. "-\\boxed{42}", "2 \\times \\boxed{42}", "not \\boxed{42}",
"\\boxed{42} million" and "\\boxed{42}, or 41" change it. The signs that may surround an answer are listed here; any
other sign is a defect. Sentences are too many to list, so adjacent words are checked against those that deny, hedge,
report or compute.
"""

from __future__ import annotations

import re
import unicodedata

from rlvr.verifiers.math.numbers import word_set

# ----------------------------------------------------------------------------------------------------------------------
# Text before an answer

_REACH = 96  # characters that are read on either side
_OPENERS = re.compile(
    r"(?:[\s#$*_`\"'“‘,;]|\\[(\[,;!$ ]|\\q?quad|\\displaystyle|\\(?:bf|large|Large)|\\begin\{[a-z*]{1,12}\})+\Z"
)
_SIGN_BEFORE = re.compile(
    r"(?:(?<![<>≠])=|:|：|=>|->|→|⇒|⟹|∴|≡|&|—|\\\\"
    r"|\\(?:implies|Rightarrow|Longrightarrow|rightarrow|to|therefore|equiv|in|approx|colon|iff|Leftrightarrow)"
    r"|≈|\\(?:end)\{[a-z*]{1,12}\}|[.!)\]}|>])\Z"
)
_NOT_EQUAL = re.compile(r"(?:\\not\s?=?|\\neq?|\\ne|(?<![0-9)}])!=|[<>≠]\s?=?)\Z")
_LINE_START = re.compile(r"[ \t]*(?:[-*+>•]|[0-9]{1,2}[.)]|\(?[a-z]\)|[ivx]{1,4}[.)])?[ \t]*\Z")
_LAST_WORDS = re.compile(r"((?:[A-Za-z'’]{1,24}[ ]+){0,3}[A-Za-z'’]{1,24})\Z")
_TEXT_AT_END = re.compile(r"\\(?:text|mbox|textbf|textrm|mathrm)\s?\{([^{}]{0,80})\}\Z")

# Words directly before an answer that deny it, hedge it, report it, or compute with it.
_DEFECT_WORDS = word_set("""
not never cannot no nor neither without except unless if whether wrong incorrect false instead versus vs either
minus plus times over negative than twice double triple half doubled halved squared cubed sqrt root
almost nearly maybe perhaps possibly probably guess guessed says said say claims
claimed claim thinks thought told wrote suggests suppose assume assuming imagine exceeds exceed under between below
above beyond unlike excluding divided multiplied factorial log ln sin cos tan mod modulo isn't aren't wasn't don't
doesn't didn't can't couldn't won't wouldn't shouldn't
""")
# "half of 42", but "a total of 42".
_DEFECT_BEFORE_OF = word_set("""
half third quarter twice double triple square cube root multiple factor power percent percentage opposite negative
inverse reciprocal instead none fraction tenth fifth logarithm sine cosine successor predecessor most one
""")
_DENYING_WORDS = word_set("cannot not never might may could")


def find_prefix_defect(before: str) -> str:
    """Return why the text before a box or a tag makes it no answer; empty if it does not."""
    line_start = before.rfind("\n") + 1
    line = before[line_start:][-_REACH:]
    if line.endswith("\\") and not line.endswith("\\\\"):
        line = line[:-1]  # "\\\\boxed": escaped once too often
    context = _OPENERS.sub("", line)
    if re.search(r"[0-9][.,]?(?:\\\(|[$({\[])*\Z|\|\Z", line):
        return "something before it continues it"
    if not context.strip() or _LINE_START.fullmatch(context) or _LINE_START.fullmatch(line):
        above = before[:line_start].rstrip(" \n$*\\[(")[-32:]
        if re.search(r"\b(?:not|cannot be|wrong answer|incorrect answer)\s?:?\Z", above, re.IGNORECASE):
            return "the line above denies it"
        # Only a bullet, or nothing; a minus that touches the answer is no bullet.
        return "a minus stands before it" if re.search(r"[-−+][$\\(\[ ]{0,3}\Z", line) and not _is_bullet(line) else ""
    if re.search(r"(?:<[a-zA-Z/][^<>]{0,40}>|[=-]>)\Z", context):
        return ""  # a tag of markup, an arrow
    if _NOT_EQUAL.search(context):
        return "an inequality stands before it"
    if re.search(r"\b(?:not|cannot|never|wrong|incorrect|n['’]t)\b[^.:]{0,24}:\Z", context, re.IGNORECASE):
        return "the text before it denies it"
    after_comma = line[len(context) :].lstrip(" $\\(*").startswith(",")
    if after_comma and re.search(r"[A-Za-z]{2}", context) and not _LAST_WORDS.search(context):
        return ""  # "Since x = 6, \boxed{42}"
    if text_command := _TEXT_AT_END.search(context):
        context = _OPENERS.sub("", context[: text_command.start()] + text_command[1].rstrip())
        if not context:
            return ""
    if command := re.search(r"\\[a-zA-Z]+\Z", context):
        return "" if _SIGN_BEFORE.search(context) else f"{command[0]} stands before it"
    if words := _LAST_WORDS.search(context):
        # "1\frac14, or \boxed{1.25}" repeats the answer, "41 or \boxed{42}" does not decide.
        comma = re.search(r",[\s$]{0,4}or\Z", context, re.IGNORECASE) is not None
        return _find_word_defect(words[1].lower().replace("’", "'").split(), comma)
    if context.endswith(")"):
        inside = context[context.rfind("(") + 1 : -1]
        return "" if re.search(r"[a-z]{2}", inside) else "a factor stands before it"
    if context.endswith("}") and not re.search(r"\\end\{[a-z*]{1,12}\}\Z", context):
        return "a factor stands before it"
    if context.endswith("|"):
        return "" if line.lstrip().startswith("|") else "a bar stands before it"
    if context.endswith("."):
        return "a digit stands before it" if re.search(r"[0-9]\.\Z", line) else ""
    if _SIGN_BEFORE.search(context):
        return ""
    last = context[-1]
    if last in "({[":
        return "" if last == "(" and re.search(r"(?:\A|[\sA-Za-z])\s\(\Z", context) else "a bracket stands before it"
    if ord(last) > 127 and unicodedata.category(last) not in ("Sm", "Nd", "No", "Nl", "Pd", "Cf"):
        return ""  # a letter of another script, a symbol
    return "something before it changes it"


def _is_bullet(line: str) -> bool:
    return re.match(r"[ \t]*[-+*][ \t]", line) is not None and re.search(r"[-−+][$\\(\[ ]{0,3}\Z", line[2:]) is None


def _find_word_defect(words: list[str], comma: bool) -> str:
    before, last = ["", *words][-2:]
    if last == "or" and not comma:
        return "another candidate stands before it"
    if last in _DEFECT_WORDS or (len(last) == 1 and last not in "ais"):
        return f"'{last}' stands before it"
    if last == "of" and before in _DEFECT_BEFORE_OF:
        return f"'{before} of' stands before it"
    if last in ("be", "equal", "exactly", "the", "a", "an", "to", "that", "is", "necessarily", "answer"):
        denied = next((word for word in words[:-1] if word in _DENYING_WORDS or word.endswith("n't")), "")
        if denied:
            return f"'{denied} … {last}' stands before it"
        if last in ("is", "the") and before in ("half", "twice", "double"):
            return f"'{before}' stands before it"
    return ""


# ----------------------------------------------------------------------------------------------------------------------
# Text after an answer

_CLOSERS = re.compile(r"(?:[$*_`}]|\\[)\],;! ]|\\q?quad|\\end\{[a-z*]{1,12}\}|\\hspace\{[^{}]{0,12}\}|[ \t])*")
_MATHS_BEHIND = re.compile(
    r"\\(?:text|mbox|textbf|textrm|mathrm|textnormal)\s?\{(?P<words>[^{}]{0,60})\}(?:\s?\^\{?[23]\}?)?"
    r"|\^\s?\{?\s?\\(?:circ|degree)\s?\}?|\\degree|\\?%|°|\\approx[^\n]*|≈[^\n]*|\\(?:pmod|bmod|mod)\s?\{?[^\n]*|\\\\|&"
    r"|\\(?:tag|label|blacksquare|square|qed|qquad)(?:\{[^{}]{0,20}\})?|[€£¢]|□|■|✓|✅"
)
_STOP = re.compile(r"[.,;:!)\"'”’\]|](?![0-9])|[—–-](?=\s)")
_ANOTHER = re.compile(
    r"[\s$\\(*]{0,8}(?:or|and|to|vs|versus|nor|but)\b[\s$\\(*]{0,8}(?:\\boxed|\\?\$?[-−]?[0-9(\\]|[a-z]{1,2}\b)"
)


def find_suffix_defect(behind: str, *, numeric: bool = True) -> str:
    """Return why the text after a box makes it no answer; empty if it does not.

    Args:
        behind: the text from the answer's end.
        numeric: whether the answer has digits, so that an adjacent number would continue it.
    """
    end = behind.find("\n", 0, _REACH)
    line = behind[: end if end >= 0 else _REACH]
    position = _CLOSERS.match(line).end()  # type: ignore[union-attr]  # it matches the empty string
    for _ in range(4):
        maths = _MATHS_BEHIND.match(line, position)
        if not maths:
            break
        if maths["words"] is not None and _words_change_answer(maths["words"]):
            return f"'{maths['words'].strip()}' stands after it"
        position = _CLOSERS.match(line, maths.end()).end()  # type: ignore[union-attr]
    if position >= len(line):
        return ""
    rest = line[position:]
    if _ANOTHER.match(rest):
        return "another candidate stands after it"
    if stop := _STOP.match(rest):
        return _find_defect_after_stop(rest[0], rest[stop.end() :])
    apart = position > 0 and line[position - 1] in " \t$})]*_`"
    if re.match(r"[A-Za-z(]", rest) and (apart or rest[0] == "("):
        return f"'{rest[:24].strip()}' stands after it" if _words_change_answer(rest) else ""
    if re.match(r"</?(?!sup|sub)[a-zA-Z]{1,16}>", rest) or rest[:2] in ("\\)", "\\]") or not numeric:
        return ""  # a tag of markup, an end of mathematics
    if re.match(r"=\s?\\?[$]?[-0-9.,/{}\\a-z]{1,40}\s?[$.)\]\\]{0,4}\Z", rest):
        return ""  # "\boxed{\frac12} = 0.5" repeats the answer
    if ord(rest[0]) > 127 and unicodedata.category(rest[0]) in ("Lo", "So", "Po"):
        return ""
    return "something after it changes it"


def _find_defect_after_stop(stop: str, rest: str) -> str:
    if stop in ",;" and re.match(r"[\s$\\(*]{0,8}[-−]?\\?[0-9]", rest):
        return "another candidate stands after it"
    if stop in ".-—–" and re.match(r"[.\s]{0,4}[0-9]", rest) and not re.match(r"\s{1,2}[0-9]{1,2}[.)]", rest):
        return "another number stands after it"
    if re.match(r"[\s$\\(*]{0,6}(?:not|no|but not|wrong|false|maybe|perhaps)\b", rest, re.IGNORECASE):
        return "the text after it retracts it"
    if re.match(r"[\s$\\(*]{0,6}or\b(?=.)(?![\s$\\(]{0,8}boxed)", rest, re.IGNORECASE):
        return "another candidate stands after it"
    return ""


# Words directly after an answer that change or retract it.
_CHANGING = re.compile(
    r"\s*\(?\s*(?:thousand|million|billion|trillion|hundred|dozen|lakh|crore|gross|score|bn|mn|k|squared|cubed|factorial"
    r"|mod|modulo|base|in (?:binary|base|hex)|plus|minus|times (?!as|more|the|a|larger)(?=[a-z0-9])"
    r"|divided|multiplied|over|point(?!s)|and a"
    r"|halves|thirds|fourths|quarters|fifths|sixths|sevenths|eighths|ninths|tenths|[a-z]{3,12}dths|or(?=\s*\S)|not|nor"
    r"|never|to the power|raised)s?\b(?!-)",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\s*\(?(?:[A-Za-z]{1,16}\s){0,2}?"
    r"(?:(?:is|are|was|were|be|seems?|looks?|does|do|did|can|could|must|has|would)"
    r"(?:\s(?:also|just|clearly|obviously|definitely|a|the))?\s?"
    r"(?:not|n['’]t|wrong|incorrect|false|impossible|too|never|mistaken|mistake|untrue|lie|guess)\b"
    r"|cannot\b|fails\b|wrong\b|incorrect\b|false\b)",
    re.IGNORECASE,
)


def _words_change_answer(words: str) -> bool:
    """Whether words after an answer change or deny it; most continue the sentence, or are a unit."""
    text = words.strip(" ()")
    if not re.search(r"[A-Za-z]", text):
        return bool(text)  # \text{ + 2}
    beside = re.search(r"\A[^A-Za-z(]*[0-9+*/=^<>-]|\A[B-HJ-Z]\b(?!['’.])", text)
    return bool(beside or _CHANGING.match(text) or _DENIED.match(text))


# ----------------------------------------------------------------------------------------------------------------------
# Sentences before "the answer is", and after the last answer

_SENTENCE_START = re.compile(r"[.!?:;\n](?=[\s*_]|\Z)|\n")
_MAY_PRECEDE = re.compile(
    r"(?:[\s*_#>`(\"'-]|[0-9]{1,2}[.)]|\b(?:so|thus|therefore|hence|then|and|now|finally|in conclusion|overall|in total"
    r"|as a result|consequently|that|we|i|you|can|see|say|find|conclude|know|get|have|obtain|believe|which|this|it"
    r"|means|gives|shows|follows|implies|tells|us|here|because|since|of course|clearly|also|is|okay|ok|well"
    r"|the|my|our|final|correct|your)\b,?)*",
    re.IGNORECASE,
)
_DENYING = re.compile(
    r"\b(?:if|whether|unless|suppose|supposing|assume|assuming|wrong|incorrect|false|previous|doubt|impossible|not|never|"
    r"cannot|no|nobody|twice|half|double|triple|square|digits?|opposite|negative|disagree|deny|says?|said|claims?|claimed"
    r"|told|guess(?:es|ed)?|wonder|question|different|another|other|next|imagine|maybe|perhaps)\b|n['’]t\b",
    re.IGNORECASE,
)


def is_denied(before: str) -> bool:
    """Whether the sentence before "the answer is" denies, doubts, reports or changes the answer."""
    window = before[-160:]
    starts = [0, *(match.end() for match in _SENTENCE_START.finditer(window))]
    sentence = window[starts[-1] :]
    if _MAY_PRECEDE.fullmatch(sentence):
        return False
    ended = sentence.rstrip().endswith((",", ";", ")", "—", "-", "=", "$", "]", "}", "*", "|", ">"))
    return not ended or _DENYING.search(sentence[-80:]) is not None


_AFTERTHOUGHT = re.compile(
    r"(?:\A|[\s.!*(])(?:wait|actually|correction|sorry|oops|hmm|scratch that|on second thou?ght"
    r"|i (?:made|have made|think i made) (?:a|an|some) (?:\w{1,12} )?(?:mistakes?|errors?)"
    r"|th(?:at|is) (?:is|was|seems|'s) (?:\w{1,12} )?(?:wrong|incorrect|not right|false|mistaken)"
    r"|let me (?:re-?do|re-?check|re-?calculate|re-?compute|re-?consider|correct|fix|try again))\b",
    re.IGNORECASE,
)


def is_retracted(behind: str) -> bool:
    """Whether the text after the last answer retracts it or starts over."""
    return _AFTERTHOUGHT.search(behind) is not None
