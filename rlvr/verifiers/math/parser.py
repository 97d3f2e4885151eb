"""The form of an answer that is more than a number: lists, sets, tuples, intervals, matrices, equations, expressions.

An answer is taken apart here as far as its notation goes, into terms that are numbers, words, or mathematics. What is
compared, and how, is comparing.py's.

Nothing outside the standard library is imported. Every pattern runs in linear time, `MAX_EXPRESSION` bounds what is
looked at, and what would be dangerous to compute (danger.py) is refused before anything computes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION, VARIABLE, danger
from rlvr.verifiers.math.normalize import FUNCTIONS, TEXT, canonical, undelimited
from rlvr.verifiers.math.numbers import (
    Number,
    is_label_word,
    is_number_word,
    is_unit,
    is_unit_word,
    read_number,
)

MAX_ITEMS = 40
MAX_WORDS = 8


@dataclass(frozen=True)
class Term:
    """A piece without structure.

    Attributes:
        kind: "number"; "words" (compared as text); "math" (an expression); "relation" (an equation that is no
            assignment, or an inequality).
        text: its spelling made canonical, without spaces; words in lower case unless they are a single letter.
        number: its value, if a number.
        name: the "x" of "x = 5"; only a top-level piece or an item of a list has one.
    """

    kind: Literal["number", "words", "math", "relation"]
    text: str
    number: Number | None = None
    name: str = ""


@dataclass(frozen=True)
class Group:
    """Several forms together.

    Attributes:
        kind: "list" (values in any order, as in "2, 3" or "x = 2 or x = 3"), "set", "tuple" (a pair of brackets with
            its kind, so intervals too), "union" (of sets or intervals), "matrix" (its items are rows, which are lists).
        brackets: the opening and the closing bracket of a tuple, else empty.
    """

    kind: Literal["list", "set", "tuple", "union", "matrix"]
    items: tuple[Form, ...]
    brackets: str = ""
    name: str = ""


Form = Term | Group


_LEAD_IN = re.compile(r"^(?:\\text\{\s?(?:the answer is|answer|is)\s?:?\s?\}|answer\s?:)\s?", re.IGNORECASE)
_RELATION = re.compile(r"\\leq|\\geq|\\neq|<|>|\\equiv|\\subset|\\sim|\\mid")
_NAME = re.compile(
    r"(?:\\?[a-zA-Z]|[A-Z]{1,4}|\\(?:[a-zA-Z]{2,12})|\\text\{[^{}]{1,60}\}|[a-zA-Z]{3}[a-zA-Z ]{1,60}"
    r"|\\[a-zA-Z]{1,12}\{[a-zA-Z' ]{1,20}\}"
    r"|\\angle ?[A-Z]{1,3}|\|[A-Z]{1,4}\|)"
    r"(?:_(?:\{[a-zA-Z0-9,]{1,12}\}|[a-zA-Z0-9]))?'{0,3}(?: ?\([a-zA-Z0-9, ]{1,20}\))?"
)
_NAMES = re.compile(r"\( ?[a-zA-Z](?:_[a-zA-Z0-9])?(?: ?, ?[a-zA-Z](?:_[a-zA-Z0-9])?){1,7} ?\)")
_RATIO_NAME = re.compile(r"[A-Za-z_0-9{}]{1,16} ?: ?[A-Za-z_0-9{}]{1,16}|\\frac\{[A-Z]{1,3}\}\{[A-Z]{1,3}\}")
_MEMBER = re.compile(r"^[a-zA-Z](?:_[a-zA-Z0-9])?(?:, ?[a-zA-Z])? ?\\in (?=\S)|^[a-zA-Z] ?\\in(?=[\[(\\])")
_MATRIX = re.compile(r"^\(?\s?\\begin\{pmatrix\}(.*)\\end\{pmatrix\}\s?\)?$", re.DOTALL)
_PLAIN_WORDS = re.compile(r"[A-Za-z'’]{1,30}(?:(?: |(?<=[A-Za-z]{2})-(?=[A-Za-z]{2}))[A-Za-z'’]{1,30}){0,40}")
_QUOTING = re.compile(r'["?@#`“”]|~|\.\.')
_CHOICE = re.compile(r"\(?([A-Za-z])\)?\.?")
_LETTER_RUN = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{4,}")
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_COMMANDS_TEXT = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega frac
sqrt infty cdot times pm mp leq geq neq cup cap in emptyset degree overline mathbb binom choose ldots sum prod int
lim to setminus mathcal bar hat prime angle triangle equiv pmod bmod mod approx varphi vartheta varepsilon Gamma
Delta Theta Lambda Sigma Phi Psi Omega Pi Xi lfloor rfloor lceil rceil operatorname Re Im arg perp parallel cong sim
dot ddot partial nabla forall exists circ text neg land lor implies iff log_ begin end pmatrix subset subseteq wedge
vee ell hbar imath arccot arcsec arccsc coth sech csch deg dfrac mathrm sqrtsign underbrace dim ker rank tr
displaystyle ast star oplus otimes bullet left right mid
"""
_KNOWN_COMMANDS = frozenset((_COMMANDS_TEXT + FUNCTIONS).split())


@lru_cache(maxsize=8192)
def read_form(text: str) -> Form | str:
    """The form of an answer, or why it has none that can be compared, in a few words.

    Numbers are read exactly, with their units and percent signs dropped as rlvr/verifiers/math/numbers.py says.
    """
    text = text.strip()
    if not text:
        return "it is empty"
    number = read_number(text)
    if number is not None:
        return Term("number", str(number), number, _variable_named(text) if "=" in text else "")
    if text.lower() in _SMALL_NUMBERS:
        return Term("number", text, _SMALL_NUMBERS.index(text.lower()))
    if len(text) > MAX_EXPRESSION:
        return f"it is longer than {MAX_EXPRESSION} characters"
    if not text.isascii() and any(
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Co") for character in text
    ):
        return "it has invisible characters"
    spelt = canonical(text)
    reason = danger(spelt)
    if reason:
        return reason
    try:
        form = _read(spelt, 0)
    except _Unreadable as error:
        return str(error)
    if isinstance(form, Group) and any(term.kind == "words" and term.text.count(" ") > 3 for term in terms_of(form)):
        return "it is a sentence"
    if "$" in undelimited(text) and not (isinstance(form, Group) and form.kind == "list"):
        return "it is several formulas"
    return form


_SMALL_NUMBERS_TEXT = "zero one two three four five six seven eight nine ten eleven twelve"
_SMALL_NUMBERS = tuple(_SMALL_NUMBERS_TEXT.split())


def _variable_named(text: str) -> str:
    """The "x" of "$x = 5$", nothing of "Total = 5"."""
    name = canonical(text.partition("=")[0].lstrip("$\\([ ")).replace(" ", "")
    return name if re.fullmatch(r"[a-zA-Z](?:_[a-zA-Z0-9{}]{1,6})?", name) else ""


class _Unreadable(Exception):
    pass


def _read(text: str, depth: int) -> Form:
    text = _LEAD_IN.sub("", undelimited(text))
    if not text:
        raise _Unreadable("a part of it is empty")
    if depth > 6:
        raise _Unreadable("it is nested too deeply")
    if depth == 0 and _QUOTING.search(text):
        raise _Unreadable("it is not one expression")
    number = read_number(text) if "=" not in text else None
    if number is not None:
        return Term("number", str(number), number)
    choice = _CHOICE.fullmatch(_unworded(text))
    if choice:
        return Term("words", choice[1])

    member = _MEMBER.match(text)
    if member:
        return _read(text[member.end() :], depth + 1)
    matrix = _MATRIX.match(text)
    if matrix and "\\begin" not in matrix[1]:
        return _read_matrix(matrix[1], depth)
    unions = _split(text, ("\\cup",))
    if len(unions) > 1:
        return Group("union", tuple(_read(part, depth + 1) for part in unions))
    parts = _split(text, (";",))
    if len(parts) > 1 and all(len(_split(part, (",",))) > 1 for part in parts):  # "p = 5, q = 2; p = 7, q = 2"
        pairs = [Group("tuple", _flat([_read(part, depth + 1)]), "()") for part in parts[:MAX_ITEMS]]
        return Group("list", tuple(replace(pair, items=tuple(_unnamed(item) for item in pair.items)) for pair in pairs))
    parts = _split(text, (",", ";"))
    if len(parts) > 1:
        if not parts[-1].strip():
            parts.pop()  # a comma at the end
        if len(parts) > MAX_ITEMS:
            raise _Unreadable(f"it has over {MAX_ITEMS} items")
        items = [_read(part, depth + 1) for part in parts]
        name = items[0].name
        if name and not any(item.name for item in items[1:]):  # "x = 2, 3"
            items[0] = replace(items[0], name="")
            return Group("list", _flat(items), name=name)
        return Group("list", _flat(items))
    if _relation_signs(text) == 0 and "=" in text:
        return _read_equation(text, depth)
    inner = _bracketed(text)
    if inner is not None:
        opening, content, closing = inner
        items_text = _split(content, (",", ";"))
        if opening == "\\{" or (opening == "{" and len(items_text) > 1):
            built = re.match(r"\s?([a-zA-Z])(?: ?\\in ?\\mathbb\{R\})? ?[|:] ?(?=.{3})", content)
            if built and _relation_signs(content[built.end() :]) and len(items_text) == 1:
                return _read(content[built.end() :], depth + 1)  # {x | x > 3}
            if "|" in content or ":" in content:
                raise _Unreadable("it is a set in set-builder notation")
            items = [_read(part, depth + 1) for part in items_text]
            return Group("set" if opening == "\\{" else "list", _flat(items))
        if len(items_text) > 1:
            if len(items_text) > MAX_ITEMS:
                raise _Unreadable(f"it has over {MAX_ITEMS} items")
            return Group("tuple", tuple(_read(part, depth + 1) for part in items_text), opening + closing)
        if opening == "{" or (opening == "(" and _relation_signs(content) == 0):
            return _read(content, depth + 1)
    clock = TEXT.sub(r"\1", text)
    if re.fullmatch(r"[0-9a-zAPM. ]{1,20}(?::[0-9a-zAPM. ]{1,20}){1,3}", clock):  # a ratio, or a time of day
        half_day = re.search(r"([apAP])\.? ?[mM]\.?\Z", clock)
        parts = (clock[: half_day.start()] if half_day else clock).split(":")
        items = [_read(part, depth + 1) for part in parts]
        return Group("tuple", tuple([*items, Term("words", half_day[1].lower())] if half_day else items), "::")
    if "\\pm" in text and text.count("\\pm") == 1 and _relation_signs(text) == 0:
        plus, minus = text.replace("\\pm", "+"), text.replace("\\pm", "-")
        return Group("list", (_read(plus.lstrip("+ "), depth + 1), _read(minus, depth + 1)))
    return _read_term(text)


def _flat(items: Sequence[Form]) -> tuple[Form, ...]:
    """Lists within a list dissolved: "1 \\pm \\sqrt 5, -2" has three items."""
    flat: list[Form] = []
    for item in items:
        if isinstance(item, Group) and item.kind == "list" and not item.name:
            flat.extend(item.items)
        else:
            flat.append(item)
    return tuple(flat)


def _unnamed(form: Form) -> Form:
    return replace(form, name="")


def _read_matrix(content: str, depth: int) -> Form:
    rows = [row for row in re.split(r"\\\\|\\cr(?![a-z])", content) if row.strip()]
    if len(rows) > 12:
        raise _Unreadable("it has over 12 rows")
    read = []
    for row in rows:
        cells = row.split("&")
        if len(cells) > 12:
            raise _Unreadable("it has over 12 columns")
        read.append(Group("list", tuple(_read(cell, depth + 1) for cell in cells)))
    if len({len(row.items) for row in read}) > 1:
        raise _Unreadable("its rows differ in length")
    return Group("matrix", tuple(read))


def _read_equation(text: str, depth: int) -> Form:
    """ "x = 5" is 5 with a name; "a = b = 5" too, if what stands between has no unknown; else it is a relation."""
    parts = [part.strip() for part in _split(text, ("=",))]
    if len(parts) == 1:  # the sign stands in a subscript
        return _read_term(text)
    if any(not part for part in parts):
        raise _Unreadable("one side of its equation is empty")
    if len(parts) == 2 and is_name(parts[1]) and not is_name(parts[0]) and not VARIABLE.search(parts[0]):
        parts.reverse()  # "5 = x"
    if len(parts) > 2 and not is_name(parts[0]) and all(not VARIABLE.search(part) for part in parts):
        parts.insert(0, "")  # "2 + 3 = 10/2 = 5"
    if is_name(parts[0]) or not parts[0] or (len(parts) == 2 and not VARIABLE.search(text)):
        name = "" if not is_name(parts[0]) else parts[0].replace(" ", "")
        values = [part for part in (parts if not is_name(parts[0]) else parts[1:]) if part]
        if any(VARIABLE.search(part) for part in values[:-1]):
            raise _Unreadable("its equation is a chain with an unknown in it")
        forms = [_read(part, depth + 1) for part in values]
        numbers = {form.number for form in forms if isinstance(form, Term) and form.kind == "number"}
        if len(numbers) > 1:
            raise _Unreadable("its equation is not true")
        if not name and any(not isinstance(form, Term) or form.kind != "number" for form in forms[:-1]):
            raise _Unreadable("its equation has a side that would have to be computed")
        value = forms[-1]
        return replace(value, name=name) if name else value
    return Term("relation", _squeezed(text))


def is_name(text: str) -> bool:
    """Whether this, on the left of an equals sign, says what the right side is, and is no part of its value."""
    text = text.strip()
    if _NAME.fullmatch(text) or _RATIO_NAME.fullmatch(text) or _NAMES.fullmatch(text):
        words = re.findall(r"(?<![A-Z])[A-Z]?[a-z]{2,}", text)
        return all(is_label_word(word) for word in words)
    return False


def _read_term(text: str) -> Term:
    cut = text.find("\\approx")
    if cut > 0:
        left, right = text[:cut].strip(), text[cut + 7 :].strip()
        return _named(_read_term_of(right), left) if is_name(left) else _read_term_of(left)
    return _read_term_of(text)


def _named(term: Term, name: str) -> Term:
    return replace(term, name=name.replace(" ", ""))


def _read_term_of(text: str) -> Term:
    text = text.strip()
    number = read_number(text)
    if number is not None:
        return Term("number", str(number), number)
    words = _unworded(text)
    if _PLAIN_WORDS.fullmatch(words) and TEXT.sub("", text).strip(" .") in ("", words) and "\\" not in words:
        if len(words) <= 2 and words == text.strip():
            return Term("words" if len(words) == 1 else "math", words)
        lowered = " ".join(words.lower().replace("-", " ").split())
        if not lowered:
            raise _Unreadable("it is empty")
        if len(lowered.split()) > MAX_WORDS:
            raise _Unreadable(f"it is text of more than {MAX_WORDS} words")
        if any(is_number_word(word) for word in lowered.split()):
            raise _Unreadable("it is a number in words")
        return Term("words", lowered if len(lowered) > 1 else words)
    if "\\text" in text:
        text = _without_units(text)
    if not re.search(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])", text):
        text = re.sub(r"\s?\\degree\s?$", "", text).strip()
    text = re.sub(r"\s?%\s?$", "", text).strip()
    trailing = re.fullmatch(r"(.*[0-9)}\\a-z]) ([a-zA-Z]{2,20})(?:\s?\^[23])?", text)
    if trailing and is_unit_word(trailing[2]):
        text = trailing[1].strip()
    number = read_number(text)
    if number is not None:
        return Term("number", str(number), number)
    if "\\text" in text or _LETTER_RUN.search(re.sub(r"\\(?:begin|end)\{pmatrix\}", "", text)):
        raise _Unreadable("it has words in it")
    for command in _COMMAND.findall(text):
        if command not in _KNOWN_COMMANDS:
            raise _Unreadable(f"\\{command} is not known")
    if re.search(r"(?<![_0-9])[0-9.]+ +[0-9.]", text):
        raise _Unreadable("it has two numbers side by side")
    if "%" in text or re.search(
        r"[0-9]\.[0-9]*\.|[0-9]\.[0-9]+\s?[({]|[0-9]\s?(?:\\\{|\[)[0-9]|(?:^|[-+*/(= ])[0-9.]+\s?\{", text
    ):
        raise _Unreadable("it has a number that is not well formed")
    if "\\ldots" in text:
        raise _Unreadable("it is not one expression")
    if text.count("{") != text.count("}") or re.search(r"[+*/^_=<>-]$", text):
        raise _Unreadable("it is broken off")
    return Term("relation" if _relation_signs(text) else "math", _squeezed(text))


def _unworded(text: str) -> str:
    """ "\\text{Evelyn}" -> "Evelyn"."""
    text = TEXT.sub(r"\1", text).strip(' .{}*"')
    return text[1:-1] if text[:1] == text[-1:] == "'" else text


def _without_units(text: str) -> str:
    """Takes off \\text{…} behind an expression, if it says of what and changes nothing."""
    match = re.fullmatch(r"(.*?[0-9)}a-z\]])\s?\\text\s?\{([^{}]{1,60})\}(?:\s?\^\{?[23]\}?)?", text, re.DOTALL)
    if match is None:
        return text
    if not is_unit(f" {match[2].strip()}"):
        return text
    return match[1].strip()


def _squeezed(text: str) -> str:
    """Without spaces, but where one keeps a command from its argument."""
    text = re.sub(r"(\\[a-zA-Z]+) (?=[a-zA-Z])", "\\1\0", text)
    return text.replace(" ", "").replace("\0", " ")


def _relation_signs(text: str) -> int:
    return len(_RELATION.findall(text))


def _split(text: str, separators: Sequence[str]) -> list[str]:
    """The parts between separators that stand outside all brackets; one part where brackets don't match."""
    if not any(separator in text for separator in separators):
        return [text]
    parts, depth, start, index = [], 0, 0, 0
    thousands = re.compile(r",[0-9]{3}(?![0-9])")
    while index < len(text):
        character = text[index]
        if character == "\\" and text[index : index + 2] in ("\\{", "\\}", "\\|"):
            depth += {"{": 1, "}": -1}.get(text[index + 1], 0)
            index += 2
            continue
        if character in "{([":
            depth += 1
        elif character in "})]":
            depth -= 1
        elif depth == 0:
            found = next((separator for separator in separators if text.startswith(separator, index)), None)
            if found == "\\cup" and text[index + 4 : index + 5].isalpha():
                found = None
            if (
                found == ","
                and index > 0
                and text[index - 1].isdigit()
                and thousands.match(text, index)
                and re.search(r"(?:^|[^0-9,])[0-9]{1,3}(?:,[0-9]{3})*$", text[:index])
                and (" ," in text or ", " in text or ";" in text)
            ):
                found = None  # "1,234, 5,678"
            if found:
                parts.append(text[start:index])
                index += len(found)
                start = index
                continue
        index += 1
    parts.append(text[start:])
    return parts if depth == 0 else [text]


def _bracketed(text: str) -> tuple[str, str, str] | None:
    """(opening bracket, content, closing bracket) if one pair of brackets is around the whole text."""
    if text.startswith("\\{") and text.endswith("\\}"):
        opening, closing, content = "\\{", "\\}", text[2:-2]
    elif text[:1] in ("(", "[", "{", "]") and text[-1:] in (")", "]", "}", "["):
        opening, closing, content = text[0], text[-1], text[1:-1]
    else:
        return None
    depth = 0
    for character in content:
        if character in "{([" and opening != "]":
            depth += 1
        elif character in "})]" and opening != "]":
            depth -= 1
            if depth < 0:
                return None
    return (opening, content, closing) if depth == 0 else None


def terms_of(form: Form) -> Iterator[Term]:
    """Every term of a form."""
    if isinstance(form, Term):
        yield form
    else:
        for item in form.items:
            yield from terms_of(item)
