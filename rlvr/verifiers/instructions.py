"""Verifiable instructions of IFEval (arXiv 2311.07911): whether a text follows "no commas" or "at least 300 words".

    (instruction,) = read_instructions(["length_constraints:number_words"], [{"relation": "less than", "num_words": 9}])
    instruction.is_followed("Two jars are left.")

Ids, arguments and rules are those of google-research/instruction_following_eval; the code is ours. 24 of its 25 kinds
are here. `language:response_language` is not: it needs a language detector. What differs:
- A sentence ends at . ! ? and their like, except after initials, list numbers and common abbreviations. IFEval uses a
  trained model.
- english_capital and english_lowercase check the case alone, not that the text is English.
- A capital word is letters and digits, also with - or ' inside: "AI/ML" is two, "I'M" one. IFEval's words differ.
- "* * *" divides paragraphs as "***" does.
- Keywords are text; IFEval takes them for regular expressions.
- Counts also have the relations of RLVR-IFeval: "at most", "around" (within a tenth) and "exactly".

Every check takes linear time.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.errors import InputError

RELATIONS = ("less than", "at least", "at most", "around", "exactly")
CHOICES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
LANGUAGE = "language:response_language"

_SENTENCE_END = re.compile(r"[.!?…]++[\"'”’)\]*_]*+(?=\s|\Z)|[。！？]++")
_ABBREVIATIONS = frozenset(
    ("mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "etc", "e.g", "i.e", "no", "inc", "ltd", "co", "dept")
)
_WORD_BEFORE = re.compile(r"(?:\A|[\s(\"'“])([\w.]{1,12})\Z")
_CAPITAL_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*+")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a row."""

    id: str
    arguments: Mapping[str, Any]

    def is_followed(self, text: str) -> bool:
        return bool(text.strip()) and bool(CHECKS[self.id](text, **self.arguments))

    @property
    def dictated(self) -> list[str]:
        """The texts that an answer has to contain because the instruction names them."""
        values = [value for name, value in self.arguments.items() if name not in ("forbidden_words", "letter")]
        texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
        return [text for text in texts if isinstance(text, str) and text not in RELATIONS]

    def __str__(self) -> str:
        arguments = ", ".join(f"{name} {value!r:.60}" for name, value in self.arguments.items())
        return f"{self.id} ({arguments})" if arguments else self.id


def read_instructions(ids: Any, arguments: Any) -> list[Instruction]:
    """Read the instructions of a row.

    Args:
        ids: list of instruction ids: IFEval's column `instruction_id_list`.
        arguments: list of a mapping each, or its JSON text: IFEval's column `kwargs`. Arguments that are None are
            missing ones: tables of the hub have all names in all rows.

    Raises:
        InputError: an id or an argument is unknown, missing or invalid; `key` is the column.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise _error("kwargs", f"its JSON is invalid ({error})") from None
    if not isinstance(ids, list) or not ids:
        raise _error("instruction_id_list", f"{ids!r:.60} is no list of ids, or empty")
    if not isinstance(arguments, list) or len(arguments) != len(ids):
        raise _error("kwargs", f"{arguments!r:.80} is no list of {len(ids)} mappings, one for each id")
    return [_read_instruction(id, given) for id, given in zip(ids, arguments, strict=True)]


def _read_instruction(id: Any, given: Any) -> Instruction:
    if id == LANGUAGE:
        raise _error("instruction_id_list", f"{id} needs a language detector, which is not among the checks")
    if id not in CHECKS:
        raise _error("instruction_id_list", f"{id!r:.80} is none of: {', '.join(CHECKS)}")
    if given is not None and not isinstance(given, Mapping):
        raise _error("kwargs", f"the arguments of {id} are {given!r:.60}, not a mapping")
    arguments = {name: value for name, value in (given or {}).items() if value is not None}
    parameters = [one for one in inspect.signature(CHECKS[id]).parameters.values() if one.kind is one.KEYWORD_ONLY]
    names = [parameter.name for parameter in parameters]
    unknown = [name for name in arguments if name not in names]
    missing = [one.name for one in parameters if one.default is one.empty and one.name not in arguments]
    if unknown or missing:
        what = f"has no argument {unknown[0]!r:.40}" if unknown else f"lacks the argument {missing[0]}"
        raise _error("kwargs", f"{id} {what}; it takes: {', '.join(names) or 'none'}")
    for name, value in arguments.items():
        if expected := _expected(name, value):
            raise _error("kwargs", f"{id}, argument {name}: {value!r:.60} is not {expected}")
    if arguments.get("nth_paragraph", 0) > arguments.get("num_paragraphs", 0):
        raise _error("kwargs", f"{id}: nth_paragraph is above num_paragraphs, so no text follows it")
    return Instruction(id, arguments)


def _error(column: str, problem: str) -> InputError:
    message = f"Column {column}: {problem}. Correct it as in IFEval, or leave the row out."
    return InputError(message, kind="invalid-row", key=column)


def _expected(name: str, value: Any) -> str:
    """Return what a value of this argument has to be, if it is something else."""
    if name.endswith("relation"):
        return "" if value in RELATIONS else f"one of: {', '.join(RELATIONS)}"
    if name in ("keywords", "forbidden_words", "options"):
        texts = value if isinstance(value, list) else []
        return "" if texts and all(isinstance(text, str) and text.strip() for text in texts) else "a list of texts"
    if name.startswith(("num_", "nth_")) or name.endswith("frequency"):
        least = int(name == "nth_paragraph")
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return "" if is_count else f"a whole number from {least} on"
    is_text = isinstance(value, str) and bool(value.strip()) and (name != "letter" or len(value.strip()) == 1)
    return "" if is_text else "one character" if name == "letter" else "text"


def _compare(count: int, relation: str, number: int) -> bool:
    return {
        "less than": count < number,
        "at least": count >= number,
        "at most": count <= number,
        "around": abs(count - number) <= max(round(number / 10), 1),
        "exactly": count == number,
    }[relation]


# ----------------------------------------------------------------------------------------------------------------------
# The checks: keyword parameters without a default are required.


def _has_keywords(text: str, *, keywords: list[str]) -> bool:
    return all(keyword.casefold() in text.casefold() for keyword in keywords)


def _has_keyword_often(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    pattern = re.escape(keyword.strip())
    if relation == "exactly":  # RLVR-IFeval counts whole words, IFEval also parts of words
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return _compare(len(re.findall(pattern, text, re.IGNORECASE)), relation, frequency)


def _avoids_words(text: str, *, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text, re.I) for word in forbidden_words)


def _has_letter_often(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compare(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


def count_sentences(text: str) -> int:
    """Count the sentences of a text; what follows the last sign is one if it has a letter or a digit."""
    count = start = 0
    for sign in _SENTENCE_END.finditer(text):
        before = _WORD_BEFORE.search(text[max(0, sign.start() - 13) : sign.start()])
        if sign[0][0] == "." and before is not None:
            word = before[1].lower()
            at_line_start = not text[: sign.start() - len(word)].rpartition("\n")[2][-200:].strip()
            if word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha()) or (word.isdigit() and at_line_start):
                continue
        count += any(character.isalnum() for character in text[start : sign.start()])
        start = sign.end()
    return count + any(character.isalnum() for character in text[start:])


def _has_sentences(text: str, *, num_sentences: int, relation: str) -> bool:
    return _compare(count_sentences(text), relation, num_sentences)


def _has_words(text: str, *, num_words: int, relation: str) -> bool:
    return _compare(len(re.findall(r"\w+", text)), relation, num_words)


def _has_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    paragraphs = re.split(r"\*\*\*|\* \* \*", text)
    blank = [number for number, paragraph in enumerate(paragraphs) if not paragraph.strip()]
    if any(0 < number < len(paragraphs) - 1 for number in blank):
        return False
    return len(paragraphs) - len(blank) == num_paragraphs


def _paragraph_begins(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]
    if len(paragraphs) != num_paragraphs:
        return False
    word = paragraphs[nth_paragraph - 1].split()[0].lstrip("'\"")
    return re.split(r"[.,?!'\"]", word, maxsplit=1)[0].lower() == first_word.strip().lower()


def _has_placeholders(text: str, *, num_placeholders: int) -> bool:
    return sum(map(_count_brackets, text.split("\n"))) >= num_placeholders


def _count_brackets(line: str) -> int:
    count = position = 0
    while (start := line.find("[", position)) >= 0 and (end := line.find("]", start)) >= 0:
        count, position = count + 1, end + 1
    return count


def _has_postscript(text: str, *, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    pattern = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(marker, re.escape(marker.lower()))
    return re.search(pattern, text.lower()) is not None


def _has_bullets(text: str, *, num_bullets: int) -> bool:
    lines = [line.lstrip() for line in text.split("\n")]
    bullets = [line for line in lines if line.startswith("-") or (line[:1] == "*" and line[1:2] not in ("*", ""))]
    return len(bullets) == num_bullets


def _has_choice(text: str, *, options: Sequence[str] = CHOICES) -> bool:
    return any(option in text for option in options)


def _has_highlights(text: str, *, num_highlights: int) -> bool:
    single = [part for part in re.findall(r"\*([^\n*]*)\*", text) if part.strip()]
    double = [part for part in re.findall(r"\*\*([^\n*]*)\*\*", text) if part.strip()]
    return len(single) + len(double) >= num_highlights


def _has_sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", text)) >= num_sections


def _is_json(text: str) -> bool:
    text = re.sub(r"\A```(?:json|Json|JSON)?", "", text.strip()).removesuffix("```")
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(text: str) -> bool:
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end and line[start:end].lstrip("<").rstrip(">").strip():
            return True
    return False


def _has_two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    answers = [part for part in parts if part]
    return all(parts[1:-1]) and len(answers) == 2 and answers[0] != answers[1]


def _repeats_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def _ends_with(text: str, *, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def _is_quoted(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def _has_capital_words(text: str, *, capital_frequency: int, capital_relation: str) -> bool:
    words = [word for word in _CAPITAL_WORD.findall(text) if word.isupper()]
    return _compare(len(words), capital_relation, capital_frequency)


def _has_no_comma(text: str) -> bool:
    return "," not in text


CHECKS: dict[str, Callable[..., bool]] = {
    "keywords:existence": _has_keywords,
    "keywords:frequency": _has_keyword_often,
    "keywords:forbidden_words": _avoids_words,
    "keywords:letter_frequency": _has_letter_often,
    "length_constraints:number_sentences": _has_sentences,
    "length_constraints:number_paragraphs": _has_paragraphs,
    "length_constraints:number_words": _has_words,
    "length_constraints:nth_paragraph_first_word": _paragraph_begins,
    "detectable_content:number_placeholders": _has_placeholders,
    "detectable_content:postscript": _has_postscript,
    "detectable_format:number_bullet_lists": _has_bullets,
    "detectable_format:constrained_response": _has_choice,
    "detectable_format:number_highlighted_sections": _has_highlights,
    "detectable_format:multiple_sections": _has_sections,
    "detectable_format:json_format": _is_json,
    "detectable_format:title": _has_title,
    "combination:two_responses": _has_two_responses,
    "combination:repeat_prompt": _repeats_prompt,
    "startend:end_checker": _ends_with,
    "startend:quotation": _is_quoted,
    "change_case:capital_word_frequency": _has_capital_words,
    "change_case:english_capital": str.isupper,
    "change_case:english_lowercase": str.islower,
    "punctuation:no_comma": _has_no_comma,
}
