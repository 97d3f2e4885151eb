"""Parse an answer: lists, sets, tuples, intervals, matrices, equations and single terms.

compare.py compares the result. Every pattern runs in linear time, and `MAX_EXPRESSION` bounds the input. An answer that
is expensive to compute (complexity_guard.py) is refused before anything computes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from rlvr.verifiers.math.complexity_guard import MAX_EXPRESSION, VARIABLE, check_complexity
from rlvr.verifiers.math.normalize import TEXT, canonicalize, strip_delimiters
from rlvr.verifiers.math.numbers import read_number
from rlvr.verifiers.math.parsed_answer import Collection, ParsedAnswer, Term, UnreadableAnswer, terms_of
from rlvr.verifiers.math.term_parser import (
    count_relation_signs,
    is_name,
    parse_term,
    remove_spaces,
    remove_text_command,
)

MAX_ITEMS = 40

_LEAD_IN = re.compile(r"^(?:\\text\{\s?(?:the answer is|answer|is)\s?:?\s?\}|answer\s?:)\s?", re.IGNORECASE)
_MEMBER = re.compile(r"^[a-zA-Z](?:_[a-zA-Z0-9])?(?:, ?[a-zA-Z])? ?\\in (?=\S)|^[a-zA-Z] ?\\in(?=[\[(\\])")
_MATRIX = re.compile(r"^\(?\s?\\begin\{pmatrix\}(.*)\\end\{pmatrix\}\s?\)?$", re.DOTALL)
_QUOTING = re.compile(r'["?@#`“”]|~|\.\.')
_CHOICE = re.compile(r"\(?([A-Za-z])\)?\.?")
_SMALL_NUMBERS_TEXT = "zero one two three four five six seven eight nine ten eleven twelve"
_SMALL_NUMBERS = tuple(_SMALL_NUMBERS_TEXT.split())


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
        return Term("number", str(number), number, _read_variable(text) if "=" in text else "")
    if text.lower() in _SMALL_NUMBERS:
        return Term("number", text, _SMALL_NUMBERS.index(text.lower()))
    if len(text) > MAX_EXPRESSION:
        return f"it is longer than {MAX_EXPRESSION} characters"
    if not text.isascii() and any(
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Co") for character in text
    ):
        return "it has invisible characters"
    canonical = canonicalize(text)
    reason = check_complexity(canonical)
    if reason:
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
        return Term("number", str(number), number)
    choice = _CHOICE.fullmatch(remove_text_command(text))
    if choice:
        return Term("words", choice[1])

    member = _MEMBER.match(text)
    if member:
        return _parse(text[member.end() :], depth + 1)
    matrix = _MATRIX.match(text)
    if matrix and "\\begin" not in matrix[1]:
        return _parse_matrix(matrix[1], depth)
    unions = _split(text, ("\\cup",))
    if len(unions) > 1:
        return Collection("union", tuple(_parse(part, depth + 1) for part in unions))
    parts = _split(text, (";",))
    if len(parts) > 1 and all(len(_split(part, (",",))) > 1 for part in parts):  # "p = 5, q = 2; p = 7, q = 2"
        pairs = (_flatten([_parse(part, depth + 1)]) for part in parts[:MAX_ITEMS])
        return Collection("list", tuple(Collection("tuple", tuple(map(_unnamed, pair)), "()") for pair in pairs))
    parts = _split(text, (",", ";"))
    if len(parts) > 1:
        return _parse_list(parts, depth)
    if count_relation_signs(text) == 0 and "=" in text:
        return _parse_equation(text, depth)
    bracketed = _parse_brackets(text, depth)
    if bracketed is not None:
        return bracketed
    clock = TEXT.sub(r"\1", text)
    if re.fullmatch(r"[0-9a-zAPM. ]{1,20}(?::[0-9a-zAPM. ]{1,20}){1,3}", clock):  # a ratio, or a time of day
        half_day = re.search(r"([apAP])\.? ?[mM]\.?\Z", clock)
        parts = (clock[: half_day.start()] if half_day else clock).split(":")
        items = [_parse(part, depth + 1) for part in parts]
        return Collection("tuple", tuple([*items, Term("words", half_day[1].lower())] if half_day else items), "::")
    if "\\pm" in text and text.count("\\pm") == 1 and count_relation_signs(text) == 0:
        plus, minus = text.replace("\\pm", "+"), text.replace("\\pm", "-")
        return Collection("list", (_parse(plus.lstrip("+ "), depth + 1), _parse(minus, depth + 1)))
    return parse_term(text)


def _parse_list(parts: list[str], depth: int) -> ParsedAnswer:
    if not parts[-1].strip():
        parts.pop()  # a comma at the end
    if len(parts) > MAX_ITEMS:
        raise UnreadableAnswer(f"it has over {MAX_ITEMS} items")
    items = [_parse(part, depth + 1) for part in parts]
    name = items[0].name
    if name and not any(item.name for item in items[1:]):  # "x = 2, 3"
        items[0] = replace(items[0], name="")
        return Collection("list", _flatten(items), name=name)
    return Collection("list", _flatten(items))


def _parse_brackets(text: str, depth: int) -> ParsedAnswer | None:
    """Parse a set, a tuple or an interval; None if no pair of brackets surrounds the text or it has no meaning."""
    inner = _split_brackets(text)
    if inner is None:
        return None
    opening, content, closing = inner
    items_text = _split(content, (",", ";"))
    if opening == "\\{" or (opening == "{" and len(items_text) > 1):
        builder = re.match(r"\s?([a-zA-Z])(?: ?\\in ?\\mathbb\{R\})? ?[|:] ?(?=.{3})", content)
        if builder and count_relation_signs(content[builder.end() :]) and len(items_text) == 1:
            return _parse(content[builder.end() :], depth + 1)  # {x | x > 3}
        if "|" in content or ":" in content:
            raise UnreadableAnswer("it is a set in set-builder notation")
        items = [_parse(part, depth + 1) for part in items_text]
        return Collection("set" if opening == "\\{" else "list", _flatten(items))
    if len(items_text) > 1:
        if len(items_text) > MAX_ITEMS:
            raise UnreadableAnswer(f"it has over {MAX_ITEMS} items")
        return Collection("tuple", tuple(_parse(part, depth + 1) for part in items_text), opening + closing)
    if opening == "{" or (opening == "(" and count_relation_signs(content) == 0):
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


def _unnamed(form: ParsedAnswer) -> ParsedAnswer:
    return replace(form, name="")


def _parse_matrix(content: str, depth: int) -> ParsedAnswer:
    rows = [row for row in re.split(r"\\\\|\\cr(?![a-z])", content) if row.strip()]
    if len(rows) > 12:
        raise UnreadableAnswer("it has over 12 rows")
    read = []
    for row in rows:
        cells = row.split("&")
        if len(cells) > 12:
            raise UnreadableAnswer("it has over 12 columns")
        read.append(Collection("list", tuple(_parse(cell, depth + 1) for cell in cells)))
    if len({len(row.items) for row in read}) > 1:
        raise UnreadableAnswer("its rows differ in length")
    return Collection("matrix", tuple(read))


def _parse_equation(text: str, depth: int) -> ParsedAnswer:
    """Read "x = 5" as 5 with a name, and "a = 2 + 3 = 5" too; any other equation is a relation."""
    parts = [part.strip() for part in _split(text, ("=",))]
    if len(parts) == 1:  # the sign stands in a subscript
        return parse_term(text)
    if any(not part for part in parts):
        raise UnreadableAnswer("one side of its equation is empty")
    if len(parts) == 2 and is_name(parts[1]) and not is_name(parts[0]) and not VARIABLE.search(parts[0]):
        parts.reverse()  # "5 = x"
    if len(parts) > 2 and not is_name(parts[0]) and all(not VARIABLE.search(part) for part in parts):
        parts.insert(0, "")  # "2 + 3 = 10/2 = 5"
    if is_name(parts[0]) or not parts[0] or (len(parts) == 2 and not VARIABLE.search(text)):
        name = "" if not is_name(parts[0]) else parts[0].replace(" ", "")
        values = [part for part in (parts if not is_name(parts[0]) else parts[1:]) if part]
        if any(VARIABLE.search(part) for part in values[:-1]):
            raise UnreadableAnswer("its equation is a chain with an unknown in it")
        forms = [_parse(part, depth + 1) for part in values]
        numbers = {form.number for form in forms if isinstance(form, Term) and form.kind == "number"}
        if len(numbers) > 1:
            raise UnreadableAnswer("its equation is not true")
        if not name and any(not isinstance(form, Term) or form.kind != "number" for form in forms[:-1]):
            raise UnreadableAnswer("its equation has a side that would have to be computed")
        value = forms[-1]
        return replace(value, name=name) if name else value
    return Term("relation", remove_spaces(text))


def _split(text: str, separators: Sequence[str]) -> list[str]:
    """Split at separators outside all brackets; return one part if the brackets do not match."""
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
            separator = next((one for one in separators if text.startswith(one, index)), None)
            if separator == "\\cup" and text[index + 4 : index + 5].isalpha():
                separator = None
            if (
                separator == ","
                and index > 0
                and text[index - 1].isdigit()
                and thousands.match(text, index)
                and re.search(r"(?:^|[^0-9,])[0-9]{1,3}(?:,[0-9]{3})*$", text[:index])
                and (" ," in text or ", " in text or ";" in text)
            ):
                separator = None  # "1,234, 5,678"
            if separator:
                parts.append(text[start:index])
                index += len(separator)
                start = index
                continue
        index += 1
    parts.append(text[start:])
    return parts if depth == 0 else [text]


def _split_brackets(text: str) -> tuple[str, str, str] | None:
    """Return (opening, content, closing) if one pair of brackets surrounds the whole text."""
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
