"""Submissions and judgements: input and output of the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr.sandbox.limits import Limits

AC, WA, TLE, MLE, OLE, RE, CE, SE, SKIP = VERDICTS = ("AC", "WA", "TLE", "MLE", "OLE", "RE", "CE", "SE", "SKIP")

VERDICT_NAMES = {
    "AC": "accepted",
    "WA": "wrong answer",
    "TLE": "time limit exceeded",
    "MLE": "memory limit exceeded",
    "OLE": "output limit exceeded",
    "RE": "runtime error",  # an exception, a signal, an exit status other than 0
    "CE": "does not compile",
    "SE": "the sandbox failed",
    "SKIP": "not run",  # because of an early stop or too many timeouts
}

MAX_SOURCE_BYTES = 1 << 20


@dataclass(frozen=True)
class Submission:
    """One program and its tests: the arguments of `judge`."""

    program: str
    language: str
    tests: Sequence[Mapping[str, Any]]
    limits: Limits = field(default_factory=Limits)
    entry_point: str | None = None
    signature: str | None = None
    checker: str | None = None
    comparison: str = "lines"
    tolerance: float = 1e-6
    stop_early: bool = False
    max_timeouts: int | None = None
    allow_weak_sandbox: bool = False


@dataclass
class Judgement:
    """The result of a submission. The lists have one entry per test, in order.

    Attributes:
        verdicts: AC, WA, TLE, MLE, OLE, RE, CE, SE or SKIP.
        reasons: Why a verdict is not AC. A reason may quote expected outputs, so a policy must not see it.
        cpu_s: CPU seconds without compilation.
        memory_mb: Largest resident memory.
        stderr: The end of standard error.
        compile_output: Messages of the compiler, or why it could not work.
        compile_s: CPU seconds of the compiler.
    """

    verdicts: list[str]
    reasons: list[str]
    cpu_s: list[float]
    memory_mb: list[float]
    stderr: list[str]
    compile_output: str = ""
    compile_s: float = 0.0

    @property
    def score(self) -> float:
        """The fraction of the tests that passed; 0 without tests."""
        return self.verdicts.count(AC) / len(self.verdicts) if self.verdicts else 0.0

    @property
    def sandbox_failed(self) -> bool:
        """Whether a test could not be run, through no fault of the program. The score then means nothing."""
        return SE in self.verdicts

    @property
    def feedback(self) -> str:
        """The number of passed tests, the first failure with its reason, and the tests not run after timeouts."""
        if not self.verdicts:
            return "There was no test."
        lines = [f"{self.verdicts.count(AC)} of {len(self.verdicts)} tests passed."]
        for index, verdict in enumerate(self.verdicts):
            if verdict not in (AC, SKIP):
                reason = f": {self.reasons[index]}" if self.reasons[index] else ""
                lines.append(f"Test {index + 1}: {VERDICT_NAMES[verdict]}{reason}")
                break
        skipped = [
            reason for verdict, reason in zip(self.verdicts, self.reasons, strict=True) if verdict == SKIP and reason
        ]
        if skipped:
            lines.append(f"{len(skipped)} tests were not run: {skipped[0]}.")
        return "\n".join(lines)
