"""Read the statement of a programming problem: its sections, and how its output must be compared.

Statements have the format of DeepMind's CodeContests: the story, then "Input", "Output", "Examples" and "Note", each on
a line of its own. A statement without these lines is all story.

A statement is prose, so these rules are heuristics. docs/benchmarks.md has their error rates, on problems read by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_TURN = re.compile(
    r"\A(?:<\|im_start\|>system\n.*?<\|im_end\|>\s*)?<\|im_start\|>user\n(.*?)"
    r"(?:<\|im_end\|>\s*)?(?:<\|im_start\|>assistant\s*(?:<think>\s*)?)?\Z",
    re.DOTALL,
)
_LEAD_IN = re.compile(r"\A[^\n]+\n\s*\nProblem:\s*\n")
_EXAMPLES = re.compile(r"^(?:Examples?|Sample (?:Input|Test)\S*)\s*:?$", re.MULTILINE | re.IGNORECASE)
_RULED_HEADING = re.compile(r"^-{3,} *(Input|Output|Examples?|Note) *-{3,}$", re.MULTILINE)  # of APPS
_NOTE = re.compile(r"^(?:Note|Notes|Explanation)\s*:?$", re.MULTILINE)


def strip_prompt(prompt: str) -> str:
    """Remove the ChatML turn and the introduction of a prompt.

    The introduction ("Write a C++ solution for this problem. …") is the paragraph before a line "Problem:".
    """
    turn = _TURN.match(prompt)
    text = turn[1] if turn else prompt
    return _LEAD_IN.sub("", text, count=1).strip()


@dataclass(frozen=True)
class ProblemStatement:
    """Sections of a statement, without their headings; "" for a missing one."""

    story: str
    input: str
    output: str
    note: str

    @property
    def output_rules(self) -> str:
        """What is known about the output: its section, or the story of a statement without one."""
        return self.output or self.story

    @property
    def rules(self) -> str:
        """All sections except the examples and the note."""
        return "\n".join((self.story, self.input, self.output))


def parse_statement(text: str) -> ProblemStatement:
    """Split a statement into sections. Text before the heading "Input" is the story."""
    text = "\n" + _RULED_HEADING.sub(r"\1", text.replace("\r\n", "\n")).strip()  # a heading may be the first line
    start = _EXAMPLES.search(text)
    head, tail = (text[: start.start()], text[start.end() :]) if start else (text, "")
    # Before the examples, the last "Output" is the section, because a story may have such a line, too.
    last = head.rfind("\nOutput\n") if start else head.find("\nOutput\n")
    first = head.rfind("\nInput\n", 0, last + 1) if last >= 0 else -1
    note = _NOTE.search(tail)
    return ProblemStatement(
        story=head[: first if first >= 0 else last if last >= 0 else len(head)].strip(),
        input=head[first + len("\nInput\n") : last].strip() if 0 <= first < last else "",
        output=head[last + len("\nOutput\n") :].strip() if last >= 0 else "",
        note=tail[note.end() :].strip() if note else "",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Problems that cannot be used as they are


_INTERACTIVE = re.compile(r"\binteractive\b|\bflush(?:ing)? (?:the )?output\b|^Interaction$", re.MULTILINE)
_CHECKER_FORMULA = re.compile(r"[^.\n]*\b(?:checker|considered correct|accepted)\b[^.\n]*<image>", re.IGNORECASE)


def depends_on_image(statement: ProblemStatement) -> bool:
    """Whether the rules contain an image or a formula as an image.

    Images in the note only explain an example, and the formula of a checker's tolerance is known.
    """
    return "<image>" in _CHECKER_FORMULA.sub("", statement.rules)


def is_interactive(statement: ProblemStatement) -> bool:
    """Whether the program must interact with another program."""
    return _INTERACTIVE.search(statement.rules) is not None


def named_files(statement: ProblemStatement) -> list[str]:
    """Return the files that the program must read or write instead of standard input and output."""
    names = re.findall(r"\b[\w-]+\.(?:txt|in|inp|dat|out)\b", f"{statement.input}\n{statement.output}")
    return [name for name in names if not name.startswith("System.")]  # advice for Java


# ----------------------------------------------------------------------------------------------------------------------
# Several right answers


_PRINT = r"(?:print|output|find|choose|display|report|give|write|contain|return)"
_ANY = r"any(?!\s+(?:case|register|letter|character|output)s?\b)"
# "print any of them", "— any string", "and any suitable array", "in any order", in the description of the output.
_ASKED_FOR_ANY = re.compile(
    rf"\b{_PRINT}\b(?:\s+[\w,]+){{0,3}}?\s+{_ANY}\b"
    rf"|[—–:(]\s*(?:i\.e\.,?\s*)?{_ANY}\b"
    rf"|\band {_ANY}\b|\bany of them\b|\b(?:any|arbitrary) order\b",
    re.IGNORECASE,
)
# In the story and the note, "any" mostly has another meaning, so the pattern is stricter.
_ANSWERED_BY_ANY = re.compile(
    rf"\b(?:print|output|find) {_ANY}\b"
    rf"|\b{_PRINT}\b[^.\n]*\b(?:any|arbitrary) order\b"
    r"|(?:several|multiple|many|more than one)[^.\n]*(?:answer|solution)[^.\n]*\bany\b",
    re.IGNORECASE,
)
_ARRANGEMENT = re.compile(r"\b(?:permutation|reorder\w*|rearrang\w+|shuffled)\b", re.IGNORECASE)

# Problems of CodeContests with several right answers that the rules above miss, found by reading.
KNOWN_SEVERAL_ANSWERS = frozenset(
    ("1057_A", "1088_A", "1430_C", "322_A", "491_A", "652_B", "1076_D", "1325_C", "1391_E", "407_A", "489_E", "749_B")
)


def find_several_answers(statement: ProblemStatement, outputs: Iterable[str]) -> str | None:
    """Return the words that reveal several right answers, or None.

    Args:
        outputs: the expected outputs. An arrangement counts only if a line of them has two items.
    """
    where = statement.output_rules
    if match := _ASKED_FOR_ANY.search(where):
        return match[0]
    if match := _ANSWERED_BY_ANY.search(f"{statement.story}\n{statement.note}"):
        return match[0]
    match = _ARRANGEMENT.search(statement.output)
    if match and any(len(line.split()) > 1 for output in outputs for line in output.split("\n")):
        return match[0]
    return None


# ----------------------------------------------------------------------------------------------------------------------
# Comparison of outputs


_ERROR = re.compile(r"\b(?:error|errors|inaccuracy|accuracy|precision|differs?)\b", re.IGNORECASE)
# 10^{-6}, 10^-6, 10 - 6 (a superscript that was lost), 1e-6, 0.000001
_POWER = re.compile(r"\b10\s*\^?\s*\{?\s*[-−–]\s*(\d{1,2})\b|\b1[eE]-(\d{1,2})\b|\b0\.(0+)1\b")
_ANY_CASE = re.compile(
    r"case[- ]insensitive"
    r"|\b(?:any|arbitrary) (?:case|register)\b"
    r"|\b(?:upper|lower)[- ]?(?:case)?\)?,? (?:or|of)(?: in)? (?:upper|lower)"
    r"|\bthe case\b[^.\n]{0,40}\b(?:arbitrary|not matter)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
DEFAULT_TOLERANCE = 1e-6


def find_tolerance(statement: ProblemStatement) -> float | None:
    """Return the numeric error that the description of the output allows; None if it names none."""
    return _tolerance_in(statement.output_rules)


def _tolerance_in(text: str) -> float | None:
    for error in _ERROR.finditer(text):
        # The same sentence or the next: "should not exceed 10^{-6}. Formally, let your answer be …"
        near = text[max(0, error.start() - 120) : error.end() + 160]
        if power := _POWER.search(near):
            digits = int(power[1] or power[2] or len(power[3]) + 1)
            return float(f"1e-{digits}") if digits > 0 else None
    return DEFAULT_TOLERANCE if re.search(r"absolute or relative|relative or absolute", text, re.I) else None


def choose_comparison(statement: ProblemStatement, outputs: Sequence[str]) -> tuple[str, float]:
    """Choose the judge's comparison: ("float", tolerance), ("yes_no", …) if case is free, else ("lines", …).

    "float" requires a tolerance in the statement and real numbers in the outputs; see `add_decimal_points`. If outputs
    have decimals, any section may name the tolerance. "yes_no" requires outputs of words only. Case is free if the
    statement says so, or if the expected outputs are "YES" although the statement asks for "Yes": otherwise a correct
    program would fail.
    """
    tokens = {token for output in outputs for token in output.split()}
    allowed = find_tolerance(statement)
    numbers = {token for token in tokens if _NUMBER.fullmatch(token)}
    if allowed is None and any("." in token for token in numbers):
        allowed = _tolerance_in(f"{statement.rules}\n{statement.note}")
    if allowed is not None and numbers and (numbers == tokens or any(re.search("[.eE]", token) for token in numbers)):
        return "float", allowed
    words = bool(tokens) and all(re.fullmatch(r"[^\W\d_]+[!?.]?", token) for token in tokens)
    if words and (_ANY_CASE.search(f"{statement.output}\n{statement.note}") or _has_wrong_case(statement, tokens)):
        return "yes_no", DEFAULT_TOLERANCE
    return "lines", DEFAULT_TOLERANCE


def _has_wrong_case(statement: ProblemStatement, tokens: set[str]) -> bool:
    if not {token.casefold() for token in tokens} <= {"yes", "no"}:
        return False
    asked = set(re.findall(r"\b(?:yes|no)\b", statement.output, re.IGNORECASE))
    return bool(asked) and not tokens <= asked


def add_decimal_points(output: str) -> str:
    """Write whole numbers as decimals ("5" as "5.0"), so that the judge accepts "5.000001".

    Use it for problems with real numbers as answers. An output with other words stays as it is.
    """
    if not all(_NUMBER.fullmatch(token) for token in output.split()):
        return output
    return re.sub(r"(?<![\S])([+-]?\d+)(?![\S])", r"\1.0", output)
