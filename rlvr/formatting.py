"""Format numbers, shares, long texts and recipes for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

MINUS = str.maketrans("-", "−")

# Characters shown of a prompt and of a completion.
PROMPT_LIMIT, COMPLETION_LIMIT = 1500, 3000

_LOCAL_PATH = re.compile(r"(?:/|~|\.\.?/)[^\n]*[^/\n]$")
SECRET_KEY = r"(?:[\w.-]*(?:(?:hub|hf|auth|access)_token|password|secret|api_key)|(?:[\w.-]*\.)?token)"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def points(difference: float) -> str:
    """Format a difference of two shares in percentage points, with its sign."""
    return f"{round(100 * difference, 1) + 0.0:+.1f}".translate(MINUS)


def number(value: float) -> str:
    """Format with three digits, without an exponent if possible."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text if "e" in text else text.translate(MINUS)


def count(number: float, noun: str) -> str:
    """Format a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def p_value_text(p_value: float) -> str:
    """Format a p-value: "p = 0.03"."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.2g}"


def is_number(value: Any) -> TypeGuard[float]:
    """Whether the value is a number that can be drawn: not NaN, not infinite, not close to the largest float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def shorten(text: str, limit: int) -> str:
    """Keep the first third and the last two thirds of `limit` characters, with a note of how many are left out.

    The end matters more: a question follows its examples, an answer its working.
    """
    if len(text) <= limit:
        return text
    head = limit // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit:,} characters left out …]\n{text[-tail:]}"


def byte_count(size: float) -> str:
    """Bytes with a decimal unit: "5.3 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def is_secret_key(key: str) -> bool:
    """Whether a key of a recipe, such as an option of a reward, holds a secret."""
    return re.fullmatch(SECRET_KEY, key, re.IGNORECASE) is not None


def hide_secrets(yaml: str) -> str:
    """A recipe's text without the values of secret keys, and without user and password of URLs."""
    return hide_url_users(re.sub(rf"(?mi)^([\s-]*{SECRET_KEY}\s*:).*$", r"\1 (not shown)", yaml))


def hide_url_users(text: str) -> str:
    """A text whose URLs have no user and no password."""
    return re.sub(r"(://)[^/\s@]+@", r"\1", text)


def without_folder(value: Any) -> Any:
    """The last part of a path that is not relative to the project; any other value as it is."""
    return Path(value).name if isinstance(value, str) and _LOCAL_PATH.match(value) else value


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a recipe with its dotted key. Entries of a list go by their label or name, if
    they have one.

    Values of secret keys are left out.
    """
    for key, value in values.items():
        name = f"{prefix}{key}"
        if is_secret_key(str(key)):
            continue
        if isinstance(value, list) and value and all(isinstance(item, Mapping) and item.get("name") for item in value):
            keys = ["label" if item.get("label") else "name" for item in value]
            value = {
                str(item[own]): {key: item[key] for key in item if key != own}
                for own, item in zip(keys, value, strict=True)
            }
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


_UNSEEN = re.compile(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_BEYOND = re.compile(r"[\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]")


def visible(text: str) -> str:
    """Escape everything that is invisible or controls a terminal, except line ends.

    Control characters, marks of writing direction, spaces without width, line separators, surrogates.
    """
    return _BEYOND.sub(_escaped, _UNSEEN.sub(_escaped, text))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def one_line(text: str, limit: int, *, end: bool = False) -> str:
    """The first, or the last, `limit` characters of the text, on one line and `visible`."""
    # Cut before escaping: a completion may have a million characters.
    text = text.strip()
    cut = len(text) > limit
    part = (text[-limit:] if end else text[:limit]) if cut else text
    shown = visible(part.replace("\n", " ⏎ "))
    if len(shown) > limit:
        cut, shown = True, shown[-limit:] if end else shown[:limit]
    return (f"…{shown}" if end else f"{shown}…") if cut else shown
