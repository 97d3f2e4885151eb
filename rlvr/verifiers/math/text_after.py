"""Decide whether the text after a stated answer changes it.

A sentence that goes on after a box is the normal case: "\\boxed{7} dozens of eggs in 4 weeks". Only what changes the
value refuses it: an operator with an operand ("times 4", "eggs - 2"), a scale ("million"), a second candidate ("or 8",
"eggs, 8 eggs"), a smaller unit ("hours and 30 minutes"), another value ("= 8"), a denial, a correction ("no, 8"), a
question. A sign that is not listed here refuses it, too. A word that is not listed does not.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from rlvr.verifiers.math.numbers import Number, read_number, to_ascii
from rlvr.verifiers.math.sums import gives, is_sum

_REACH = 128  # characters that are read
_ENDS = re.compile(r"(?:[$*} ]|\\[)\]]){0,8}\.?[ ]{0,8}(?:\n|\Z)")

# Commands of LaTeX, so that the patterns below read plain text.
_LATEX = (
    (re.compile(r"\\[pb]?mod(?![a-z]).*"), ""),
    (re.compile(r"\\approx(?![a-z])"), "≈"),
    (re.compile(r"\\(?:text|mbox|textbf|textit|textrm|mathrm|textnormal|rm)\s?\{([^{}]*)\}?"), r"\1"),
    (re.compile(r"\\(?:end|begin|hspace|tag|label)\{[^{}]{0,20}\}?|\\(?:blacksquare|square|qed|q?quad)(?![a-z])"), " "),
    (re.compile(r"\^\s?\{?\s?\\(?:circ|degree)\s?\}?|\\degree(?![a-z])"), "°"),
    (re.compile(r"\\(?:times|cdot)(?![a-z])"), "*"),
    (re.compile(r"\\[,;:! ]|\\\\|~"), " "),
    (re.compile(r"\\(?=[%&#$])|\\[()\[\]]"), ""),
)
_AND_SIGN = re.compile(r"(?<![A-Za-z])&|&(?![A-Za-z])")  # not in a name
# A star or an underscore before a digit is an operator, and no emphasis.
_STARS = re.compile(r"(?:(?<=\S)|\A)\*{1,3}(?=[\s.,;:!?)_\"']|\Z)|(?:(?<=\s)|\A)(?:\*\*\*?(?=\S)|\*(?=[A-Za-z\\]))")
_UNDERSCORES = re.compile(r"_+(?=[\s.,;:!?)]|\Z)|(?<=\s)_+(?=[A-Za-z])")


def _plain(text: str) -> str:
    """Return a text without the delimiters and commands of LaTeX and Markdown."""
    text = to_ascii(text)
    if "\\" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    text = text.replace("$", "").replace("`", "")
    for sign, pattern, replacement in (("&", _AND_SIGN, " "), ("*", _STARS, ""), ("_", _UNDERSCORES, "")):
        if sign in text:
            text = pattern.sub(replacement, text)
    return text.rstrip()


# ----------------------------------------------------------------------------------------------------------------------
# What changes a value

_NUMBER_WORD = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    r"|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|half|zero|pi)\b(?!-[a-z])"
)
# An operand: a number, a box, an unknown.
_NUMBER = (
    rf"(?:[-+(]\s?)*(?:(?:US)?[€£¥]?\.?[0-9][0-9.,/]*(?![0-9.,/])|\\(?:d?frac|sqrt|pi|f?boxed)|(?:an?\s)?{_NUMBER_WORD}|π"
    r"|[b-hj-z](?![A-Za-z'.&]))"
)
_WORD = rf"(?!{_NUMBER_WORD})[A-Za-z][A-Za-z'’&-]*"
_WORDS = rf"(?:{_WORD}\s+){{0,4}}?"
# Without a noun behind it, "dozen" is a scale: "7 dozen in all", but "7 dozens of eggs".
_NOUN = (
    r"(?!(?:in|per|for|and|or|each|every|all|altogether|total|at|on|to|by|from|with|because|since|so|if|when|more|the|is"
    r"|are|was|were|which|that|left|now|as|than|then|but|she|he|it|they|we|gives|makes|equals|would|will|can|has|have)\b)"
    r"[A-Za-z]{2,}"
)
_OPERATION = (
    rf"(?:(?:[-+*/×]|x|plus|minus|times|(?:divided|multiplied|increased|decreased|reduced)\s+by)\s*{_NUMBER}"
    r"|(?:squared|cubed|doubled|tripled|halved)\b)"
)
_CHANGE = re.compile(
    rf"""
    (?!(?:one|two|five|ten|twenty|fifty|hundred)\s(?:dollar|cent|pound|euro)\s(?:bill|coin|note)s\b)(?:
      (?:thousand|million|billion|trillion|hundred|lakh|crore|myriad|bn|mn|mil)s?\b(?!-)
    | (?:halve|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|[a-z]{{3,12}}dth)s\b | quarters?\s+of\b
    | (?:dozens?|score|gross)\b(?!\s+(?:of\s+)?{_NOUN})
    | (?:squared|cubed|factorial|doubled|tripled|halved|recurring|repeating|remainder|modulo|mod|ish|pi|root|sqrt|sin
        |cos|tan|log|ln|plus|minus|raised\s+to|take\s+away|to\s+the\s+(?:power|\w+(?:th|rd)))\b
    | in\s+(?:binary|base|hex|debt)\b | give\s+or\s+take\b | base\s+{_NUMBER} | degrees\s+below\b
    | (?:added|subtracted|increased|decreased|reduced|divided|multiplied)\s+(?:by|to|from|into|over)\b
    | times\s*(?:{_NUMBER}
        |(?:itself|that(?!\s+[a-z])|the\s+(?:square|cube|root|sum|product|answer|result)|an?\s+(?:half|third|quarter))\b
        |the\s+number\s+{_NUMBER})
    | (?:less|point|by|below|above|beyond|through|short\s+of|shy\s+of|away\s+from|on\s+top\s+of|in\s+addition\s+to)\s+
      {_NUMBER}
    | (?:more|less|fewer|(?:great|high|low|larg|bigg|small|long|short|old|young|heavi)er)\s+than\s+
      (?:twice|double|{_NUMBER})
    | over\s+{_NUMBER}(?!\s+{_NOUN})
    | and\s+(?:an?\s+)?(?:half|quarter|third|bit|few|little)\b
    | (?:and|to|vs|versus|but|as\s+well\s+as|(?:and\s+)?then)\b\.?\s*{_NUMBER}
    | if\b[^.;]{{1,60}}[,;]\s*(?:and\s+|else\s+)?{_NUMBER}\s+(?:if|when|otherwise|for)\b
    | or\b(?=\s*\S) | (?:nor|never|not|perhaps|maybe|probably|possibly|unless|aka)\b | I\s+(?:guess|mean|suppose)\b
    | (?:wrong|incorrect|false|no)\s*(?:[.,;:!)]|\Z)
    | (?:(?:percent|pct)\s+)?of\s+(?!the\b){_NUMBER}(?!\s+{_NOUN})
    | {_NUMBER_WORD} | [0-9](?![0-9]*-[a-z]{{3}})
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CHANGE_LATER = re.compile(
    rf"""
    {_WORDS}(?<=\s),?\s*{_OPERATION} | {_WORDS}{_WORD},\s*{_OPERATION}
    | {_WORDS}(?:
        or\s+(?:none|so|more|less|fewer|maybe|perhaps|something)\b
      | (?:and\s+an?\s+(?:half|quarter|third)|below\s+zero|in\s+debt)\b
    )
    """,
    re.VERBOSE,
)
_CLAUSE = r"(?:that|which|who|whose|where|when|if|because|since|so|and|he|she|it|they|we|I|as)\b"
_NOUNS = rf"(?:(?!{_CLAUSE}){_WORD}\s+){{0,4}}?"
_RIGHT = r"(?:right|correct|enough|possible|true|valid|the|an?|what|it|so|work|fit|hold|make\s+sense)\b"
_DENIAL = re.compile(
    rf"""
      (?:is|was|be|seems?|looks?|does)(?:\s(?!only)[a-z]{{1,16}})??\s?(?:not|n't|never)\b | cannot\s+be\b
    | fails\b | won't\s+do\b
    | is\s+(?:[a-z0-9]+\s+){{0,4}}(?:than|of|to|from)\s+(?:the|my|our)\s+(?:\w+\s)?(?:answer|result|solution)\b
    | is\s+(?:an?\s+(?:upper|lower)\s+bound|close)\b
    | {_NOUNS}(?:
        (?:is|was|be|seems?|looks?)(?:\s[a-z]{{1,16}})??\s
        (?:wrong|incorrect|false|impossible|too|mistaken|mistake|untrue|lie|guess)\b
      | (?:is|was|are|were|do|does|did|can|could|have|will|wo|would|must|should)\s?(?:not|n't|'t|never)\s+
        (?:[a-z]+ly\s+)?(?:be\s+)?{_RIGHT}
      | (?:are|were)\s+(?:impossible|too\s+(?:many|few|much|little))\b
      | is\s+what\s+\w+\s+(?:says?|said|thinks?|thought|claims?|got)\b
      | was\s+(?:(?:my|the|her|his|our)\s+(?:first|old|previous)|rejected|discarded|ruled\s+out)\b
    )
    """,
    re.VERBOSE,
)
# Later in the line, in lower case; `number` is the other value.
_CORRECTION = re.compile(
    rf"""
    (?:\b(?=[a-z])|(?=[,;.!?( ]))(?:
      \b(?:i\s+mean|correction|sorry)\b | (?:[,;.!?(]|\s-)\s*(?:no|nope),?\s+(?:wait|sorry|actually)\b
    | \bexcept\s+that\b | \bin\s+(?:hundreds|thousands|millions|billions)\b
    | \bin\s+(?:the\s+(?:first|best|worst)|one)\s+case\b | \bone\s+(?:candidate|possibility)\b
    | \b(?:is|was)\s(?:\w+\s)?(?:wrong|incorrect|mistaken)\b
    | \b(?:is|was)(?:\s\w+)?\s?(?:not|n't)\s(?:right|correct|the\s(?:\w+\s)?(?:answer|result|solution))\b
    | (?: (?:[,;.!?(]|\s-)\s*(?:no|nope)\b[,.:;!]?\s*(?:(?:it|that|this|the\s+(?:\w+\s)?answer)(?:'s|\sis|\swas)?)?
        | \b(?:rather|actually),? | \b(?:should|must|ought\sto)\s(?:really\s|rather\s|actually\s)?(?:be|read|have\sbeen)
        | \b(?:otherwise|else),? | \bbut\s(?:it\s|the\s(?:\w+\s)?answer\s)?(?:is|really|actually|in\sfact)
        | (?:\bi\.e\.|[,(]\s?that\sis|\baka|\bviz\.),? | [,(]\s?(?:approximately|about|roughly|almost|nearly)
        | \A(?:is|was|equals|becomes|means|gives|makes|turns\sinto|rounded\sis) | [,(]\s?not\s\S+\sbut
      )\s*(?P<number>{_NUMBER})
    )
    """,
    re.VERBOSE,
)
_SECOND = re.compile(
    rf"(?P<unit>{_WORDS}{_WORD})(?:,?\s+[(\[]?(?P<word>or|and|to|but|vs|versus|is|are|equals|(?<!,\s)by)\b\.?|\s*(?P<sign>[,;/=([]|(?<=\s)-)|(?=\s))"
    rf"\s*(?:possibly |maybe |perhaps |even |rather )?(?P<number>{_NUMBER})\s*(?P<other>{_WORD})?"
)
# Units that convert into one another: "7 hours and 30 minutes" is not 7, "60 minutes or 1 hour" repeats 60.
_DIMENSIONS = tuple(
    {unit: int(size) for unit, _, size in (word.partition(":") for word in names.split())}
    for names in (
        "second:1 sec:1 minute:60 min:60 hour:3600 hr:3600 h:3600 o'clock:3600 day:86400 week:604800",
        "month:1 year:12",
        "inch:1 inche:1 in:1 foot:12 feet:12 ft:12 yard:36 mile:63360",
        "millimeter:1 mm:1 centimeter:10 cm:10 meter:1000 m:1000 kilometer:1000000 km:1000000",
        "cent:1 penny:1 pence:1 dollar:100 euro:100 pound:100",
        "ounce:1 oz:1 pound:16 lb:16 ton:32000",
        "gram:1 g:1 kilogram:1000 kg:1000",
        "cup:1 pint:2 quart:4 gallon:16",
        "milliliter:1 ml:1 liter:1000 l:1000",
    )
)
# A unit that touches the box.
_ATTACHED = re.compile(
    r"(?:(?:st|nd|rd|th|kg|mg|lbs?|oz|yd|ml|mL|hrs?|mins?|sec|am|pm|mph|[kMG][bB]|[gmlLhsCFVWA]|[a-z]{4,})\b"
    r"|(?:km|cm|mm|mi|ft|in|m)(?:[²³]|\^\{?[23]\}?|\b))"
)
# A letter is an unknown or a scale, unless it is a unit, a word, or part of a name: "7 M&Ms", "7 L of water".
_LETTER = re.compile(
    r"[KMBTk](?![A-Za-z'&-])|(?![agmlLhsACFIJNVW])[A-Za-z](?![A-Za-z'&]|-[A-Za-z]{2}|\.[A-Za-z]|\s+of\b)|[A-Za-z][0-9]"
)


def find_suffix_defect(behind: str, content: str) -> str:
    """Return why the text after a box makes it no answer; empty if it does not.

    Args:
        behind: the text from the answer's end.
        content: the answer.
    """
    if _ENDS.match(behind):
        return ""
    if re.match(r"\s*!+\s*(?:\$|\\[)\]])", behind):
        return "a factorial sign stands after it"
    end = behind.find("\n", 0, _REACH)
    return _find_defect(_plain(behind[: end if end >= 0 else _REACH]), content, read_number(content))


def _find_defect(text: str, content: str, value: Number | None) -> str:
    rest = text.lstrip(" }")
    if rest.startswith(":00 "):
        rest = text = rest[3:]
        rest = rest.lstrip()
    if sign := re.match(r"(?:[%°€£¢¥₹□■✓✅]\s*)+(?:[CF]\b\s*)?", rest):
        rest = rest[sign.end() :]
        text = f" {rest}"
    if not rest:
        return ""
    if rest[0] in "=≈(":
        return _find_defect_of_repetition(rest, content, value)
    if closer := re.match(r"[)\]]|\.{2,}|…", rest):
        return _find_defect(rest[closer.end() :], content, value)
    if rest[0] in "\"'":
        return _find_defect(f" {rest[1:]}", content, value)
    if re.match(r"[^.!?]*\?", rest):
        return "it is asked"
    if (correction := _CORRECTION.search(rest.lower())) and not _is_same(correction["number"], value):
        return f"'{correction[0].strip()}' stands after it"
    if rest[0] in ".,;:!" or re.match(r"-(?:-*\s|\Z)", rest):
        return _find_defect_after_stop(rest)
    numeric = any(map(str.isdigit, content))
    if re.match(rf"-{_WORD}", rest):
        rest = rest[1:]  # "a \boxed{7}-day trip"
    elif numeric and rest == text and re.match("[A-Za-z]", rest) and not _ATTACHED.match(rest):
        return f"'{rest[:24]}' touches it"
    if re.match(r"[A-Za-z]|[0-9]+-[a-z]{3}", rest):
        return _find_word_defect(rest, value)
    if not numeric or re.match(r"</?(?!sup|sub)[a-zA-Z]{1,16}>|\|\s*(?:\Z|[A-Za-z])", rest):
        return ""  # a tag of markup, a cell of a table
    if ord(rest[0]) > 127 and unicodedata.category(rest[0]) in ("Lo", "So", "Po"):
        return ""
    return "something after it changes it"


def _find_word_defect(rest: str, value: Number | None) -> str:
    if remainder := re.match(r"when\s+divided\s+by\s+[0-9]+", rest):
        return _find_defect(rest[remainder.end() :], "", value)
    if any(pattern.match(rest) for pattern in (_CHANGE, _CHANGE_LATER, _DENIAL, _LETTER)):
        return f"'{rest[:24].strip()}' stands after it"
    second = _SECOND.match(rest)
    if second and _is_candidate(second, value) and not _is_same(second["number"], value):
        return "another candidate stands after it"
    return ""


def _is_candidate(second: re.Match[str], value: Number | None) -> bool:
    """Whether a second number after the unit is another candidate, or makes the value larger ("hours 30 minutes")."""
    units = [_singular(word) for word in second["unit"].split()]
    other = _singular(second["other"] or "")
    joint = second["word"] or second["sign"] or ""
    sizes = next((names for names in _DIMENSIONS if units[-1] != "in" and {units[-1], other} <= names.keys()), None)
    number = read_number(second["number"].rstrip(".,"))
    if joint in ("or", "="):
        return sizes is None or value is None or number is None or number * sizes[other] != value * sizes[units[-1]]
    if sizes is not None and joint in (",", "and", "") and other != units[-1]:
        return True
    may_be_alone = joint not in ("", "(", "is", "are", "equals")
    return bool(joint) and len(units) <= 2 and (may_be_alone if not other else other in units)


def _singular(word: str) -> str:
    return word.lower() if len(word) < 3 else word.lower().removesuffix("s")


def _is_same(written: str | None, value: Number | None, rounded: bool = False) -> bool:
    """Whether a number or a sum has this value, perhaps rounded. Another box is compared as a statement of its own."""
    if written is None or value is None:
        return False
    written = written.rstrip("., ")
    other = read_number(written)
    if other is None:
        return "boxed" in written or (is_sum(written) and gives(written, "", value))
    decimals = re.search(r"\.([0-9]+)", written)
    places = len(decimals[1]) if decimals else 0
    return abs(Fraction(other) - value) <= (Fraction(1, 2 * 10**places) if decimals or rounded else 0)


def _find_defect_of_repetition(rest: str, content: str, value: Number | None) -> str:
    """Check "= 7 eggs" and "(7 eggs)", which may repeat the answer."""
    is_equation = rest[0] in "=≈"
    if is_equation:
        inner = re.split(r";|[.,](?=\s|\Z)", rest[1:])[0]
        after = rest[1 + len(inner) :]
    else:
        inner, _, after = rest[1:].partition(")")
    inner = inner.strip()
    correction = None if is_equation else _CORRECTION.match(f"({inner.lower()}")
    other = read_number(correction["number"].rstrip(".,")) if correction else None
    if correction and other is not None and not _is_same(correction["number"], value, rounded=True):
        return f"'{correction[0].strip()}' stands after it"
    if not is_equation and not re.match(r"[-+]?[.0-9\\]", inner):
        defect = _find_defect(f" {inner}", content, value) if inner else "empty brackets stand after it"
        return defect or _find_defect(f" {after}", content, value)
    if is_equation and re.fullmatch(r"[A-Za-z][A-Za-z ]{0,30}", inner):  # "= x", "= the total"
        is_repeated = len(inner) == 1 or not _find_word_defect(inner, value)
    elif is_equation and value is None:
        is_repeated = rest[0] == "≈" or re.fullmatch(r"-?[0-9.,/{}\\a-z]{1,40}", inner) is not None
    else:
        is_repeated = _is_same(inner, value, rounded=rest[0] == "≈")
    return _find_defect(after, content, value) if is_repeated else "another value stands after it"


def _find_defect_after_stop(rest: str) -> str:
    stop, behind = rest[0], rest[1:]
    if re.match(r"[\s(]*(?:(?:(?:but )?not|wrong|false|maybe|perhaps)\b|no\s*(?:[,.:;!]|\Z))", behind, re.IGNORECASE):
        return "the text after it retracts it"
    if re.match(r"[\s(]*or\b(?=.)(?!\s*\\?boxed)", behind, re.IGNORECASE) or rest.startswith("!="):
        return "another candidate stands after it"
    if re.match(rf"[\s(]*{_OPERATION}", behind, re.IGNORECASE):
        return "an operation stands after it"
    is_number = re.match(rf"[\s.-]*{_NUMBER}", behind, re.IGNORECASE) and not re.match(r"\s*[a-z]\b", behind)
    if not is_number:
        return ""
    if stop in ".!" and re.match(r"\s{1,2}[0-9]{1,2}[.)]\s", behind):
        return ""  # the next item of a list
    sentence = re.match(
        r"\s+(?:[0-9.,/]+|[A-Z]\w+)(?!\s(?:is|was|would|seems|must|may)\b)(?:\s+[A-Za-z'-]+){2}", behind
    )
    if stop in ".!" and sentence and not re.search(r"\b(?:answer|right|correct|better|it)\b", sentence[0]):
        return ""  # "\boxed{7}. 3 of them are red."
    if stop in ",;" and re.match(r"\s+\S+ (?:of (?!the answer)|more\b|less\b|fewer\b)", behind):
        return ""  # "\boxed{7}, 3 of them red"
    return "another number stands after it"
