"""Penalize completions that are too long or too short: 0 within the limits, down to -1 outside.

The upper limit is DAPO's soft over-long punishment (arXiv 2503.14476, equation 13; L_max is `longest`, L_cache is
`ramp`):

    0                                   up to longest - ramp
    (longest - ramp - length) / ramp    from there to longest
    -1                                  above

The lower limit is (length - shortest) / shortest below `shortest`.

`trl.rewards.get_soft_overlong_punishment` gives the same numbers for tokens. It needs the trainer's `completion_ids`,
which an evaluation lacks. This reward also counts words, characters or thoughts alone, and has a lower limit.

Exploits: padding satisfies a lower limit (use `repetition` and a small weight); signs between letters change the number
of words; thinking after </think> evades a limit on thoughts. A completion without think tags counts as thoughts. Right
and wrong answers are penalized equally; `gate` restricts the penalty.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from rlvr import InputError
from rlvr.verifiers.completion_text import full_text, prompt_opens_think
from rlvr.verifiers.words import iterate_words

# Estimate for callers without token ids: usual for English, too high for code or Chinese.
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
    """Return 0 for a length within the limits, less outside, at least -1.

    Args:
        completions: strings, or lists of chat messages. The whole text counts, an invented next problem included.
        completion_ids: the tokens of each completion, passed by the trainer.
        longest: the length above which the penalty is -1; by default there is no upper limit.
        ramp: the number of units below `longest` over which the penalty grows.
        shortest: the length below which there is a penalty; 0 for no lower limit.
        unit: unit of these numbers. Without `completion_ids`, as in evaluation, four characters count as a token.
            `rlvr.verifiers.words` defines words of all scripts.
        part: "all", or "thoughts": the text between <think> and </think>; the prompt may contain <think>. Tokens of a
            part are its share of the characters.

    Returns:
        From 0 down to -1 for each completion.

    Raises:
        InputError: an option is invalid, no length is without penalty, or the lists differ in length.
    """
    _check(longest, ramp, shortest, unit, part)
    for name, values in (("prompts", prompts), ("completion_ids", completion_ids)):
        if values is not None and len(values) != len(completions):
            raise InputError(
                f"Reward reasoning_length: {len(values)} {name} for {len(completions)} completions. Pass one each.",
                kind="length-mismatch",
                key=name,
            )
    return [
        _score(
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
    """Explain the reward of `reasoning_length`, one sentence a step; the last one is the reward.

    Args: as `reasoning_length`, for one row.
    """
    _check(longest, ramp, shortest, unit, part)
    tokens = None if completion_ids is None else len(completion_ids)
    reward, steps = _score(completion, tokens, prompt_opens_think(prompt), longest, ramp, shortest, unit, part)
    return [*steps, f"Reward: {reward:g}"]


def _score(
    completion: Any,
    tokens: int | None,
    opened: bool,
    longest: int | None,
    ramp: int,
    shortest: int,
    unit: str,
    part: str,
) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    text = full_text(completion, think_opened=opened)
    counted = _thoughts(text, opened) if part == "thoughts" else text
    part_name = "the thoughts" if part == "thoughts" else "the completion"
    if unit == "characters":
        length = len(counted)
    elif unit == "words":
        length = sum(1 for _ in iterate_words(counted))
    elif tokens is None:
        length = math.ceil(len(counted) / CHARACTERS_PER_TOKEN)
    else:
        # Special tokens, such as the end of the turn, count with the text.
        length = tokens if part == "all" or not text else math.ceil(tokens * len(counted) / len(text))
    about = "about " if unit == "tokens" and (tokens is None or part != "all") else ""
    steps = [f"Counted {about}{length:,} {unit} in {part_name}."]

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
    """Return the text between think tags, the complement of `without_thinking`; all of a text without tags."""
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
            raise _option_error(name, f"{value!r} is not a whole number of 0 or more.")
    for name, chosen, choices in (("unit", unit, _UNITS), ("part", part, _PARTS)):
        if chosen not in choices:
            raise _option_error(name, f"{chosen!r} is none of {', '.join(choices)}.")
    if longest is None and not shortest:
        raise _option_error("longest", "there is no limit. Set longest, shortest or both.")
    if longest is None and ramp:
        raise _option_error("ramp", "it requires longest. Set both.")
    if longest is not None and longest - ramp < shortest:
        raise _option_error(
            "longest",
            f"with longest {longest}, ramp {ramp} and shortest {shortest} every length is penalized. Keep longest - "
            "ramp at least at shortest.",
        )


def _option_error(option: str, problem: str) -> InputError:
    return InputError(f"Reward reasoning_length, option {option}: {problem}", kind="invalid-value", key=option)
