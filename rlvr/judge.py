"""Alias of the documented names of rlvr.verifiers.code: `from rlvr import judge` is the way to get them.

The module itself can be called. Once it is imported, it is what `from rlvr import judge` gives, since Python sets an
imported submodule as an attribute of its package.
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
    judge,
    judge_many,
)

__all__ = ["VERDICTS", "Judgement", "Limits", "SandboxUnavailable", "Submission", "judge", "judge_many"]


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Judgement:
        return judge(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
