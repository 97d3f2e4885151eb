"""Parse an answer: lists, sets, tuples, intervals, matrices, equations and single terms.

compare.py compares the result. Every pattern runs in linear time, and `MAX_EXPRESSION` bounds the input. An answer that
is expensive to compute (complexity_guard.py) is refused before anything computes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile

from rlvr.verifiers.math.brackets import split, split_brackets
from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION, UNEVALUATED, VARIABLE, check_complexity
from rlvr.verifiers.math.normalize import FUNCTIONS, TEXT, canonicalize, strip_delimiters
from rlvr.verifiers.math.numbers import (
    BASED,
    DECIMAL,
    Number,
    is_label_word,
    is_number_word,
    is_unit,
    is_unit_word,
    read_number,
    word_set,
)
from rlvr.verifiers.math.parsed_answer import Collection, ParsedAnswer, Term, UnreadableAnswer, terms_of
from rlvr.verifiers.math.sums import gives, is_sum

MAX_ITEMS = 40
MAX_WORDS = 8

_LEAD_IN = re.compile(r"^(?:\\text\{\s?(?:the answer is|answer|is)\s?:?\s?\}|answer\s?:)\s?", re.IGNORECASE)
_MEMBER = re.compile(r"^[a-zA-Z](?:_[a-zA-Z0-9])?(?:, ?[a-zA-Z])? ?\\in (?=\S)|^[a-zA-Z] ?\\in(?=[\[(\\])")
_MATRIX = re.compile(r"^\(?\s?\\begin\{pmatrix\}(.*)\\end\{pmatrix\}\s?\)?$", re.DOTALL)
_QUOTING = re.compile(r'["?@#`“”]|~|\.\.')
_CHOICE = re.compile(r"\(?([A-Za-z])\)?\.?")
_SMALL_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
)


@lru_cache(maxsize=8192)
def parse_answer(text: str) -> ParsedAnswer | str:
    """Parse an answer; return the reason as half a sentence if it cannot be compared.

    Numbers are exact, without units and percent signs (numbers.py).
    """
    text = text.strip()
    if not text:
        return "it is empty"
    number = read_number(text)
    if number is not None:
        return _number_term(text, number, _read_variable(text) if "=" in text else "")
    if (word := text.rstrip(".").lower()) in _SMALL_NUMBERS:
        return Term("number", text, _SMALL_NUMBERS.index(word))
    if len(text) > MAX_EXPRESSION:
        return f"it is longer than {MAX_EXPRESSION} characters"
    if not text.isascii() and any(
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Co") for character in text
    ):
        return "it has invisible characters"
    canonical = canonicalize(text)
    if reason := check_complexity(canonical):
        return reason
    try:
        answer = _parse(canonical, 0)
    except UnreadableAnswer as error:
        return str(error)
    if isinstance(answer, Collection):
        if any(term.kind == "words" and term.text.count(" ") > 3 for term in terms_of(answer)):
            return "it is a sentence"
        if answer.kind == "list":
            return answer
    return "it is several formulas" if "$" in strip_delimiters(text) else answer


def _read_variable(text: str) -> str:
    """Return the "x" of "$x = 5$"; an empty string for "Total = 5"."""
    name = canonicalize(text.partition("=")[0].lstrip("$\\([ ")).replace(" ", "")
    return name if re.fullmatch(r"[a-zA-Z](?:_[a-zA-Z0-9{}]{1,6})?", name) else ""


def _parse(text: str, depth: int) -> ParsedAnswer:
    text = _LEAD_IN.sub("", strip_delimiters(text))
    if not text:
        raise UnreadableAnswer("a part of it is empty")
    if depth > 6:
        raise UnreadableAnswer("it is nested too deeply")
    if depth == 0 and _QUOTING.search(text):
        raise UnreadableAnswer("it is not one expression")
    number = read_number(text) if "=" not in text else None
    if number is not None:
        return _number_term(text, number)
    if (based := BASED.fullmatch(text)) and based[2] == "{10}":
        return Term("number", text, int(based[1]))
    if choice := _CHOICE.fullmatch(_remove_text_command(text)):
        return Term("words", choice[1])
    if member := _MEMBER.match(text):
        return _parse(text[member.end() :], depth + 1)
    matrix = _MATRIX.match(text)
    if matrix and "\\begin" not in matrix[1]:
        return _parse_matrix(matrix[1], depth)
    unions = split(text, ("\\cup",))
    if len(unions) > 1 and len(split(text, ("=",))) == 1:
        members = tuple(_parse(part, depth + 1) for part in unions)
        if all(isinstance(member, Collection) and member.kind == "set" for member in members):
            return Collection("set", tuple(item for member in members for item in member.items))  # type: ignore[union-attr]
        return Collection("union", members)
    parts = split(text, (";",))
    if len(parts) > 1 and all(len(split(part, (",",))) > 1 for part in parts):  # "p = 5, q = 2; p = 7, q = 2"
        pairs = (_flatten([_parse(part, depth + 1)]) for part in parts[:MAX_ITEMS])
        unnamed = (tuple(replace(item, name="") for item in pair) for pair in pairs)
        return Collection("list", tuple(Collection("tuple", pair, "()") for pair in unnamed))
    parts = split(text, (",", ";"))
    if len(parts) > 1:
        return _parse_list(parts, depth)
    has_relation = _RELATION.search(text) is not None
    if not has_relation and "=" in text:
        return _parse_equation(text, depth)
    if (bracketed := _parse_brackets(text, depth)) is not None:
        return bracketed
    clock = TEXT.sub(r"\1", text)
    if re.fullmatch(r"[0-9a-zAPM. ]{1,20}(?::[0-9a-zAPM. ]{1,20}){1,3}", clock):  # a ratio, or a time of day
        half_day = re.search(r"([apAP])\.? ?[mM]\.?\Z", clock)
        parts = (clock[: half_day.start()] if half_day else clock).split(":")
        # Minutes and seconds with a zero are text: 1:05 is not 1:5.
        items = [
            Term("words", part.strip()) if place and re.fullmatch(" *0[0-9] *", part) else _parse(part, depth + 1)
            for place, part in enumerate(parts)
        ]
        return Collection("tuple", tuple([*items, Term("words", half_day[1].lower())] if half_day else items), "::")
    if text.count("\\pm") == 1 and not has_relation:
        plus, minus = text.replace("\\pm", "+"), text.replace("\\pm", "-")
        return Collection("list", (_parse(plus.lstrip("+ "), depth + 1), _parse(minus, depth + 1)))
    return _parse_term(text)


def _parse_list(parts: list[str], depth: int) -> ParsedAnswer:
    if not parts[-1].strip():
        parts.pop()  # a comma at the end
    items = _parse_items(parts, depth)
    name = "" if any(item.name for item in items[1:]) else items[0].name
    if name:  # "x = 2, 3"
        items[0] = replace(items[0], name="")
    return Collection("list", _flatten(items), name=name)


def _parse_items(parts: Sequence[str], depth: int) -> list[ParsedAnswer]:
    if len(parts) > MAX_ITEMS:
        raise UnreadableAnswer(f"it has over {MAX_ITEMS} items")
    return [_parse(part, depth + 1) for part in parts]


def _parse_brackets(text: str, depth: int) -> ParsedAnswer | None:
    """Parse a set, a tuple or an interval; None if no pair of brackets surrounds the text or it has no meaning."""
    inner = split_brackets(text)
    if inner is None:
        return None
    opening, content, closing = inner
    items_text = split(content, (",", ";"))
    if opening == "\\{" or (opening == "{" and len(items_text) > 1):
        builder = re.match(r"\s?([a-zA-Z])(?: ?\\in ?\\mathbb\{R\})? ?[|:] ?(?=.{3})", content)
        if builder and len(items_text) == 1 and _RELATION.search(content, builder.end()):
            return _parse(content[builder.end() :], depth + 1)  # {x | x > 3}
        if "|" in content or ":" in content:
            raise UnreadableAnswer("it is a set in set-builder notation")
        items = [_parse(part, depth + 1) for part in items_text]
        return Collection("set" if opening == "\\{" else "list", _flatten(items))
    if len(items_text) > 1:
        return Collection("tuple", tuple(_parse_items(items_text, depth)), opening + closing)
    if opening == "{" or (opening == "(" and not _RELATION.search(content)):
        return _parse(content, depth + 1)
    return None


def _flatten(items: Sequence[ParsedAnswer]) -> tuple[ParsedAnswer, ...]:
    """Dissolve lists within a list: "1 \\pm \\sqrt 5, -2" has three items."""
    flat: list[ParsedAnswer] = []
    for item in items:
        if isinstance(item, Collection) and item.kind == "list" and not item.name:
            flat.extend(item.items)
        else:
            flat.append(item)
    return tuple(flat)


def _parse_matrix(content: str, depth: int) -> ParsedAnswer:
    rows = [row for row in re.split(r"\\\\|\\cr(?![a-z])", content) if row.strip()]
    if len(rows) > 12:
        raise UnreadableAnswer("it has over 12 rows")
    cells = [row.split("&") for row in rows]
    if any(len(row) > 12 for row in cells):
        raise UnreadableAnswer("it has over 12 columns")
    parsed = [Collection("tuple", tuple(_parse(cell, depth + 1) for cell in row)) for row in cells]
    if len({len(row) for row in cells}) > 1:
        raise UnreadableAnswer("its rows differ in length")
    return Collection("matrix", tuple(parsed))


def _parse_equation(text: str, depth: int) -> ParsedAnswer:
    """Read "x = 5" as 5 with a name; of a chain ("a = 2 + 3 = 5") the last member. Other equations are relations.

    All members of a chain must be equal: numbers and sums here, others by algebra (`Term.members`).
    """
    parts = [part.strip() for part in split(text, ("=",))]
    if len(parts) == 1:  # the sign stands in a subscript
        return _parse_term(text)
    if any(not part for part in parts):
        raise UnreadableAnswer("one side of its equation is empty")
    if len(parts) == 2 and _is_name(parts[1]) and not _is_name(parts[0]) and not VARIABLE.search(parts[0]):
        parts.reverse()  # "5 = x"
    names = list(takewhile(_is_name, parts[:-1]))
    if read_number(parts[-1]) is None:
        names = names[:1]  # in "x = C = D", C is a value
    *others, last_part = parts[len(names) :]
    # The variable of a sum or an integral is bound; i and e are constants.
    unknowns = (part for part in (*others, last_part) if part == last_part or not UNEVALUATED.search(part))
    if not names and any(read_number(part) is None and VARIABLE.search(_NO_UNKNOWN.sub("", part)) for part in unknowns):
        return Term("relation", _remove_spaces(text))
    last = _parse(last_part, depth + 1)
    members = []
    for part in others:
        part = TEXT.sub(lambda word: "" if is_unit(f" {word[1].strip()}") else word[0], part)
        if not _OF_ANGLES.search(part):
            part = part.replace("\\degree", "")
        if "\\arc" in part and "\\degree" in last_part:
            part = f"({part})*\\frac{{180}}{{\\pi}}"
        member = _parse(part, depth + 1)
        if isinstance(last, Term) and last.number is not None:
            number = member.number if isinstance(member, Term) else None
            if number is not None and ("%" in part) != ("%" in last_part):
                number *= Fraction(1, 100) if "%" in part else 100
            if number == last.number or (is_sum(part) and gives(part, last_part, last.number)):
                continue
            if number is not None and not is_sum(part):
                raise UnreadableAnswer("its equation is not true")
        if member != last:
            members.append(member)
    return replace(last, name=names[0].replace(" ", "") if names else "", members=tuple(members))


# ----------------------------------------------------------------------------------------------------------------------
# Terms: numbers, words, expressions and relations

_RELATION = re.compile(r"\\leq|\\geq|\\neq|<|>|\\equiv|\\subset|\\sim|\\mid")
_NAME = re.compile(
    r"(?:\\?[a-zA-Z]|[A-Z]{1,4}|\\(?:[a-zA-Z]{2,12})|\\text\{[^{}]{1,60}\}|[a-zA-Z]{3}[a-zA-Z ]{1,60}"
    r"|\\[a-zA-Z]{1,12}\{[a-zA-Z' ]{1,20}\}"
    r"|\\angle ?[A-Z]{1,3}|\|[A-Z]{1,4}\|)"
    r"(?:_(?:\{[a-zA-Z0-9,]{1,12}\}|[a-zA-Z0-9]))?'{0,3}(?: ?\((?:[a-zA-Z0-9, =]|\([a-z0-9]\)){1,20}\))?"
)
_NAMES = re.compile(r"\( ?[a-zA-Z](?:_[a-zA-Z0-9])?(?: ?, ?[a-zA-Z](?:_[a-zA-Z0-9])?){1,7} ?\)")
_RATIO_NAME = re.compile(
    r"(?=.*[A-Za-z])[A-Za-z_0-9{}]{1,16} ?: ?[A-Za-z_0-9{}]{1,16}|\\frac\{[A-Z]{1,3}\}\{[A-Z]{1,3}\}"
)
_PLAIN_WORDS = re.compile(r"[A-Za-z'’]{1,30}(?:(?: |(?<=[A-Za-z]{2})-(?=[A-Za-z]{2}))[A-Za-z'’]{1,30}){0,40}")
_SHORT_WORDS = frozenset({"no", "ok", "on", "or", "up"})  # other two letters may be a product
_COMPUTED = re.compile(rf"\\(?:{FUNCTIONS.replace(' ', '|')}) ?\([^a-zA-Z]*\)")  # \\gcd(12, 18)
_NO_UNKNOWN = re.compile(rf"{TEXT.pattern}|(?<![\\a-zA-Z])[ei](?![a-zA-Z])")
_OF_ANGLES = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_LETTER_RUN = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{4,}")
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_KNOWN_COMMANDS = word_set(f"""
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega frac
sqrt infty cdot times pm mp leq geq neq cup cap in emptyset degree overline mathbb binom choose ldots sum prod int
lim to setminus mathcal bar hat prime angle triangle equiv pmod bmod mod approx varphi vartheta varepsilon Gamma
Delta Theta Lambda Sigma Phi Psi Omega Pi Xi lfloor rfloor lceil rceil operatorname Re Im arg perp parallel cong sim
dot ddot partial nabla forall exists circ text neg land lor implies iff log_ begin end pmatrix subset subseteq wedge
vee ell hbar imath arccot arcsec arccsc coth sech csch deg dfrac mathrm sqrtsign underbrace dim ker rank tr
displaystyle ast star oplus otimes bullet left right mid {FUNCTIONS}
""")


def _parse_term(text: str) -> Term:
    """Parse text without list, bracket or equation structure.

    Raises:
        UnreadableAnswer: the text is not one number, expression, relation or short phrase.
    """
    left, sign, right = text.partition("\\approx")
    if sign and left:
        if _is_name(left):
            return replace(_parse_plain_term(right), name=left.replace(" ", ""))
        return _parse_plain_term(left)
    return _parse_plain_term(text)


def _number_term(text: str, number: Number, name: str = "") -> Term:
    """Return the term of a number; the text of a decimal stays as written, because its places count."""
    written = text.rpartition("=")[2].strip()
    return Term("number", written if DECIMAL.fullmatch(written) else str(number), number, name)


def _parse_plain_term(text: str) -> Term:
    text = text.strip()
    number = read_number(text)
    if number is not None:
        return _number_term(text, number)
    words = _remove_text_command(text)
    if _PLAIN_WORDS.fullmatch(words) and TEXT.sub("", text).strip(" .") in ("", words) and "\\" not in words:
        if len(words) <= 2 and words == text.strip() and words.lower() not in _SHORT_WORDS:
            return Term("words" if len(words) == 1 else "math", words)
        lowered = " ".join(words.lower().replace("-", " ").split())
        if not lowered:
            raise UnreadableAnswer("it is empty")
        if len(lowered.split()) > MAX_WORDS:
            raise UnreadableAnswer(f"it is text of more than {MAX_WORDS} words")
        if any(is_number_word(word) for word in lowered.split()):
            raise UnreadableAnswer("it is a number in words")
        return Term("words", lowered if len(lowered) > 1 else words)
    if "\\text" in text:
        text = _remove_unit(text)
    if not _OF_ANGLES.search(text):
        text = re.sub(r"\s?\\degree\s?$", "", text).strip()
    text = re.sub(r"\s?%\s?$", "", text).strip()
    trailing = re.fullmatch(r"(.*[0-9)}\\a-z]) ([a-zA-Z]{2,20})(?:\s?\^[23])?", text)
    if trailing and is_unit_word(trailing[2]):
        text = trailing[1].strip()
    number = read_number(text)
    if number is not None:
        return _number_term(text, number)
    if "\\text" in text or _LETTER_RUN.search(re.sub(r"\\(?:begin|end)\{pmatrix\}", "", text)):
        raise UnreadableAnswer("it has words in it")
    for command in _COMMAND.findall(text):
        if command not in _KNOWN_COMMANDS:
            raise UnreadableAnswer(f"\\{command} is not known")
    if re.search(r"(?<![_0-9])[0-9.]+ +[0-9.]", text):
        raise UnreadableAnswer("it has two numbers side by side")
    if "%" in text or re.search(
        r"[0-9]\.[0-9]*\.|[0-9]\.[0-9]+\s?[({]|[0-9]\s?(?:\\\{|\[)[0-9]|(?:^|[-+*/(= ])[0-9.]+\s?\{", text
    ):
        raise UnreadableAnswer("it has a number that is not well formed")
    if "\\ldots" in text:
        raise UnreadableAnswer("it is not one expression")
    if text.count("{") != text.count("}") or re.search(r"[+*/^_=<>-]$", text):
        raise UnreadableAnswer("it is broken off")
    return Term("relation" if _RELATION.search(text) else "math", _remove_spaces(text))


def _remove_text_command(text: str) -> str:
    """Replace "\\text{Evelyn}" by "Evelyn"."""
    text = TEXT.sub(r"\1", text).strip(' .{}*"')
    return text[1:-1] if text[:1] == text[-1:] == "'" else text


def _remove_unit(text: str) -> str:
    """Remove \\text{…} after an expression if it is a unit."""
    match = re.fullmatch(r"(.*?[0-9)}a-z\]])\s?\\text\s?\{([^{}]{1,60})\}(?:\s?\^\{?[23]\}?)?", text, re.DOTALL)
    return match[1].strip() if match and is_unit(f" {match[2].strip()}") else text


def _remove_spaces(text: str) -> str:
    """Remove all spaces except those that separate a command from its argument."""
    text = re.sub(r"(\\[a-zA-Z]+) (?=[a-zA-Z])", "\\1\0", text)
    return text.replace(" ", "").replace("\0", " ")


def _is_name(text: str) -> bool:
    """Whether the left side of an equation names the right side, rather than being part of its value."""
    text = text.strip()
    is_name = not _COMPUTED.fullmatch(text) and any(pattern.fullmatch(text) for pattern in (_NAME, _RATIO_NAME, _NAMES))
    return is_name and all(map(is_label_word, re.findall(r"(?<![A-Z])[A-Z]?[a-z]{2,}", text)))
