"""Match an answer with its reference whatever its form: more generous than the metric.

It answers one question: of the answers that the metric calls wrong, how many are right but in another form? A base
model often knows answers that it doesn't put into the form; what it then gains by training is the form. It is too
generous to train against.

A completion matches if any of these holds:
- the metric calls it right;
- `rlvr.verifiers.math` reads the gold from it in any notation ("The answer is 18." as well as "#### 18"), whatever
  options the recipe's own rewards have;
- the gold is a number, and the last number of the model's own turn is that number, whatever stands around it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlvr.verifiers.completion_text import own_turn
from rlvr.verifiers.math.grader import check_answers
from rlvr.verifiers.math.numbers import read_number

_NUMBER = re.compile(r"[-−]?[0-9]+(?:[,.][0-9]+)*(?:/[0-9]+)?")
TAIL_LENGTH = 2000  # characters of a turn in which its last number is searched


def match_leniently(
    texts: Sequence[str], correct: Sequence[bool | None], *, final_answer: Sequence[object]
) -> list[bool | None]:
    """Say whether each completion is right whatever its form; None where there is no gold in text, or no verdict.

    Evaluation calls the function of this name in the metric's file (rlvr/scoring/registry.py).

    Args:
        texts, final_answer: the completions and their golds.
        correct: the verdicts of the metric.
    """
    matches = [verdict if isinstance(gold, str) else None for gold, verdict in zip(final_answer, correct, strict=True)]
    unmatched = []
    for row, match in enumerate(matches):
        if match is False:
            matches[row] = last_number_is(texts[row], str(final_answer[row]))
            unmatched += [] if matches[row] else [row]
    verdicts = check_answers([texts[row] for row in unmatched], [str(final_answer[row]) for row in unmatched])
    for row, verdict in zip(unmatched, verdicts, strict=True):
        matches[row] = bool(verdict.correct)
    return matches


def last_number_is(text: str, gold: str) -> bool:
    """Whether the last number of the model's own turn is the gold."""
    expected = read_number(gold)
    numbers = _NUMBER.findall(own_turn(text)[-TAIL_LENGTH:])
    return expected is not None and bool(numbers) and read_number(numbers[-1]) == expected
