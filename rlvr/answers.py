"""Alias of the documented names of rlvr.verifiers.math: `from rlvr import check_answer` is the way to get them."""

from __future__ import annotations

from rlvr.verifiers.completion_text import completion_text, own_turn, without_thinking
from rlvr.verifiers.math import (
    AnswerVerdict,
    check_answer,
    check_answers,
    explain_answer,
    gold_faults,
    normalise_gold,
)

__all__ = [
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
