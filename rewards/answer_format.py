"""Reward completions that end in an answer, in one of the two forms that the prompts of tasks/ ask for: 1 or 0.

#### The final answer is 42              a line of its own
So she has $\\boxed{42}$ apples left.    a box in the last line
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rlvr import InputError, completion_text, own_turn

# A sign, a currency sign, digits with or without commas, decimals, perhaps a full stop; no words.
_LINE = r"#### The final answer is [-−]?\$?[-−]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?\.?"
# One box in the line, with a digit in it: neither an empty box, as in the prompt, nor a letter.
_BOX = r"(?!.*\\boxed.*\\boxed).*\\boxed\{(?=[^}]*[0-9]).*\}.*"
PATTERN = f"{_LINE}|{_BOX}"
MAX_LINE_CHARACTERS = 1000
_ENDS_OF_FORMULAS = ("\\]", "$$")


def answer_format(
    prompts: list[Any], completions: list[Any], *, pattern: str = PATTERN, **kwargs: Any
) -> list[float | None]:
    """Check whether the last line of the model's own turn states an answer, right or wrong.

    A line that only ends a formula (`\\]` or `$$`) belongs to the line before it.

    Args:
        completions: strings, or lists of chat messages.
        pattern: a regular expression (Python's `re`) for the whole last line without surrounding spaces, in place of
            both forms. It runs on text of a model, so do not nest repetitions.

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: the pattern is no regular expression.
    """
    line_pattern = _compile(pattern)
    return [_score(completion, line_pattern)[0] for completion in completions]


def explain(completion: Any, *, pattern: str = PATTERN, **kwargs: Any) -> list[str]:
    """Explain the reward of `answer_format`, one sentence a step; the last one is the reward.

    Args: as `answer_format`, for one completion.
    """
    reward, steps = _score(completion, _compile(pattern))
    return [*steps, f"Reward: {reward:g}"]


def _score(completion: Any, pattern: re.Pattern[str]) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    before, _, last_line = own_turn(completion_text(completion)).rstrip().rpartition("\n")
    if last_line.strip(" \t.") in _ENDS_OF_FORMULAS:
        last_line = before.rstrip().rpartition("\n")[2]
    last_line = last_line.strip()
    if not last_line:
        return 0.0, ["The own turn is empty."]
    quoted = repr(last_line if len(last_line) <= 100 else f"{last_line[:97]}...")
    steps = [f"The own turn ends in the line {quoted}."]
    if len(last_line) > MAX_LINE_CHARACTERS:
        return 0.0, [*steps, f"It is longer than {MAX_LINE_CHARACTERS:,} characters, so it states no answer."]
    if not pattern.fullmatch(last_line):
        forms = "either form of answer" if pattern.pattern == PATTERN else pattern.pattern
        return 0.0, [*steps, f"It does not match {forms}."]
    return 1.0, [*steps, "It states an answer."]


@lru_cache(maxsize=32)
def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"Reward answer_format, option pattern: {pattern!r} is not a regular expression ({error}). "
            "Use the syntax of Python's re, with a backslash before literal signs.",
            kind="invalid-value",
            key="pattern",
        ) from error
