"""Verify mathematical answers: is a completion's final answer equal to the reference answer (gold)?

    check_answer("… so #### The final answer is 1,080", "1080")
    AnswerVerdict(correct=True, extracted='1,080', why="'1,080' is '1080'")

In cases of doubt an answer is wrong:
- Only the model's own turn is read (completion_text.py): no thoughts between <think> tags, nothing after an invented
  next "Question:".
- One answer a turn (extraction.py). It may be repeated, but two different final answers score 0, as do several
  candidates in one ("42 or 41"). A `####` line that is a heading is no answer.
- Numbers are compared exactly, as integers or fractions (numbers.py): 42.0005 is not 42. Only a decimal of ten or more
  digits may be a rounding. A unit, a currency sign or a percent sign is dropped where the gold has none; words that
  change the number are no units.
- Lists, sets, tuples, intervals, matrices, equations and expressions are parsed (parser.py) and compared part by part
  (compare.py). Two expressions with different spellings go to algebra (symbolic.py), in a worker process that is killed
  at its deadline. Expressions that are too expensive to compute are refused (complexity_guard.py).

docs/verifiers.md lists what counts as right. This package imports only the standard library, so reward workers and
servers start fast; only the algebra workers import sympy.
"""

from __future__ import annotations

from rlvr.verifiers.math.grader import DEADLINE_S, check_answer, check_answers
from rlvr.verifiers.math.reference import gold_faults, normalise_gold, row_faults

__all__ = [
    "DEADLINE_S",
    "check_answer",
    "check_answers",
    "gold_faults",
    "normalise_gold",
    "row_faults",
]
