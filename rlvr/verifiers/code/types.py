"""What is asked of the judge and what it answers: limits, submissions, judgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr.sandbox.limits import Limits

AC, WA, TLE, MLE, OLE, RE, CE, SE, SKIP = VERDICTS = ("AC", "WA", "TLE", "MLE", "OLE", "RE", "CE", "SE", "SKIP")

WORDS = {
    "AC": "accepted",
    "WA": "wrong answer",
    "TLE": "time limit exceeded",
    "MLE": "memory limit exceeded",
    "OLE": "output limit exceeded",
    "RE": "runtime error",
    "CE": "does not compile",
    "SE": "the sandbox failed",
    "SKIP": "not run",
}

LARGEST_SOURCE = 1 << 20


@dataclass(frozen=True)
class Submission:
    """One program and what it is judged by; the arguments of `judge`."""

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
    sample: int | None = None
    seed: int = 0
    allow_weak_sandbox: bool = False


@dataclass
class Judgement:
    """What became of a submission.

    Attributes:
        verdicts: one a test, in the tests' order: AC (passed), WA (wrong answer), TLE (time), MLE (memory), OLE (too
            much output), RE (runtime error: raised, a signal, an exit status other than 0), CE (does not compile), SE
            (the sandbox itself failed), SKIP (not run, because an early stop or a sample was asked for).
        reasons: a few words a test that is not AC. They may quote expected outputs: not for the eyes of a policy.
        cpu_s: seconds of CPU time a test, compilation not included.
        memory_mb: largest resident memory a test.
        stderr: the end of what each test's run wrote to its standard error.
        compile_output: what the compiler said.
        sampled: indexes of the tests that were run, where only a sample was.
    """

    verdicts: list[str]
    reasons: list[str]
    cpu_s: list[float]
    memory_mb: list[float]
    stderr: list[str]
    compile_output: str = ""
    compile_s: float = 0.0
    sampled: list[int] | None = None

    @property
    def score(self) -> float:
        """The fraction of the tests passed; of a sample, where only that was run. 0 where there was no test."""
        counted = self.verdicts if self.sampled is None else [self.verdicts[index] for index in self.sampled]
        return sum(verdict == AC for verdict in counted) / len(counted) if counted else 0.0

    @property
    def sandbox_failed(self) -> bool:
        """Whether a test could not be run, through no fault of the program: its score says nothing."""
        return SE in self.verdicts

    @property
    def feedback(self) -> str:
        """The verdicts in words, the first failure with its reason."""
        if not self.verdicts:
            return "There was no test."
        passed = sum(verdict == AC for verdict in self.verdicts)
        lines = [f"{passed} of {len(self.verdicts)} tests passed."]
        for index, verdict in enumerate(self.verdicts):
            if verdict not in (AC, SKIP):
                reason = f": {self.reasons[index]}" if self.reasons[index] else ""
                lines.append(f"Test {index + 1}: {WORDS[verdict]}{reason}")
                break
        return "\n".join(lines)
