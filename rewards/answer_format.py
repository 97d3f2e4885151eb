"""1 where the completion ends in the line that the prompt asks for, `#### The final answer is N`, else 0."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rlvr.answers import completion_text, own_turn
from rlvr.errors import InputError

# N: a sign, a currency sign, digits with or without commas, decimals. A trailing dot is forgiven, words are not.
PATTERN = r"#### The final answer is [-−]?\$?[-−]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?\.?"


def answer_format(
    prompts: list[Any], completions: list[Any], *, pattern: str = PATTERN, **kwargs: Any
) -> list[float | None]:
    """Whether the last line of the model's own turn is the answer line; right or wrong does not matter here.

    Args:
        completions: strings, or lists of chat messages.
        pattern: a regular expression (Python's `re`) that the whole last line must match, spaces around it aside. It
            runs on text that a model wrote, so it should not nest one repetition in another.

    Returns:
        1.0 or 0.0 for each completion.
    """
    line_pattern = _compiled(pattern)
    rewards: list[float | None] = []
    for completion in completions:
        last_line = own_turn(completion_text(completion)).rstrip().rpartition("\n")[2].strip()
        rewards.append(1.0 if len(last_line) <= 1000 and line_pattern.fullmatch(last_line) else 0.0)
    return rewards


@lru_cache(maxsize=32)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"Reward answer_format, option pattern: {pattern!r} is not a regular expression ({error}). "
            "Write one in the notation of Python's re, with a backslash before every sign that is meant literally."
        ) from error
