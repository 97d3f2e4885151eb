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
_LAST_WORDS = re.compile(r"((?:[A-Za-z'’]{1,24}[ ]+){0,5}[A-Za-z'’]{1,24})\Z")
_TEXT_AT_END = re.compile(r"\\(?:text|mbox|textbf|textrm|mathrm)\s?\{([^{}]{0,80})\}\Z")

# Words directly before an answer that deny it, hedge it, report it, or compute with it.
_DEFECT_WORDS = word_set("""
not never cannot no nor neither without except unless if whether wrong incorrect false instead versus vs either
minus plus times over negative than twice double triple half doubled halved squared cubed sqrt root
almost nearly either maybe perhaps possibly probably guess guessed says said say claims
claimed claim thinks thought told wrote suggests suppose assume assuming imagine exceeds exceed under between below
above beyond unlike excluding divided multiplied factorial log ln sin cos tan mod modulo isn't aren't wasn't don't
doesn't didn't can't couldn't won't wouldn't shouldn't
""")
# "half of 42", but "a total of 42".
_DEFECT_BEFORE_OF = word_set("""
half third quarter twice double triple square cube root multiple factor power percent percentage opposite negative
inverse reciprocal instead none fraction tenth fifth logarithm sine cosine successor predecessor most one halves thirds
quarters fourth fourths fifths tenths pct
""")
# "if it were 42", "I first thought that it was 42", "10% of 42"
_SUPPOSED = re.compile(
    r"\b(?:if|suppose|assume|imagine|unless|whether)\s(?:that\s)?(?:it|this|that|the\s(?:\w+\s)?(?:answer|result|number|value))\s"
    r"(?:were|was|is|had been|equals)\Z|\b(?:thought|guess|guessed|think|says?|said|claims?|claimed)\s(?:that\s)?"
    r"(?:(?:it|this|that|the\s(?:\w+\s)?(?:answer|result))\s)?(?:was|were|would be|had been|might be|could be)\Z"
    r"|\bmight\s(?:think|say|guess|believe)\s(?:that\s)?(?:it|this|that|the\s(?:\w+\s)?(?:answer|result))\sis\Z"
    r"|\b(?:would|could|might|should) have been\Z|\ball but\Z|%\s(?:of|off|from)\Z",
    re.IGNORECASE,
)
# "It is not true that the answer is 42", "I don't think the total is 42"
_DENIED_CLAIM = re.compile(
    r"(?:\b(?:not|never|cannot|can't)\b|n['’]t\b|\b(?:wrong|false|untrue|incorrect|doubt(?:ful)?)\b)"
    r"(?:\s(?:really|actually|necessarily|quite|at\sall|be|a|the))?"
    r"(?:\s(?:true|correct|right|case|think|thinks|thought|believe|believes|say|said|sure|certain|certainly|agree|claim"
    r"|conclude|know|mean))?"
    r"(?:\s(?:that|if|whether))?\s(?:it|this|that|the\s(?:[a-z]+\s){0,3}[a-z]+)\s(?:is|was|equals|would\sbe|be)"
    r"(?:\s(?:equal\sto|exactly))?\Z",
    re.IGNORECASE,
)
_DENYING_WORDS = word_set("cannot not never might may could")
# What may stand between a negation and the statement that it denies.
_FUNCTION_WORDS = word_set("be equal exactly the a an to that it is necessarily answer")
_CONTINUED = re.compile(r"[0-9][.,]?(?:\\\(|[$({\[])*\Z|\|\Z")
_MARKUP_END = re.compile(r"(?:<[a-zA-Z/][^<>]{0,40}>|[=-]>)\Z")
_DENIED_COLON = re.compile(r"\b(?:not|cannot|never|wrong|incorrect|n['’]t)\b[^.:]{0,24}:\Z", re.IGNORECASE)
_COMMAND_END = re.compile(r"\\[a-zA-Z]+\Z")
_OR_AT_END = re.compile(r",[\s$]{0,4}or\Z", re.IGNORECASE)


def find_prefix_defect(before: str) -> str:
    """Return why the text before a box or a tag makes it no answer; empty if it does not."""
    line_start = before.rfind("\n") + 1
    line = before[line_start:][-_REACH:]
    if line.endswith("\\") and not line.endswith("\\\\"):
        line = line[:-1]  # "\\\\boxed": escaped once too often
    context = _OPENERS.sub("", line)
    if _CONTINUED.search(line):
        return "something before it continues it"
    if not context.strip() or _LINE_START.fullmatch(context) or _LINE_START.fullmatch(line):
        above = before[:line_start].rstrip(" \n$*\\[(")[-32:]
        if re.search(r"\b(?:not|cannot be|wrong answer|incorrect answer)\s?:?\Z", above, re.IGNORECASE):
            return "the line above denies it"
        # Only a bullet, or nothing; a minus that touches the answer is no bullet.
        return "a minus stands before it" if re.search(r"[-−+][$\\(\[ ]{0,3}\Z", line) and not _is_bullet(line) else ""
    if _MARKUP_END.search(context):
        return ""  # a tag of markup, an arrow
    if _NOT_EQUAL.search(context):
        return "an inequality stands before it"
    if _DENIED_COLON.search(context):
        return "the text before it denies it"
    after_comma = line[len(context) :].lstrip(" $\\(*").startswith(",")
    if after_comma and re.search(r"[A-Za-z]{2}", context) and not _LAST_WORDS.search(context):
        return ""  # "Since x = 6, \boxed{42}"
    if text_command := _TEXT_AT_END.search(context):
        context = _OPENERS.sub("", context[: text_command.start()] + text_command[1].rstrip())
        if not context:
            return ""
    if command := _COMMAND_END.search(context):
        return "" if _SIGN_BEFORE.search(context) else f"{command[0]} stands before it"
    if supposed := _SUPPOSED.search(context) or _DENIED_CLAIM.search(context):
        return f"'{supposed[0].strip()}' stands before it"
    if words := _LAST_WORDS.search(context):
        # "1\frac14, or \boxed{1.25}" repeats the answer, "41 or \boxed{42}" does not decide.
        comma = _OR_AT_END.search(context) is not None
        if after_comma and words[1].lower().endswith(" times"):
            return ""  # "of all the times, \boxed{42} were late"
        known = words[1].replace("May ", "")  # the name
        return _find_word_defect(known.lower().replace("’", "'").split(), comma)
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
        if last != "(" or not re.search(r"(?:\A[$*_]*|[A-Za-z.:,]\s|\s\s)\(\Z", context):
            return "a bracket stands before it"
        words = _LAST_WORDS.search(context[:-1].rstrip())
        return _find_word_defect(words[1].lower().split(), comma=False) if words else ""
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
    if last in _FUNCTION_WORDS:
        denied = next((word for word in reversed(words) if word not in _FUNCTION_WORDS), "")
        if denied in _DENYING_WORDS or denied.endswith("n't"):
            return f"'{denied} … {last}' stands before it"
        if last in ("is", "the") and before in ("half", "twice", "double"):
            return f"'{before}' stands before it"
    return ""


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
# "and" needs its comma: in "the difference between 3 and the answer is 18" the answer is no statement.
_CONCLUDES = re.compile(r"(?:\b(?:so|thus|hence|therefore|meaning|which\s+means)|,\s*and)\b", re.IGNORECASE)
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
    concluding = list(_CONCLUDES.finditer(sentence))
    if concluding and _MAY_PRECEDE.fullmatch(sentence[concluding[-1].end() :]):
        ended = True  # "She has 18 eggs left, so the answer is 18."
    return not ended or _DENYING.search(sentence[-80:]) is not None


_AFTERTHOUGHT = re.compile(
    r"(?:(?:\A|[.!?…;:,(\n*—-])\s*(?:wait|actually)"  # not "players must wait", "to actually bake it"
    r"|(?:\A|[\s.!*(])(?:wait|actually)(?=[,.!…:]|\s(?:no|it|that|the answer|i|let)\b|\s?[-—])"
    r"|(?:\A|[\s.!*(])(?:correction|sorry|oops|hmm|scratch that|on second thou?ght"
    r"|i (?:made|have made|think i made) (?:a|an|some) (?:\w{1,12} )?(?:mistakes?|errors?)"
    r"|th(?:at|is) (?:is|was|seems|'s) (?:\w{1,12} )?(?:wrong|incorrect|not right|false|mistaken)"
    r"|let me (?:re-?do|re-?check|re-?calculate|re-?compute|re-?consider|correct|fix|try again)))\b",
    re.IGNORECASE,
)


def is_retracted(behind: str) -> bool:
    """Whether the text after the last answer retracts it or starts over."""
    return _AFTERTHOUGHT.search(behind) is not None
