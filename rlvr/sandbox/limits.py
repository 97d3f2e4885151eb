"""Resource limits of one program."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.errors import InputError


class SandboxUnavailable(InputError):
    """Programs can't be confined on this machine as they must be, or not compiled; nothing was judged."""


@dataclass(frozen=True)
class Limits:
    """What a program may use for one test, and its compiler for all of them.

    Attributes:
        time_s: seconds of CPU time, of all its threads together. This alone makes TLE of a program that computes.
        wall_s: seconds of wall time in which it did not compute and did not wait for a processor either: it slept, or
            waited for what never came. Time in which the machine was busy with other things is not counted. None:
            twice time_s and one more.
        memory_mb: largest resident memory, the interpreter's included.
        output_kb: of its standard output, and as much of its standard error.
        processes: threads at once (a program can have no other processes). Only where each program has a user of its
            own; else the memory limit alone bounds them.
        compile_time_s: seconds of CPU time for the compiler.
    """

    time_s: float = 2.0
    wall_s: float | None = None
    memory_mb: float = 256.0
    output_kb: int = 16384
    processes: int = 32
    compile_time_s: float = 15.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("time_s", 0.01, 3600), ("wall_s", 0.01, 36000), ("memory_mb", 16, 1 << 20), ("output_kb", 0, 1 << 20),
            ("processes", 1, 4096), ("compile_time_s", 0.1, 3600),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is None and name == "wall_s":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise InputError(f"Limits: {name} is {value!r}, but should be a number from {low} to {high}.")

    @property
    def idle_s(self) -> float:
        """`wall_s`, or what stands for it."""
        return self.wall_s if self.wall_s is not None else 2 * self.time_s + 1
