"""Alias of the documented names of rlvr.verifiers.code, for existing code. New code uses `from rlvr import judge`.

The module is callable: once it is imported, Python makes `from rlvr import judge` return it instead of the function.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rlvr.verifiers.code import (
    VERDICTS,
    Judgement,
    Limits,
    SandboxUnavailable,
    Submission,
    detect_capabilities,
    judge,
    judge_many,
)

rungs = detect_capabilities  # the former name

__all__ = ["VERDICTS", "Judgement", "Limits", "SandboxUnavailable", "Submission", "judge", "judge_many", "rungs"]


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Judgement:
        return judge(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
