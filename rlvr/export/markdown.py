"""Put texts of models, data sets and recipes into Markdown, where they stay text: no markup, no HTML, no links."""

from __future__ import annotations

import re

# What a line of text may not hold: control characters, and marks that turn the direction of the text around them.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKUP = re.compile(r"([\\`*_\[\]<>|~$&!@]|:(?=//))")


def escape(text: str) -> str:
    """Text for a paragraph or the cell of a table, on one line."""
    # GFM makes links of bare addresses that begin with www.
    return re.sub(r"(?i)\bwww\.", r"www\\.", _MARKUP.sub(r"\\\1", one_line(text)))


def code(text: str) -> str:
    """Text as inline code, also in the cell of a table."""
    text = one_line(text).replace("|", "\N{BROKEN BAR}")
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def block(text: str, language: str = "text") -> str:
    """Text as a code block, whose fence is longer than any in the text."""
    text = _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n"))
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def one_line(text: str) -> str:
    return _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
