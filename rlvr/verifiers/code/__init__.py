"""A judge for model-written programs: compiles and runs them, confined, and compares what comes out.

    judgement = judge("print(sum(map(int, input().split())))", language="python",
                      tests=[{"input": "1 2", "output": "3"}])
    judgement.score, judgement.verdicts     1.0, ["AC"]

The program never meets what is expected of it: that stays in this process, which compares. docs/sandbox.md says what a
program can't do and by which means. Importing this pulls in neither torch nor trl.
"""

from __future__ import annotations

from rlvr.sandbox.capabilities import SandboxCapabilities, detect_capabilities
from rlvr.sandbox.limits import Limits, SandboxUnavailable
from rlvr.verifiers.code.judge import judge, judge_many
from rlvr.verifiers.code.scheduler import close, slots
from rlvr.verifiers.code.types import VERDICTS, Judgement, Submission

__all__ = [
    "VERDICTS", "Judgement", "Limits", "SandboxCapabilities", "SandboxUnavailable", "Submission", "close", "judge",
    "judge_many", "detect_capabilities", "slots",
]  # fmt: skip
