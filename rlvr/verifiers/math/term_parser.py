"""Parse one term of an answer: a number, words, an expression or a relation."""

from __future__ import annotations

import re
from dataclasses import replace

from rlvr.verifiers.math.normalize import FUNCTIONS, TEXT
from rlvr.verifiers.math.numbers import is_label_word, is_number_word, is_unit, is_unit_word, read_number
from rlvr.verifiers.math.parsed_answer import Term, UnreadableAnswer

MAX_WORDS = 8

_RELATION = re.compile(r"\\leq|\\geq|\\neq|<|>|\\equiv|\\subset|\\sim|\\mid")
_NAME = re.compile(
    r"(?:\\?[a-zA-Z]|[A-Z]{1,4}|\\(?:[a-zA-Z]{2,12})|\\text\{[^{}]{1,60}\}|[a-zA-Z]{3}[a-zA-Z ]{1,60}"
    r"|\\[a-zA-Z]{1,12}\{[a-zA-Z' ]{1,20}\}"
    r"|\\angle ?[A-Z]{1,3}|\|[A-Z]{1,4}\|)"
    r"(?:_(?:\{[a-zA-Z0-9,]{1,12}\}|[a-zA-Z0-9]))?'{0,3}(?: ?\([a-zA-Z0-9, ]{1,20}\))?"
)
_NAMES = re.compile(r"\( ?[a-zA-Z](?:_[a-zA-Z0-9])?(?: ?, ?[a-zA-Z](?:_[a-zA-Z0-9])?){1,7} ?\)")
_RATIO_NAME = re.compile(r"[A-Za-z_0-9{}]{1,16} ?: ?[A-Za-z_0-9{}]{1,16}|\\frac\{[A-Z]{1,3}\}\{[A-Z]{1,3}\}")
_PLAIN_WORDS = re.compile(r"[A-Za-z'’]{1,30}(?:(?: |(?<=[A-Za-z]{2})-(?=[A-Za-z]{2}))[A-Za-z'’]{1,30}){0,40}")
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


def parse_term(text: str) -> Term:
    """Parse text without list, bracket or equation structure.

    Raises:
        UnreadableAnswer: the text is not one number, expression, relation or short phrase.
    """
    cut = text.find("\\approx")
    if cut > 0:
        left, right = text[:cut].strip(), text[cut + 7 :].strip()
        return _named(_parse_plain_term(right), left) if is_name(left) else _parse_plain_term(left)
    return _parse_plain_term(text)


def _named(term: Term, name: str) -> Term:
    return replace(term, name=name.replace(" ", ""))


def _parse_plain_term(text: str) -> Term:
    text = text.strip()
    number = read_number(text)
    if number is not None:
        return Term("number", str(number), number)
    words = remove_text_command(text)
    if _PLAIN_WORDS.fullmatch(words) and TEXT.sub("", text).strip(" .") in ("", words) and "\\" not in words:
        if len(words) <= 2 and words == text.strip():
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
    return Term("relation" if count_relation_signs(text) else "math", remove_spaces(text))


def remove_text_command(text: str) -> str:
    """Replace "\\text{Evelyn}" by "Evelyn"."""
    text = TEXT.sub(r"\1", text).strip(' .{}*"')
    return text[1:-1] if text[:1] == text[-1:] == "'" else text


def _remove_unit(text: str) -> str:
    """Remove \\text{…} after an expression if it is a unit."""
    match = re.fullmatch(r"(.*?[0-9)}a-z\]])\s?\\text\s?\{([^{}]{1,60})\}(?:\s?\^\{?[23]\}?)?", text, re.DOTALL)
    return match[1].strip() if match and is_unit(f" {match[2].strip()}") else text


def remove_spaces(text: str) -> str:
    """Remove all spaces except those that separate a command from its argument."""
    text = re.sub(r"(\\[a-zA-Z]+) (?=[a-zA-Z])", "\\1\0", text)
    return text.replace(" ", "").replace("\0", " ")


def count_relation_signs(text: str) -> int:
    return len(_RELATION.findall(text))


def is_name(text: str) -> bool:
    """Whether the left side of an equation names the right side, rather than being part of its value."""
    text = text.strip()
    if _NAME.fullmatch(text) or _RATIO_NAME.fullmatch(text) or _NAMES.fullmatch(text):
        words = re.findall(r"(?<![A-Z])[A-Z]?[a-z]{2,}", text)
        return all(is_label_word(word) for word in words)
    return False
