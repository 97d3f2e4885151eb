"""Penalize repetition: 0 if no n-gram of words recurs, down to -`max_penalty`.

    reward = -max_penalty * (recurring n-grams) / (n-grams)

The formula is the n-gram penalty of arXiv 2502.03373, appendix C.2. `trl.rewards.get_repetition_penalty_reward`
computes this penalty on the trainer's token ids. This reward counts words, so it also works in evaluation and on files:

- Calculations may recur. The signs of "2 + 1 = 3" are not words, but its numbers are, so lines with different numbers
  differ. An n-gram of numbers and single letters may occur `FREE_CALCULATIONS` times.
- rlvr/verifiers/words.py cuts text without spaces into words.
- Eight signs in a row ("!!!!!!!!", "= = = = = = = =") count as a word. So do 32 spaces or line breaks. A collapsed
  policy writes nothing else.

Known weaknesses: the penalty misses loops of at most n words with a counter, frequent synonyms, and other nonsense
that does not recur. The penalty also hits a refrain, a grid of equal cells, and code with repeated blocks. Use a small
`max_penalty`, and a larger `n` for code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from rlvr import InputError
from rlvr.verifiers.completion_text import full_text
from rlvr.verifiers.words import WORD

MAX_CHARACTERS = 100_000
FREE_CALCULATIONS = 8

_WORD_OR_SIGNS = re.compile(rf"{WORD.pattern} | (?:(?:[^\w\s]|_)\s{{0,2}}){{8}} | \s{{32}}", re.VERBOSE)


def repetition(
    prompts: list[Any],
    completions: list[Any],
    *,
    n: int = 5,
    max_penalty: float = 1.0,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Return the share of recurring n-grams in the whole text, thoughts included, as a penalty.

    Args:
        completions: strings, or lists of chat messages. The first 100,000 characters are read.
        n: words of an n-gram, at least 1. A small n penalizes ordinary phrases. A large n penalizes only long passages.
        max_penalty: penalty of a text of repetitions only, as a positive number. TRL's option is negative.

    Returns:
        From 0 down to -`max_penalty` for each completion. 0 for fewer than `n` words.

    Raises:
        InputError: n or max_penalty is out of its range.
    """
    if n < 1 or max_penalty < 0:
        message = f"Reward repetition: n {n} must be at least 1, and max_penalty {max_penalty} at least 0."
        raise InputError(message, kind="invalid-value", key="n" if n < 1 else "max_penalty")
    scored = [_share(full_text(completion)[:MAX_CHARACTERS], n) for completion in completions]
    if log_extra is not None:
        log_extra("repetition/why", [why for _, why in scored])
    return [-max_penalty * share if share else 0.0 for share, _ in scored]


def _share(text: str, n: int) -> tuple[float, str]:
    """Return the share of recurring n-grams, and a sentence about them."""
    # Spaces between signs do not matter.
    words = ["".join(match[0].split()).casefold() for match in _WORD_OR_SIGNS.finditer(text)]
    ngrams = Counter(zip(*(words[start:] for start in range(n)), strict=False))
    excess = Counter({ngram: times - _free(ngram) for ngram, times in ngrams.items() if times > 1})
    repeated, total = (+excess).total(), max(len(words) - n + 1, 1)
    why = f"{repeated:,} of {total:,} n-grams of {n} words recur."
    if repeated:
        why += f" The worst: {' '.join(excess.most_common(1)[0][0])!r}."
    return repeated / total, why


def _free(ngram: tuple[str, ...]) -> int:
    """Return how often an n-gram may occur before it counts as repeated."""
    calculation = any(word[:1].isdigit() for word in ngram) and all(
        len(word) == 1 or word[:1].isdigit() for word in ngram
    )
    return FREE_CALCULATIONS if calculation else 1
