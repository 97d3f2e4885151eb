"""Split answers at separators, outside of brackets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

_THOUSANDS = re.compile(r",[0-9]{3}(?![0-9])")
_BEFORE_THOUSANDS = re.compile(r"(?:^|[^0-9,])[0-9]{1,3}(?:,[0-9]{3})*$")


def split(text: str, separators: Sequence[str]) -> list[str]:
    """Split at separators outside all brackets; return one part if the brackets do not match."""
    if not any(separator in text for separator in separators):
        return [text]
    parts, depth, start, index = [], 0, 0, 0
    while index < len(text):
        character = text[index]
        if character == "\\" and text[index + 1 : index + 2] in ("{", "}", "|"):
            depth += {"{": 1, "}": -1}.get(text[index + 1], 0)
            index += 2
            continue
        depth += (character in "{([") - (character in "})]")
        if depth == 0 and character not in "{([})]":
            separator = next((one for one in separators if text.startswith(one, index)), None)
            if separator == "\\cup" and text[index + 4 : index + 5].isalpha():
                separator = None
            is_thousands = separator == "," and _THOUSANDS.match(text, index) and _BEFORE_THOUSANDS.search(text[:index])
            if is_thousands and (" ," in text or ", " in text or ";" in text):
                separator = None  # "1,234, 5,678"
            if separator:
                parts.append(text[start:index])
                index += len(separator)
                start = index
                continue
        index += 1
    parts.append(text[start:])
    return parts if depth == 0 else [text]


def split_brackets(text: str) -> tuple[str, str, str] | None:
    """Return (opening, content, closing) if one pair of brackets surrounds the whole text."""
    if text.startswith("\\{") and text.endswith("\\}"):
        opening, closing, content = "\\{", "\\}", text[2:-2]
    elif text[:1] in ("(", "[", "{", "]") and text[-1:] in (")", "]", "}", "["):
        opening, closing, content = text[0], text[-1], text[1:-1]
    else:
        return None
    depths = [0]
    if opening != "]":
        depths += accumulate((character in "{([") - (character in "})]") for character in content)
    return (opening, content, closing) if min(depths) == depths[-1] == 0 else None
