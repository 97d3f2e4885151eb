"""A penalty for writing too much, or too little: 0 within the limits, down to -1 outside them.

Too much is DAPO's soft over-long punishment (arXiv 2503.14476, equation 13; L_max is `longest`, L_cache is `ramp`):

    0                                   up to longest - ramp
    (longest - ramp - length) / ramp    from there to longest
    -1                                  beyond

Too little is its mirror image with a ramp that starts at nothing: (length - shortest) / shortest below `shortest`.

`trl.rewards.get_soft_overlong_punishment` is the first half for tokens, and gives the same numbers. It needs the
trainer's `completion_ids`, which nobody has in evaluation, and counts everything; this one also counts the thoughts
alone, words or characters, and has a lower limit.

What it can be fooled by: a lower limit is paid in padding (`repetition` and a small weight help), a limit in words by
signs between letters, and a limit on thoughts alone is dodged by thinking on after </think>. A completion without think
tags is taken for all thought, so that leaving them out dodges nothing. A right answer is penalised like a wrong one;
`gate` decides whose length matters.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from rlvr import InputError
from rlvr.verifiers.completion_text import full_text, prompt_opens_think
from rlvr.verifiers.words import iterate_words

# Where tokens are asked for and the caller has none: a common figure for English, and too high for code or Chinese.
CHARACTERS_PER_TOKEN = 4

_UNITS = ("tokens", "words", "characters")
_PARTS = ("all", "thoughts")
_THINK_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)


def reasoning_length(
    prompts: list[Any],
    completions: list[Any],
    *,
    completion_ids: list[list[int]] | None = None,
    longest: int | None = None,
    ramp: int = 0,
    shortest: int = 0,
    unit: Literal["tokens", "words", "characters"] = "tokens",
    part: Literal["all", "thoughts"] = "all",
    **kwargs: Any,
) -> list[float | None]:
    """0 for a length within the limits, less outside them, never less than -1.

    Args:
        completions: strings, or lists of chat messages. The whole text counts, an invented next problem as well: it was
            paid for.
        completion_ids: the tokens of each completion, as the trainer hands them over.
        longest: the length beyond which the penalty is whole; no upper limit if not given.
        ramp: over how many units below `longest` the penalty grows; 0 for none until `longest`.
        shortest: the length below which there is a penalty; 0 for no lower limit.
        unit: what all these numbers count. Without `completion_ids`, as in evaluation, tokens are estimated as a
            quarter of the characters. A word is what `rlvr.verifiers.words` says, also in Chinese.
        part: "all", or "thoughts": what stands between <think> and </think>, of which the prompt may have opened the
            first. Tokens of a part are its share of the characters.

    Returns:
        From 0 down to -1 for each completion.

    Raises:
        InputError: no limit at all, limits that leave no length without a penalty, a unit or a part that is none, or
            not one list of tokens for each completion.
    """
    _check(longest, ramp, shortest, unit, part)
    for name, given in (("prompts", prompts), ("lists of completion_ids", completion_ids)):
        if given is not None and len(given) != len(completions):
            raise InputError(
                f"Reward reasoning_length: {len(given)} {name} for {len(completions)} completions. Give one each."
            )
    return [
        _judge(
            completion,
            None if completion_ids is None else len(completion_ids[row]),
            prompt_opens_think(prompts[row]),
            longest,
            ramp,
            shortest,
            unit,
            part,
        )[0]
        for row, completion in enumerate(completions)
    ]


def explain(
    completion: Any,
    *,
    prompt: Any = None,
    completion_ids: list[int] | None = None,
    longest: int | None = None,
    ramp: int = 0,
    shortest: int = 0,
    unit: Literal["tokens", "words", "characters"] = "tokens",
    part: Literal["all", "thoughts"] = "all",
    **kwargs: Any,
) -> list[str]:
    """Why `reasoning_length` gives this completion its reward: a sentence a step, the last one says the reward.

    Args: as `reasoning_length`, for one row.
    """
    _check(longest, ramp, shortest, unit, part)
    tokens = None if completion_ids is None else len(completion_ids)
    reward, steps = _judge(completion, tokens, prompt_opens_think(prompt), longest, ramp, shortest, unit, part)
    return [*steps, f"Reward: {reward:g}"]


def _judge(
    completion: Any,
    tokens: int | None,
    opened: bool,
    longest: int | None,
    ramp: int,
    shortest: int,
    unit: str,
    part: str,
) -> tuple[float, list[str]]:
    """The reward, and the sentences that explain it."""
    text = full_text(completion, think_opened=opened)
    counted = _thoughts(text, opened) if part == "thoughts" else text
    what = "the thoughts" if part == "thoughts" else "the completion"
    if unit == "characters":
        length = len(counted)
    elif unit == "words":
        length = sum(1 for _ in iterate_words(counted))
    elif tokens is None:
        length = math.ceil(len(counted) / CHARACTERS_PER_TOKEN)
    else:
        # Tokens that are no text, such as those that end the turn, count with the text that they stand beside.
        length = tokens if part == "all" or not text else math.ceil(tokens * len(counted) / len(text))
    about = "about " if unit == "tokens" and (tokens is None or part != "all") else ""
    steps = [f"Counted {about}{length:,} {unit} in {what}."]

    if length < shortest:
        steps.append(f"That is below {shortest:,}: {shortest - length:,} of {shortest:,} are missing.")
        return (length - shortest) / shortest, steps
    free = math.inf if longest is None else longest - ramp
    if length <= free:
        steps.append("That is within the limits.")
        return 0.0, steps
    if longest is not None and length <= longest:
        steps.append(f"That is {length - free:,.0f} beyond {free:,.0f}, on a ramp of {ramp:,}.")
        return (free - length) / ramp, steps
    return -1.0, [*steps, f"That is beyond {longest:,}."]


def _thoughts(text: str, opened: bool) -> str:
    """What stands between think tags, as `rlvr.verifiers.math.without_thinking` leaves it out; all of a text without
    any."""
    kept: list[str] = []
    start, thinking = 0, opened
    first_tag = True
    for tag in _THINK_TAG.finditer(text):
        closes = tag[1] == "/"
        if thinking or (closes and first_tag):  # a missing opening tag was in the prompt
            kept.append(text[start : tag.start()])
        thinking, start, first_tag = not closes, tag.end(), False
    if thinking or first_tag:
        kept.append(text[start:])
    return "\n".join(kept)


def _check(longest: int | None, ramp: int, shortest: int, unit: str, part: str) -> None:
    for name, value in (("longest", longest), ("ramp", ramp), ("shortest", shortest)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise InputError(f"Reward reasoning_length, option {name}: {value!r} is not a whole number of 0 or more.")
    for name, chosen, choices in (("unit", unit, _UNITS), ("part", part, _PARTS)):
        if chosen not in choices:
            raise InputError(f"Reward reasoning_length, option {name}: {chosen!r} is none of {', '.join(choices)}.")
    if longest is None and not shortest:
        raise InputError(
            "Reward reasoning_length has no limit to judge by. Give it the option longest, shortest or both."
        )
    if longest is None and ramp:
        raise InputError("Reward reasoning_length, option ramp: it leads up to longest, which is not given. Give both.")
    if longest is not None and longest - ramp < shortest:
        raise InputError(
            f"Reward reasoning_length: with longest {longest}, ramp {ramp} and shortest {shortest} every length is "
            "penalised. longest - ramp must be at least shortest."
        )
