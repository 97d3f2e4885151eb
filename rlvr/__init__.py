"""GRPO with verifiable rewards on Hugging Face TRL: the library behind run_grpo.py.

These are the public names; docs/api.md describes them. They load on first use, so `import rlvr` loads neither torch
nor TRL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlvr.public_names import MODULES

if TYPE_CHECKING:
    from rlvr.config.recipe import Recipe, load_recipe
    from rlvr.data.task import Task
    from rlvr.errors import InputError, Problem
    from rlvr.evaluation.evaluate import evaluate
    from rlvr.sandbox.limits import Limits
    from rlvr.scoring.registry import load_rewards, load_tasks
    from rlvr.scoring.reward import Reward
    from rlvr.verifiers.code.judge import judge, judge_many
    from rlvr.verifiers.code.program_run import ProgramRun, run_program
    from rlvr.verifiers.code.types import Judgement, Submission
    from rlvr.verifiers.completion_text import completion_text, own_turn
    from rlvr.verifiers.math.grader import AnswerVerdict, check_answer, check_answers

__all__ = [
    "AnswerVerdict",
    "InputError",
    "Judgement",
    "Limits",
    "Problem",
    "ProgramRun",
    "Recipe",
    "Reward",
    "Submission",
    "Task",
    "check_answer",
    "check_answers",
    "completion_text",
    "evaluate",
    "judge",
    "judge_many",
    "load_recipe",
    "load_rewards",
    "load_tasks",
    "own_turn",
    "run_program",
]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
