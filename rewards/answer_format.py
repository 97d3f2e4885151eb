"""Reward a completion that ends in an answer, in one of the forms that tasks/ ask for: 1 or 0.

#### The final answer is 42              a line of its own
So she has $\\boxed{42}$ apples left.    a box in the last line
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rlvr import InputError, completion_text, own_turn

# A sign, a currency sign, digits with or without commas, decimals, perhaps a full stop. No words.
_LINE = r"#### The final answer is [-−]?\$?[-−]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?\.?"
# One box in the line, with a digit in it. The empty box of the prompt and a letter do not match.
_BOX = r"(?!.*\\boxed.*\\boxed).*\\boxed\{(?=[^}]*[0-9]).*\}.*"
PATTERN = f"{_LINE}|{_BOX}"
MAX_LINE_CHARACTERS = 1000
_ENDS_OF_FORMULAS = ("\\]", "$$")


def answer_format(
    prompts: list[Any],
    completions: list[Any],
    *,
    pattern: str = PATTERN,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Check whether the last line of the model's own turn states an answer, correct or wrong.

    A line that only ends a formula (`\\]` or `$$`) belongs to the line before it.

    Args:
        completions: strings, or lists of chat messages.
        pattern: a regular expression (Python's `re`) for the whole last line, without spaces around it. The default
            accepts both forms. Do not nest repetitions, because the expression runs on text of a model.

    Returns:
        1.0 or 0.0 for each completion.

    Raises:
        InputError: the pattern is not a regular expression.
    """
    try:
        form = re.compile(pattern)
    except re.error as error:
        message = f"Reward answer_format, option pattern: {pattern!r} is not a regular expression ({error})."
        raise InputError(message, kind="invalid-value", key="pattern") from error
    lines = [_last_line(completion) for completion in completions]
    if log_extra is not None:
        log_extra("answer_format/why", [f"The own turn ends in the line {line[:100]!r}." for line in lines])
    return [float(len(line) <= MAX_LINE_CHARACTERS and form.fullmatch(line) is not None) for line in lines]


def _last_line(completion: Any) -> str:
    before, _, line = own_turn(completion_text(completion)).rstrip().rpartition("\n")
    if line.strip(" \t.") in _ENDS_OF_FORMULAS:
        line = before.rstrip().rpartition("\n")[2]
    return line.strip()
