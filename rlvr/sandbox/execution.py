"""Limits and results of one execution: facts, no verdicts."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of one execution, in the units that the zygote enforces. See `rlvr.sandbox.limits.Limits`."""

    time_s: float
    idle_s: float
    memory_mb: float
    output_bytes: int
    processes: int


@dataclass(frozen=True)
class ExecutionResult:
    """Facts about one execution.

    Attributes:
        status: wait status, as of `os.waitpid`.
        stopped: "cpu" or "idle" if the watchdog killed it for using up that time, else empty.
        output: standard output, cut at the limit.
        output_exceeded: whether standard output or standard error was larger than the limit.
        exchange: what the execution wrote back: a note of one byte, and for calls the encoded result.
    """

    status: int
    stopped: str
    cpu_s: float
    wall_s: float
    memory_mb: float
    output: bytes
    output_exceeded: bool
    stderr: bytes
    exchange: bytes

    @property
    def signal(self) -> int | None:
        """The signal that ended it, or None."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it without the watchdog: sent by itself, or by the kernel when memory ran out."""
        return not self.stopped and self.signal == signal.SIGKILL
