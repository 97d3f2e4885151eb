"""Judge model-written programs: compile and run them in the sandbox, and compare their output.

    judgement = judge("print(sum(map(int, input().split())))", language="python",
                      tests=[{"input": "1 2", "output": "3"}])
    judgement.score, judgement.verdicts     1.0, ["AC"]

A program's process never holds an expected output: the comparison happens in this process. docs/verifiers.md says what
programs can't do, and by which mechanism. Imports neither torch nor trl.
"""

from __future__ import annotations

from rlvr.sandbox.capabilities import detect_capabilities
from rlvr.sandbox.limits import Limits, SandboxUnavailable
from rlvr.verifiers.code.judge import judge, judge_many
from rlvr.verifiers.code.scheduler import close, executor_count
from rlvr.verifiers.code.types import VERDICTS, Judgement, Submission

__all__ = [
    "VERDICTS",
    "Judgement",
    "Limits",
    "SandboxUnavailable",
    "Submission",
    "close",
    "detect_capabilities",
    "executor_count",
    "judge",
    "judge_many",
]
