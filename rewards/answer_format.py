"""1 where the completion ends in the line that the prompt asks for, `#### The final answer is N`, else 0."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rlvr import InputError, completion_text, own_turn

# N: a sign, a currency sign, digits with or without commas, decimals. A trailing dot is forgiven, words are not.
PATTERN = r"#### The final answer is [-−]?\$?[-−]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?\.?"
MAX_LINE_CHARACTERS = 1000


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

    Raises:
        InputError: a pattern that is no regular expression.
    """
    line_pattern = _compiled(pattern)
    return [_judge(completion, line_pattern)[0] for completion in completions]


def explain(completion: Any, *, pattern: str = PATTERN, **kwargs: Any) -> list[str]:
    """Why `answer_format` gives this completion its reward: a sentence a step, the last one says the reward.

    Args: as `answer_format`, for one completion.
    """
    reward, steps = _judge(completion, _compiled(pattern))
    return [*steps, f"Reward: {reward:g}"]


def _judge(completion: Any, pattern: re.Pattern[str]) -> tuple[float, list[str]]:
    """The reward, and the sentences that explain it."""
    last_line = own_turn(completion_text(completion)).rstrip().rpartition("\n")[2].strip()
    if not last_line:
        return 0.0, ["The own turn is empty."]
    shown = repr(last_line if len(last_line) <= 100 else f"{last_line[:97]}...")
    steps = [f"The own turn ends in the line {shown}."]
    if len(last_line) > MAX_LINE_CHARACTERS:
        return 0.0, [*steps, f"It is longer than {MAX_LINE_CHARACTERS:,} characters, so it is no answer line."]
    if not pattern.fullmatch(last_line):
        return 0.0, [*steps, f"It is not what is asked for: {pattern.pattern}"]
    return 1.0, [*steps, "It is what is asked for."]


@lru_cache(maxsize=32)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"Reward answer_format, option pattern: {pattern!r} is not a regular expression ({error}). "
            "Write one in the notation of Python's re, with a backslash before every sign that is meant literally."
        ) from error
