"""What the statement of a programming problem says about itself: its sections, and how its output is to be compared.

Statements are read as DeepMind's CodeContests writes them: the story, then "Input", "Output", "Examples" and "Note",
each a line of its own. One without these lines is all story, and every question is asked of the whole of it.

A statement is prose, so these are rules of thumb. docs/tasks.md says how often they are wrong, on problems that were
read one by one.
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
_NOTE = re.compile(r"^(?:Note|Notes|Explanation)\s*:?$", re.MULTILINE)


def bare_problem(prompt: str) -> str:
    """The problem alone, of a prompt with a ChatML turn and a lead-in baked in.

    The lead-in ("Write a C++ solution for this problem. …") is the one paragraph in front of a line "Problem:".
    """
    turn = _TURN.match(prompt)
    text = turn[1] if turn else prompt
    return _LEAD_IN.sub("", text, count=1).strip()


@dataclass(frozen=True)
class Statement:
    """The sections of a statement, without their headings; "" where there is none."""

    story: str
    input: str
    output: str
    examples: str
    note: str

    @property
    def rules(self) -> str:
        """All but the examples and what explains them."""
        return "\n".join((self.story, self.input, self.output))


def read_statement(text: str) -> Statement:
    """Takes a statement apart. Text before the heading "Input" is the story."""
    text = "\n" + text.replace("\r\n", "\n").strip()  # a heading may be the first line
    start = _EXAMPLES.search(text)
    head, tail = (text[: start.start()], text[start.end() :]) if start else (text, "")
    # After the examples have been cut off, the last "Output" is the section, since a story may have such a line too.
    last = head.rfind("\nOutput\n") if start else head.find("\nOutput\n")
    first = head.rfind("\nInput\n", 0, last + 1) if last >= 0 else -1
    note = _NOTE.search(tail)
    return Statement(
        story=head[: first if first >= 0 else last if last >= 0 else len(head)].strip(),
        input=head[first + len("\nInput\n") : last].strip() if 0 <= first < last else "",
        output=head[last + len("\nOutput\n") :].strip() if last >= 0 else "",
        examples=tail[: note.start() if note else len(tail)].strip(),
        note=tail[note.end() :].strip() if note else "",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Problems that can't be used as they are


_INTERACTIVE = re.compile(r"\binteractive\b|\bflush(?:ing)? (?:the )?output\b|^Interaction$", re.MULTILINE)
_CHECKER_FORMULA = re.compile(r"[^.\n]*\b(?:checker|considered correct|accepted)\b[^.\n]*<image>", re.IGNORECASE)


def depends_on_image(statement: Statement) -> bool:
    """Whether a picture or a formula that is not in the text stands where the problem is posed.

    Pictures in the note explain an example, and the formula of a checker's tolerance is known without being seen.
    """
    return "<image>" in _CHECKER_FORMULA.sub("", statement.rules)


def is_interactive(statement: Statement) -> bool:
    """Whether the program has to talk with another program, which a file of input cannot do."""
    return (
        re.search(r"\binteractive\b|\bflush(?:ing)? (?:the )?output\b|^Interaction$", statement.rules, re.M) is not None
    )


def named_files(statement: Statement) -> list[str]:
    """The files that the statement tells the program to read or write, in place of its input and output."""
    found = re.findall(r"\b[\w-]+\.(?:txt|in|inp|dat|out)\b", f"{statement.input}\n{statement.output}")
    return [name for name in found if not name.startswith("System.")]  # advice for Java


# ----------------------------------------------------------------------------------------------------------------------
# Several right answers


_PRINT = r"(?:print|output|find|choose|display|report|give|write|contain|return)"
_ANY = r"any(?!\s+(?:case|register|letter|character|output)s?\b)"
# "print any of them", "— any string", "and any suitable array", "in any order": where the output is described.
_ASKED_FOR_ANY = re.compile(
    rf"\b{_PRINT}\b(?:\s+[\w,]+){{0,3}}?\s+{_ANY}\b"
    rf"|[—–:(]\s*(?:i\.e\.,?\s*)?{_ANY}\b"
    rf"|\band {_ANY}\b|\bany of them\b|\b(?:any|arbitrary) order\b",
    re.IGNORECASE,
)
# In the story and the note "any" is mostly something else, so more has to stand beside it.
_ANSWERED_BY_ANY = re.compile(
    rf"\b(?:print|output|find) {_ANY}\b"
    rf"|\b{_PRINT}\b[^.\n]*\b(?:any|arbitrary) order\b"
    r"|(?:several|multiple|many|more than one)[^.\n]*(?:answer|solution)[^.\n]*\bany\b",
    re.IGNORECASE,
)
_ARRANGEMENT = re.compile(r"\b(?:permutation|reorder\w*|rearrang\w+|shuffled)\b", re.IGNORECASE)

# Problems of CodeContests that were read and have several right answers, which the rules above don't see.
SEEN_BY_READING = frozenset(
    ("1057_A", "1088_A", "1430_C", "322_A", "491_A", "652_B",
     "1076_D", "1325_C", "1391_E", "407_A", "489_E", "749_B")
)  # fmt: skip


def several_answers(statement: Statement, outputs: Iterable[str]) -> str | None:
    """The words that say that a problem has several right answers, or None.

    Args:
        outputs: the expected ones. An arrangement of things is asked for only where some line of them has two.
    """
    where = statement.output or statement.story
    if found := _ASKED_FOR_ANY.search(where):
        return found[0]
    if found := _ANSWERED_BY_ANY.search(f"{statement.story}\n{statement.note}"):
        return found[0]
    found = _ARRANGEMENT.search(statement.output)
    if found and any(len(line.split()) > 1 for output in outputs for line in output.split("\n")):
        return found[0]
    return None


# ----------------------------------------------------------------------------------------------------------------------
# How the output is compared


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


def tolerance(statement: Statement) -> float | None:
    """The error that the output may have, as the statement names it; None where it names none."""
    where = statement.output or statement.story
    for error in _ERROR.finditer(where):
        # The same sentence or the next: "should not exceed 10^{-6}. Formally, let your answer be …"
        near = where[max(0, error.start() - 120) : error.end() + 160]
        if power := _POWER.search(near):
            digits = int(power[1] or power[2] or len(power[3]) + 1)
            return float(f"1e-{digits}") if digits > 0 else None
    return DEFAULT_TOLERANCE if re.search(r"absolute or relative|relative or absolute", where, re.I) else None


def comparison(statement: Statement, outputs: Sequence[str]) -> tuple[str, float]:
    """How the judge should compare: ("float", the tolerance), ("yes_no", …) where case is free, else ("lines", …).

    "float" wants a tolerance in the statement and real numbers in the output; see `with_points`. Case is free where the
    statement says so, and where the expected outputs say "YES" though the statement asks for "Yes": no program that
    does as it is told would pass then. It wants outputs that are words throughout.
    """
    tokens = {token for output in outputs for token in output.split()}
    allowed = tolerance(statement)
    numbers = {token for token in tokens if _NUMBER.fullmatch(token)}
    if allowed is not None and numbers and (numbers == tokens or any(re.search("[.eE]", token) for token in numbers)):
        return "float", allowed
    words = bool(tokens) and all(re.fullmatch(r"[^\W\d_]+[!?.]?", token) for token in tokens)
    if words and (_ANY_CASE.search(f"{statement.output}\n{statement.note}") or _miswritten(statement, tokens)):
        return "yes_no", DEFAULT_TOLERANCE
    return "lines", DEFAULT_TOLERANCE


def _miswritten(statement: Statement, tokens: set[str]) -> bool:
    if not {token.casefold() for token in tokens} <= {"yes", "no"}:
        return False
    asked = set(re.findall(r"\b(?:yes|no)\b", statement.output, re.IGNORECASE))
    return bool(asked) and not tokens <= asked


def with_points(output: str) -> str:
    """An expected output with its whole numbers as decimals ("5" as "5.0"), so that "5.000001" can be near one.

    For problems whose answers are real numbers. Unchanged where anything in it is no number.
    """
    if not all(_NUMBER.fullmatch(token) for token in output.split()):
        return output
    return re.sub(r"(?<![\S])([+-]?\d+)(?![\S])", r"\1.0", output)
