"""Whether a completion's final answer is the gold: found in any usual notation, compared exactly, never stalled.

    check_answer("… so #### The final answer is 1,080", "1080")
    AnswerVerdict(correct=True, extracted='1,080', why="'1,080' is '1080'")

The policies, all of which err on the side of "wrong":
- Only the model's own turn is read (turn.py): not what it thinks aloud between <think> tags, and nothing after the next
  "Question:" that it invents.
- One answer a turn (statements.py). It may be repeated, but every statement of it must be right; two different final
  answers score 0, as do several candidates in one ("42 or 41"). A `####` line that is a heading is no answer.
- Numbers are compared exactly, as integers or fractions (numbers.py): 42.0005 is not 42, and no integer is too long. A
  unit, a currency sign or a percent sign is dropped where the gold has none; words that change the number are no units.
- Lists, sets, tuples, intervals, matrices, equations and expressions are taken apart (forms.py) and compared piece by
  piece (comparing.py). Only what is left, two spellings that may mean the same, is put to algebra (symbolic.py), in a
  process that is killed at its deadline (rlvr/workers/pool.py). What would be dangerous to compute is refused unseen.

docs/math-rewards.md says what counts as right, for people. Nothing outside the standard library is imported here, so
that reward workers and servers start fast; sympy lives in the workers.
"""

from __future__ import annotations

from rlvr.verifiers.completion_text import completion_text, own_turn, without_thinking
from rlvr.verifiers.math.grader import (
    DEADLINE_S,
    MAX_TURN_CHARACTERS,
    AnswerVerdict,
    check_answer,
    check_answers,
    explain_answer,
)
from rlvr.verifiers.math.reference import gold_faults, normalise_gold

__all__ = [
    "DEADLINE_S",
    "MAX_TURN_CHARACTERS",
    "AnswerVerdict",
    "check_answer",
    "check_answers",
    "completion_text",
    "explain_answer",
    "gold_faults",
    "normalise_gold",
    "own_turn",
    "without_thinking",
]
