"""GRPO with verifiable rewards on Hugging Face TRL: the library behind run_grpo.py.

docs/reference/python-api.md describes these public names. They load on first use, so `import rlvr` loads neither torch
nor TRL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlvr.public_names import MODULES

if TYPE_CHECKING:
    from rlvr.config.recipe import Recipe as Recipe
    from rlvr.config.recipe import load_recipe as load_recipe
    from rlvr.data.task import Task as Task
    from rlvr.errors import InputError as InputError
    from rlvr.errors import Problem as Problem
    from rlvr.sandbox.limits import Limits as Limits
    from rlvr.scoring.registry import load_rewards as load_rewards
    from rlvr.scoring.registry import load_tasks as load_tasks
    from rlvr.scoring.reward import Reward as Reward
    from rlvr.verifiers.code.judge import judge as judge
    from rlvr.verifiers.code.judge import judge_many as judge_many
    from rlvr.verifiers.code.program_run import ProgramRun as ProgramRun
    from rlvr.verifiers.code.program_run import run_program as run_program
    from rlvr.verifiers.code.types import Judgement as Judgement
    from rlvr.verifiers.code.types import Submission as Submission
    from rlvr.verifiers.completion_text import completion_text as completion_text
    from rlvr.verifiers.completion_text import own_turn as own_turn
    from rlvr.verifiers.math.grader import AnswerVerdict as AnswerVerdict
    from rlvr.verifiers.math.grader import check_answer as check_answer
    from rlvr.verifiers.math.grader import check_answers as check_answers

__all__ = [*MODULES]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
