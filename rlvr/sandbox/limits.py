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
    """What a program may use in one test, and what its compiler may use.

    Attributes:
        time_s: CPU seconds of all threads together. More is TLE.
        wall_s: Seconds of the clock in which the program sleeps or waits for input. More is TLE. Default: twice time_s
            plus 1.
        memory_mb: Megabytes of resident memory, including the interpreter. More is MLE.
        output_kb: Kilobytes of standard output, and as many of standard error. More is OLE.
        processes: Threads at once. A program can have no other processes. The limit is enforced only where each program
            runs as a separate user. Elsewhere only the memory limit bounds them.
        compile_time_s: CPU seconds of the compiler. More is CE.
    """

    time_s: float = 2.0
    wall_s: float | None = None
    memory_mb: float = 256.0
    output_kb: int = 16384
    processes: int = 32
    compile_time_s: float = 15.0

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
