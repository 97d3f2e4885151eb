"""Find where a turn states its final answer, in every notation that models use.

In the order of trust:
1. explicit: a line with `####` (`#### 18`, `#### The final answer is 18`), `\\boxed{18}`, `<answer>18</answer>`;
2. prose: "The answer is 18.", "Answer: 18";
3. bare: a turn that is nothing but an answer, or one sentence with one formula in it.

The result is text with its position; grader.py compares it. Every pattern runs in linear time. Of an answer, only the
first `MAX_EXPRESSION` characters are read.
"""

from __future__ import annotations

from rlvr.verifiers.math.explicit_answers import find_boxed, find_marked, find_tagged
from rlvr.verifiers.math.prose_answers import find_bare, find_prose
from rlvr.verifiers.math.stated_answer import MAX_STATEMENTS, StatedAnswer, is_on_marked_line


def find_statements(turn: str, *, prose: bool = True, joined: bool = False) -> list[StatedAnswer]:
    """Find every statement of a final answer: explicit ones first, then prose, each in text order.

    Args:
        prose: also read statements that are not explicit.
        joined: read neighbouring boxes ("\\boxed{1} and \\boxed{2}") as one list, for a gold that is a list.
    """
    statements: list[StatedAnswer] = []
    if turn.count("box") > MAX_STATEMENTS or turn.count("####") > 4 * MAX_STATEMENTS:
        return [StatedAnswer("box", 0, len(turn), ("",), "there are more statements than any answer needs")]
    if "####" in turn:
        statements.extend(find_marked(turn))
    if "box" in turn:
        statements.extend(find_boxed(turn, joined))
    if "<" in turn:
        statements.extend(find_tagged(turn))
    if len(statements) > 1:
        statements.sort(key=lambda statement: statement.start)
    if prose:
        if _speaks_of_answer(turn):
            statements.extend(find_prose(turn))
        if not statements:
            statements.extend(find_bare(turn))
    return statements


def extract_boxed(text: str) -> str | None:
    """Return the content of the last box, or of the last neighbouring boxes; None without a box."""
    boxes = list(find_boxed(text, joined=True)) if "boxed" in text else []
    return boxes[-1].texts[0] if boxes else None


def _speaks_of_answer(turn: str) -> bool:
    """Whether "answer" occurs outside `####` lines. Most completions need no search for prose."""
    if "NSWER" in turn:
        return True
    at = turn.find("nswer")
    while at >= 0 and is_on_marked_line(turn, at):
        at = turn.find("nswer", at + 1)
    return at >= 0
