"""A second reading of an answer, beside the metric's: is it right, whatever its form?

It is more generous than any verifier that is trained against should be, and is for one question only: of what the
metric calls wrong, how much is wrong, and how much is only not written as it was asked for? A base model often knows
answers that it doesn't put into the form; what it then gains by training is the form.

A completion is right in this reading where any of these is so:
- the metric says so;
- `rlvr.verifiers.math` reads the gold from it in any notation ("The answer is 18." as well as "#### 18"), whatever
  options the recipe's own rewards have;
- the gold is a number, and the last number of the model's own turn is that number, whatever stands around it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlvr.verifiers.math import check_answers, own_turn
from rlvr.verifiers.math.numbers import read_number

_NUMBER = re.compile(r"[-−]?[0-9]+(?:[,.][0-9]+)*(?:/[0-9]+)?")
LAST = 2000  # characters of a turn; its last number stands in these or is none


def lenient_reading(texts: Sequence[str], golds: Sequence[object], correct: Sequence[bool | None]) -> list[bool | None]:
    """Whether each completion is right, whatever its form; None where there is no gold in text, or no verdict.

    Args:
        texts, golds: the completions and their column `final_answer`.
        correct: what the metric said.
    """
    found = list(correct)
    asked = [
        place
        for place, (gold, verdict) in enumerate(zip(golds, correct, strict=True))
        if isinstance(gold, str) and verdict is False
    ]
    last = [place for place in asked if last_number_is(texts[place], str(golds[place]))]
    for place in last:
        found[place] = True
    rest = [place for place in asked if not found[place]]
    verdicts = check_answers([texts[place] for place in rest], [str(golds[place]) for place in rest])
    for place, verdict in zip(rest, verdicts, strict=True):
        found[place] = bool(verdict.correct)
    return [verdict if isinstance(gold, str) else None for verdict, gold in zip(found, golds, strict=True)]


def last_number_is(text: str, gold: str) -> bool:
    """Whether the last number of the model's own turn is the gold."""
    wanted = read_number(gold)
    numbers = _NUMBER.findall(own_turn(text)[-LAST:])
    return wanted is not None and bool(numbers) and read_number(numbers[-1]) == wanted
