"""Resource limits of one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlvr.errors import InputError, Problem


class SandboxUnavailable(InputError):
    """Programs or compilers can't be confined on this machine, so nothing was judged."""

    def __init__(
        self, message: str = "", *, kind: str = "sandbox-unavailable", problems: Sequence[Problem] = ()
    ) -> None:
        super().__init__(message, kind=kind, problems=problems)


@dataclass(frozen=True)
class Limits:
    """What a program may use in one test, and what its compiler may use."""

    time_s: float = 2.0  # CPU seconds of all threads together. More is TLE, whatever else runs on the machine
    # Wall-clock seconds in which the program neither computes nor waits for a processor: it sleeps, or waits for input
    # that never comes. More is TLE. None: twice time_s plus 1.
    wall_s: float | None = None
    memory_mb: float = 256.0  # largest resident memory, the interpreter's included. More is MLE
    output_kb: int = 16384  # size of standard output, and of standard error
    # Threads at once; a program can have no other processes. Enforced only where each program runs as a separate user.
    # Elsewhere the memory limit alone bounds them.
    processes: int = 32
    compile_time_s: float = 15.0  # CPU seconds of the compiler

    def __post_init__(self) -> None:
        for name, low, high in (
            ("time_s", 0.01, 3600),
            ("wall_s", 0.01, 36000),
            ("memory_mb", 16, 1 << 20),
            ("output_kb", 0, 1 << 20),
            ("processes", 1, 4096),
            ("compile_time_s", 0.1, 3600),
        ):
            value = getattr(self, name)
            if value is None and name == "wall_s":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise InputError(
                    f"Limits: {name} is {value!r}. Use a number from {low} to {high}.", kind="invalid-limit", key=name
                )

    @property
    def idle_s(self) -> float:
        """`wall_s`, or its default."""
        return self.wall_s if self.wall_s is not None else 2 * self.time_s + 1

    @property
    def max_wall_s(self) -> float:
        """Wall-clock seconds after which a program is stopped even if it only waits for a processor."""
        return 12 * (self.idle_s + self.time_s)
