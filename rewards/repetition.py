"""A penalty for saying the same again: 0 where no run of words recurs, towards -`max_penalty` where all of them do.

    reward = -max_penalty * (runs of n words that were there before) / (runs of n words)

That is the n-gram penalty of arXiv 2502.03373, appendix C.2 (1 - distinct n-grams / n-grams, times the penalty), which
`trl.rewards.get_repetition_penalty_reward` computes on token ids. Here it is computed on words, which differs in this:

- It needs no `completion_ids`, so it also works in evaluation and on texts from a file, and two models with different
  tokenizers are measured alike. Case and punctuation do not hide a repetition.
- Calculations may recur. The signs of "2 + 1 = 3" are no words, its numbers are, so lines that differ in a number
  differ; and a run of nothing but numbers and single letters may occur `FREE_CALCULATIONS` times before it counts.
- Text without spaces is cut: two Chinese or Japanese characters are a word, six of Thai, Lao, Burmese or Khmer, and a
  longer word than 24 letters is several. So a loop without spaces is a loop, too.
- Eight signs in a row ("!!!!!!!!", "= = = = = = = =") are a word, and so are 32 spaces or line breaks, as a collapsed
  policy writes nothing else.

What it can be fooled by: saying little (fewer than n words are never penalised), a loop with a counter in it if the
loop is as short as n words, a synonym for every other word, and any nonsense that does not recur. A penalty only takes
away, so no text earns by it. It is also blind to good reasons: a refrain, a grid with the same cells, or code in which
blocks recur are penalised as a loop is. Hence a small `max_penalty`, and a larger `n` for code.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

from rlvr import InputError
from rlvr.verifiers.completion_text import full_text
from rlvr.verifiers.words import WORD

MAX_CHARACTERS = 100_000
FREE_CALCULATIONS = 8

_WORD_OR_SIGNS = re.compile(
    rf"{WORD.pattern} | (?:(?:[^\w\s]|_)\s{{0,2}}){{8}} | \s{{32}}",
    re.VERBOSE,
)


def repetition(
    prompts: list[Any], completions: list[Any], *, n: int = 5, max_penalty: float = 1.0, **kwargs: Any
) -> list[float | None]:
    """The share of recurring runs of words in everything that was written, thoughts included, as a penalty.

    Args:
        completions: strings, or lists of chat messages. The first 100,000 characters are read.
        n: words in a run, from 1 to 32. With fewer, ordinary phrases recur; with more, only long passages count. The
            human solutions of GSM8K's test split lose 0.024 on average with 4, 0.011 with 5 and 0.005 with 6.
        max_penalty: what a text that is nothing but repetition comes close to, as a positive number.

    Returns:
        From 0 down to -`max_penalty` for each completion; 0 for fewer than `n` words.

    Raises:
        InputError: an option out of its range.
    """
    _check(n, max_penalty)
    return [_judge(completion, n, max_penalty)[0] for completion in completions]


def explain(completion: Any, *, n: int = 5, max_penalty: float = 1.0, **kwargs: Any) -> list[str]:
    """Why `repetition` gives this completion its reward: a sentence a step, the last one says the reward.

    Args: as `repetition`, for one completion.
    """
    _check(n, max_penalty)
    reward, steps = _judge(completion, n, max_penalty)
    return [*steps, f"Reward: {reward:g}"]


def _judge(completion: Any, n: int, max_penalty: float) -> tuple[float, list[str]]:
    """The reward, and the sentences that explain it."""
    text = full_text(completion)[:MAX_CHARACTERS]
    # A run of signs may hold spaces or not: what matters is which signs.
    said = ["".join(match[0].split()).casefold() for match in _WORD_OR_SIGNS.finditer(text)]
    runs = Counter(zip(*(said[start:] for start in range(n)), strict=False))
    total = len(said) - n + 1
    steps = [f"Read {len(said):,} words and numbers."]
    if total < 1:
        return 0.0, [*steps, f"That is fewer than {n}, so nothing can recur."]
    again = {run: count - free for run, count in runs.items() if count > 1 and count > (free := _free(run))}
    repeated = sum(again.values())
    steps.append(f"{repeated:,} of {total:,} runs of {n} were there before.")
    if again:
        worst = max(again, key=lambda run: again[run])
        steps.append(f"The most frequent, {runs[worst]:,} times: {' '.join(worst)!r}.")
    return (-max_penalty * repeated / total if repeated else 0.0), steps


def _free(run: tuple[str, ...]) -> int:
    """How often a run may occur before it counts as repeated."""
    calculation = any(word[:1].isdigit() for word in run) and all(len(word) == 1 or word[:1].isdigit() for word in run)
    return FREE_CALCULATIONS if calculation else 1


def _check(n: int, max_penalty: float) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= 32:
        raise InputError(f"Reward repetition, option n: {n!r} is not a whole number from 1 to 32. Try 5.")
    if isinstance(max_penalty, bool) or not isinstance(max_penalty, int | float) or not 0 <= max_penalty < math.inf:
        raise InputError(
            f"Reward repetition, option max_penalty: {max_penalty!r} is not a number of 0 or more. "
            "Write it without a minus, like 1.0."
        )
