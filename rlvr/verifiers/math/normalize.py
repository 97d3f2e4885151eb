"""Rewrite LaTeX, Unicode and plain text in one canonical spelling: \\dfrac12, $1/2$, sqrt(2), √2.

Nothing is computed but repeating decimals, and two texts with different meanings never become equal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from fractions import Fraction

from rlvr.verifiers.math.numbers import to_ascii

_SIGNS = {
    "π": r"\pi ",
    "∞": r"\infty ",
    "√": r"\sqrt ",
    "≤": r"\leq ",
    "≥": r"\geq ",
    "≠": r"\neq ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "°": r"^\circ ",
    "²": "^2",
    "³": "^3",
    "⁴": "^4",
    "∅": r"\emptyset ",
    "≈": r"\approx ",
    "ℝ": r"\mathbb{R}",
    "θ": r"\theta ",
    "α": r"\alpha ",
    "β": r"\beta ",
    "γ": r"\gamma ",
    "λ": r"\lambda ",
    "φ": r"\phi ",
    "ω": r"\omega ",
    "μ": r"\mu ",
    "σ": r"\sigma ",
    "Δ": r"\Delta ",
}
_UNICODE = {ord(sign): latex for sign, latex in _SIGNS.items()}
FUNCTIONS = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp max min gcd lcm det"
_OF_ANGLES = "arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln"
_ANGLES = "(?:theta|alpha|beta|gamma|phi|pi)(?![a-zA-Z])"

_CLEANING: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right|[bB]igg?[lrm]?|middle)(?![a-zA-Z])\s?\.?", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits|rm|bf|it)(?![a-zA-Z])", ""),
        (r"\\!\s?", ""),
        (r"(?<=[0-9])\s?\{\s?,\s?\}\s?(?=[0-9])", ","),
        (r"(?<!\\)\\(?:[,;:> ]|q?quad(?![a-zA-Z])|thinspace(?![a-zA-Z]))|(?<=[^~\s])~(?=[^~\s0-9])", " "),
        (r"\\hspace\s?\{[^{}]{0,20}\}|\\phantom\s?\{[^{}]{0,20}\}", " "),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\(?:leq?|leqslant)(?![a-zA-Z])|<=|≤", r"\\leq "),
        (r"\\(?:geq?|geqslant)(?![a-zA-Z])|>=", r"\\geq "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\(?:neq?|not\s?=)(?![a-zA-Z])|!=", r"\\neq "),
        (r"\\(?:cdot|times|ast)(?![a-zA-Z])|\*\*?", lambda match: "^" if match.group() == "**" else "*"),
        (r"\\div(?![a-zA-Z])", "/"),
        (r"\\log\s?_\s?(?:\{\s?e\s?\}|e)", r"\\ln "),
        (r"\\lg(?![a-zA-Z])", r"\\log_{10} "),
        (r"\\mathbb\s?([A-Z])(?![a-zA-Z])", r"\\mathbb{\1}"),
        (r"(^|\\in)\s?\\mathbb\{R\}$", r"\1(-\\infty, \\infty)"),
        (r"\\(?:varnothing|empty)(?![a-zA-Z])|\\\{\s?\\\}", r"\\emptyset "),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\(?:lvert|rvert|vert|mid)(?![a-zA-Z])", "|"),
        (r"\\langle(?![a-zA-Z])", "("),
        (r"\\rangle(?![a-zA-Z])", ")"),
        (r"\\(?:mathbf|mathit|boldsymbol|vec|bm|mathrm|operatorname\*?)\s?\{([^{}]{0,40})\}", r"{\1}"),
        (r"\\(?:textbf|textit|textrm|texttt|textsf|textnormal|mbox|emph|hbox)(?![a-zA-Z])", r"\\text"),
        (r"\\(?:bmatrix|vmatrix|smallmatrix)(?![a-zA-Z])", r"\\pmatrix"),
        (r"\{(?:[bp]|small)matrix\}", "{pmatrix}"),
        (r"[(\[]\s?\\begin\{array\}\s?\{[lcr|]{1,20}\}", r"\\begin{pmatrix}"),
        (r"\\end\{array\}\s?[)\]]", r"\\end{pmatrix}"),
        (r"\^\s?\{?\s?\\(?:circ|degree)\s?\}?|\\degree(?![a-zA-Z])", r"\\degree "),
        (r"\\(?:dots|ldots|cdots)(?![a-zA-Z])|\.\.\.|…", r"\\ldots "),
        (r"\\\$|(?<!\\)\$", " "),
        (r"\\([%&#_])", r"\1"),
        (r"\\(?:infin|infinity)(?![a-zA-Z])", r"\\infty "),
        (r"(?<![a-zA-Z\\])(?:infinity|infty|inf|oo)(?![a-zA-Z])", r"\\infty "),
        (r"(?<![a-zA-Z\\])sqrt\s?\(([^()]{1,60})\)", r"\\sqrt{\1}"),
        (r"(?<![a-zA-Z\\])sqrt\s?([0-9]{1,12})", r"\\sqrt{\1}"),
        (r"(?<![a-zA-Z\\])sqrt(?![a-zA-Z])", r"\\sqrt"),
        (rf"(?<![a-zA-Z\\])(pi|theta|alpha|beta|lambda|{FUNCTIONS.replace(' ', '|')})(?![a-z])", r"\\\1 "),
        (rf"(?:\\text\s?)?\{{(\\(?:{FUNCTIONS.replace(' ', '|')}) )\}}(?=\s?\()", r"\1"),
        # A missing space: \\sinx, \\cottheta, sinx; not \\sinh.
        (rf"\\(?![a-z]{{3}}h(?![a-zA-Z]))({_OF_ANGLES})(?=[a-zA-Z](?![a-zA-Z]))", r"\\\1 "),
        (rf"\\({_OF_ANGLES})(?={_ANGLES})", r"\\\1 \\"),
        (rf"(?<![a-zA-Z\\])({_OF_ANGLES})(?=x(?![a-zA-Z]))", r"\\\1 "),
        (r"\+\s?\\infty", r"\\infty"),
        (r"((?:^|(?<=[-+(,={\s]))[0-9]{1,18})\s?\*\s?(?=\\sqrt|\\pi|[a-zA-Z](?![a-zA-Z]))", r"\1 "),
    )
)
# "and" and "or" between values; in \text{…} only if it contains nothing else.
_CONNECTIVE = re.compile(
    r"(?P<joint>,?\s?\\text\s?\{\s?,?\s?(?:and|or|und|et|, and|and/or)\s?,?\s?\})|\\text\s?\{[^{}]{0,120}\}"
    r"|(?P<and>,?\s(?:and|or)(?=[\s\\$(\[0-9-])|(?<=[)\]}0-9])\s?(?:and|or)(?=[\s\\$(\[a-z0-9-]))"
)
TEXT = re.compile(r"\\text\s?\{([^{}]{0,120})\}")
_SPACES = re.compile(r"\s+")
_BARE_FRACTION = re.compile(r"\\frac\s?(?:([0-9a-zA-Z]|\\[a-zA-Z]+ ?)|(\{))")
_BARE_ROOT = re.compile(r"\\sqrt\s?(?:\[\s?([0-9n])\s?\]\s?)?([0-9a-zA-Z](?![0-9.])|[0-9]{2,12})")
_SINGLE = re.compile(r"([\^_])\{([0-9a-zA-Z])\}(?![0-9])")
_UPPER_BOUND = re.compile(r"(_(?:[0-9a-zA-Z]|\{[^{}]{1,20}\})\^)([0-9a-zA-Z]) (?=[0-9])")  # 1 in "\\int_0^1 2x dx"
# 0.1\\overline{6}; also with \\bar, or with \\dot over the only digit, or over the first and the last one. A decimal
# next to another number (2 0.\\overline{3}) stays as it is.
_REPEATING = re.compile(
    r"""
    (?<![0-9a-zA-Z.}^)\]]) (?<![0-9.}^)\]][ ])
    (?P<whole> [0-9]{1,3}(?:,[0-9]{3}){1,5} | [0-9]{0,18} ) \. (?P<fixed>[0-9]{0,12})
    (?: \\(?:overline|bar)[ ]? (?: \{[ ]?(?P<braced>[0-9]{1,12})[ ]?\} | (?P<bare>[0-9]) )
      | \\dot[ ]?\{?(?P<first>[0-9])\}? (?: (?P<middle>[0-9]{0,10}) \\dot[ ]?\{?(?P<last>[0-9])\}? )?
    )
    (?![ ]?(?: [0-9.!^_({] | \\(?:overline|bar|dot|frac|sqrt|ldots) ))
    """,
    re.VERBOSE,
)
_ESCAPED_TWICE = re.compile(r"(?<!\\)\\\\(?=[a-zA-Z])")  # "\\\\frac", as from a JSON string within another
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\[", r"\]"), (r"\(", r"\)"))


def strip_delimiters(text: str) -> str:
    """Remove the math delimiters and the full stop around a text."""
    text = text.strip()
    changed = True
    while changed and len(text) > 1 and not text.endswith(".."):
        changed = False
        stripped = text.rstrip(" .;,\n*_`:") if not text.endswith("\\,") else text[:-2]
        if stripped != text and not stripped.endswith("\\"):
            text, changed = stripped, True
        text = text.lstrip(" \n*_`:")
        for opening, closing in _DELIMITERS:
            inner = text[len(opening) : -len(closing)]
            if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
                if opening in inner or closing in inner or inner.endswith("\\"):
                    continue  # "$2$ and $3$"
                text, changed = inner.strip(), True
    return text


def canonicalize(text: str) -> str:
    """Rewrite a text in canonical spelling. Single spaces stay, because the parser needs them."""
    text = strip_delimiters(text)
    if not text.isascii():
        text = to_ascii(text.translate(_UNICODE))
    if "boxed" in text:
        text = re.sub(r"\\f?boxed\s?(?=\{)", "", text)
    if "\\\\" in text and "begin" not in text:
        text = _ESCAPED_TWICE.sub("\\\\", text)
    for pattern, replacement in _CLEANING:
        text = pattern.sub(replacement, text)
    text = _CONNECTIVE.sub(_as_semicolon, text)
    text = _brace_arguments(text)
    text = _SINGLE.sub(r"\1\2", text)
    text = _UPPER_BOUND.sub(r"\1{\2}", text)
    return strip_delimiters(_REPEATING.sub(_as_fraction, _SPACES.sub(" ", text)))


def _as_fraction(match: re.Match[str]) -> str:
    """Write a repeating decimal as a fraction: `0.1\\overline{6}` is 1/10 + 6/90."""
    repeated = "".join(match[name] or "" for name in ("braced", "bare", "first", "middle", "last"))
    shifted = int(match["whole"].replace(",", "") + match["fixed"] or "0")
    value = (shifted + Fraction(int(repeated), 10 ** len(repeated) - 1)) / 10 ** len(match["fixed"])
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _as_semicolon(match: re.Match[str]) -> str:
    return " ; " if match["joint"] or match["and"] else match[0]


def _brace_arguments(text: str) -> str:
    r"""Add braces: `\frac12` -> `\frac{1}{2}`, `\sqrt3` -> `\sqrt{3}`."""
    text = _BARE_ROOT.sub(lambda match: f"\\sqrt{f'[{match[1]}]' if match[1] else ''}{{{match[2]}}}", text)
    if "\\frac" not in text:
        return text
    parts, at = [], 0
    for match in _BARE_FRACTION.finditer(text):
        if match.start() < at:
            continue
        parts.append(text[at : match.start()])
        top_end = match.end() if match[1] else closing_bracket(text, match.end()) + 1
        if top_end <= 0:
            break
        top = match[1] if match[1] else text[match.start(2) + 1 : top_end - 1]
        at = len(text) - len(text[top_end:].lstrip())
        parts.append(f"\\frac{{{top}}}")
        if text[at : at + 1].isalnum():
            parts.append(f"{{{text[at]}}}")
            at += 1
    parts.append(text[at:])
    return "".join(parts)


def closing_bracket(text: str, start: int, end: int = sys.maxsize, *, opening: str = "{", closing: str = "}") -> int:
    """Return the index before `end` of the bracket that closes the one that precedes `start`, or -1."""
    depth = 1
    for index in range(start, min(len(text), end)):
        depth += (text[index] in opening) - (text[index] in closing)
        if depth == 0:
            return index
    return -1
