"""Honest cases: every test passes by default, with the limits of a usual task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.attacks.case import Case

LIMITS = {"time_s": 2.0, "wall_s": 30.0, "memory_mb": 256, "output_kb": 16384, "processes": 32, "compile_time_s": 60.0}


def gives(output: str, stdin: str = "") -> tuple[dict[str, str], ...]:
    """Return one test of standard input and output."""
    return ({"input": stdin, "output": output},)


def honest(
    name: str,
    why: str,
    program: str,
    tests: Sequence[Mapping[str, Any]],
    *,
    allowed: str | tuple[str, ...] = "AC",
    limits: Mapping[str, float] | None = None,
    **more: Any,
) -> Case:
    return Case(name, why, program, tests, allowed, limits={**LIMITS, **(limits or {})}, **more)
