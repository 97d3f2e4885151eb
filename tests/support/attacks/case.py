"""A case: a program, its tests, and the verdicts that are right for it.

Most hostile programs keep to one convention: they print `breached` exactly when what they tried has worked, and that is
the output their test expects. So AC is the one verdict that may never come, and the whole program needs no referee.
Secrets are found the same way: the expected output is the secret, which the program can only know by reading it where
it should not. Words like `@PORT@` are filled in by the suite; words for secrets only in tests, never in programs.

Payloads prove a hole and do no lasting harm: bombs are bounded, foreign processes get a signal that is ignored, and
what would outlive its judgement ends by itself after two minutes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BREACHED: tuple[Mapping[str, Any], ...] = ({"input": "", "output": "breached\n"},)
OK: tuple[Mapping[str, Any], ...] = ({"input": "", "output": "ok\n"},)
# Eight runs of one program, some of them in the same warm process: what one has left, the next must not find.
AGAIN: tuple[Mapping[str, Any], ...] = tuple({"input": f"{run}\n", "output": "again\n"} for run in range(1, 9))
# The program tried, failed, and said so (WA), or fell over the refusal (RE).
HELD = "WA RE"
# The same, or it was still trying when its time was over.
STUCK = "WA RE TLE"
# Small, so that the suite is quick; wall_s is generous, for a busy machine.
LIMITS = {"time_s": 0.5, "wall_s": 2.0, "memory_mb": 128, "output_kb": 1024, "processes": 16, "compile_time_s": 8.0}
# For a program that is only to be stopped: whatever it tries with its time, it has tried by then.
SPINS = {"time_s": 0.2}


@dataclass(frozen=True)
class Case:
    """One program with its tests. `allowed` is a set of verdicts, written "WA RE": for all tests, or one a test."""

    name: str
    why: str
    program: str
    tests: Sequence[Mapping[str, Any]] = BREACHED
    allowed: str | tuple[str, ...] = HELD
    language: str = "python"
    limits: Mapping[str, float] = field(default_factory=dict)
    entry_point: str | None = None
    signature: str | None = None
    checker: str | None = None
    comparison: str | None = None
    # "numpy" or "x86_64": what the machine must have for the case to mean anything.
    needs: str | None = None

    def allowed_for(self, number: int) -> frozenset[str]:
        allowed = self.allowed if isinstance(self.allowed, str) else self.allowed[number]
        return frozenset(allowed.split())

    def only_spins(self) -> bool:
        """Whether nothing is right for it but to run out of time."""
        return all(self.allowed_for(number) == {"TLE"} for number in range(len(self.tests)))

    def surprises(self, verdicts: Sequence[str]) -> list[str]:
        """What is wrong with these verdicts, a line a test; nothing where all are right."""
        if len(verdicts) != len(self.tests):
            return [f"{len(self.tests)} tests, {len(verdicts)} verdicts"]
        return [
            f"test {number}: {verdict}, right would be {' or '.join(sorted(self.allowed_for(number)))}"
            for number, verdict in enumerate(verdicts)
            if verdict not in self.allowed_for(number)
        ]


def block(text: str) -> str:
    """The text of an indented block, as it would stand in a file of its own."""
    return textwrap.dedent(text).lstrip("\n")


def asserts(*statements: str) -> tuple[dict[str, str], ...]:
    """Tests that are Python statements."""
    return tuple({"assert": block(statement)} for statement in statements)


def attempt(body: str) -> str:
    """A Python program that prints `breached` if nothing in the body raises; `must(…)` raises unless its word is true.

    It calls itself "hostile", and its children inherit the name: so the suite finds them if they are left over.
    """
    return (
        "import ctypes, errno, os, signal, sys, time\n"
        "def must(it):\n    if not it: raise OSError('not so')\n"
        "def libc(name, *words):\n"
        "    done = getattr(ctypes.CDLL(None, use_errno=True), name)(*words)\n"
        "    if done == -1: raise OSError(ctypes.get_errno(), name)\n    return done\n"
        "try: libc('prctl', 15, b'hostile', 0, 0, 0)\nexcept Exception: pass\n"
        "def attack():\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n"
        "try:\n    attack()\n"
        "except BaseException as error:\n    print('held:', repr(error)[:200])\n"
        "else:\n    print('breached')\n"
    )


def attempt_cpp(body: str, head: str = "") -> str:
    """The same in C++: the body is that of `bool attack()`."""
    return (
        "#include <cerrno>\n#include <initializer_list>\n#include <csignal>\n#include <cstdio>\n#include <cstdlib>\n"
        "#include <cstring>\n"
        "#include <fcntl.h>\n#include <sys/mman.h>\n#include <sys/prctl.h>\n#include <sys/syscall.h>\n"
        "#include <sys/wait.h>\n"
        "#include <unistd.h>\n" + textwrap.dedent(head).strip("\n") + "\n"
        "static bool attack() {\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n}\n"
        'int main() { prctl(PR_SET_NAME, "hostile"); puts(attack() ? "breached" : "held"); }\n'
    )
