"""Penalize repetition: 0 if no n-gram of words recurs, down to -`max_penalty` if all recur.

    reward = -max_penalty * (recurring n-grams) / (n-grams)

That is the n-gram penalty of arXiv 2502.03373, appendix C.2 (1 - distinct n-grams / n-grams, times the penalty), which
`trl.rewards.get_repetition_penalty_reward` computes on token ids. This reward uses words:

- It needs no `completion_ids`, so it works in evaluation and on files, and does not depend on the tokenizer. Case and
  punctuation do not hide a repetition.
- Calculations may recur. The signs of "2 + 1 = 3" are no words, its numbers are, so lines with different numbers
  differ. An n-gram of numbers and single letters may occur `FREE_CALCULATIONS` times.
- rlvr/verifiers/words.py cuts text without spaces into words.
- Eight signs in a row ("!!!!!!!!", "= = = = = = = =") count as a word, as do 32 spaces or line breaks: a collapsed
  policy writes nothing else.

Exploits: fewer than n words, a loop of at most n words with a counter in it, synonyms for every other word, and
nonsense that does not recur. The penalty also hits a refrain, a grid of equal cells, and code with repeated blocks. Use
a small `max_penalty`, and a larger `n` for code.
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
    """Return the share of recurring n-grams in the whole text, thoughts included, as a penalty.

    Args:
        completions: strings, or lists of chat messages. The first 100,000 characters are read.
        n: words of an n-gram, 1 to 32. A small n penalizes ordinary phrases, a large n only long passages. The human
            solutions of GSM8K's test split lose 0.024 on average with 4, 0.011 with 5 and 0.005 with 6.
        max_penalty: penalty of a text of repetitions only, as a positive number.

    Returns:
        From 0 down to -`max_penalty` for each completion; 0 for fewer than `n` words.

    Raises:
        InputError: an option is out of its range.
    """
    _check(n, max_penalty)
    return [_score(completion, n, max_penalty)[0] for completion in completions]


def explain(completion: Any, *, n: int = 5, max_penalty: float = 1.0, **kwargs: Any) -> list[str]:
    """Explain the reward of `repetition`, one sentence a step; the last one is the reward.

    Args: as `repetition`, for one completion.
    """
    _check(n, max_penalty)
    reward, steps = _score(completion, n, max_penalty)
    return [*steps, f"Reward: {reward:g}"]


def _score(completion: Any, n: int, max_penalty: float) -> tuple[float, list[str]]:
    """Return the reward and the sentences that explain it."""
    text = full_text(completion)[:MAX_CHARACTERS]
    # Spaces between signs do not matter.
    words = ["".join(match[0].split()).casefold() for match in _WORD_OR_SIGNS.finditer(text)]
    ngrams = Counter(zip(*(words[start:] for start in range(n)), strict=False))
    total = len(words) - n + 1
    steps = [f"Read {len(words):,} words and numbers."]
    if total < 1:
        return 0.0, [*steps, f"That is fewer than {n}, so nothing can recur."]
    excess = {ngram: count - free for ngram, count in ngrams.items() if count > 1 and count > (free := _free(ngram))}
    repeated = sum(excess.values())
    steps.append(f"{repeated:,} of {total:,} n-grams of {n} words recur.")
    if excess:
        worst = max(excess, key=lambda ngram: excess[ngram])
        steps.append(f"The most frequent, {ngrams[worst]:,} times: {' '.join(worst)!r}.")
    return (-max_penalty * repeated / total if repeated else 0.0), steps


def _free(ngram: tuple[str, ...]) -> int:
    """Return how often an n-gram may occur before it counts as repeated."""
    calculation = any(word[:1].isdigit() for word in ngram) and all(
        len(word) == 1 or word[:1].isdigit() for word in ngram
    )
    return FREE_CALCULATIONS if calculation else 1


def _check(n: int, max_penalty: float) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= 32:
        raise InputError(
            f"Reward repetition, option n: {n!r} is not a whole number from 1 to 32. Try 5.",
            kind="invalid-value",
            key="n",
        )
    if isinstance(max_penalty, bool) or not isinstance(max_penalty, int | float) or not 0 <= max_penalty < math.inf:
        raise InputError(
            f"Reward repetition, option max_penalty: {max_penalty!r} is not a number of 0 or more. "
            "Write it without a minus, like 1.0.",
            kind="invalid-value",
            key="max_penalty",
        )
