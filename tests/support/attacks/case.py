"""A case: a program, its tests, and the verdicts that are allowed for it.

Most hostile programs print `breached` if what they tried has worked, and their test expects that output. So AC must
never occur. For stolen secrets the expected output is the secret, which the program can only know by reading it. The
suite fills in placeholders such as `@PORT@`; placeholders of secrets only in tests, never in programs.

Payloads prove a hole without lasting harm: bombs are bounded, foreign processes get a signal that they ignore, and
what would outlive its judgement ends by itself after two minutes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import yaml

BREACHED: tuple[Mapping[str, Any], ...] = ({"input": "", "output": "breached\n"},)
OK: tuple[Mapping[str, Any], ...] = ({"input": "", "output": "ok\n"},)
# Eight runs of one program, some in the same warm process: no run may find what an earlier one left.
REPEATED_RUNS: tuple[Mapping[str, Any], ...] = tuple({"input": f"{run}\n", "output": "again\n"} for run in range(1, 9))
# The attempt was refused: the program reports it (WA) or fails (RE).
CONTAINED = "WA RE"
# The same, or it was still trying at its time limit.
CONTAINED_OR_TIMEOUT = "WA RE TLE"
# Small, so that the suite is fast.
LIMITS = {"time_s": 0.5, "wall_s": 2.0, "memory_mb": 128, "output_kb": 1024, "processes": 16, "compile_time_s": 8.0}
# For programs that only have to be stopped.
SHORT_TIME = {"time_s": 0.2}


@dataclass(frozen=True)
class Case:
    """One program with its tests. `allowed` is a set of verdicts, written "WA RE": for all tests, or one a test."""

    name: str
    why: str
    program: str
    tests: Sequence[Mapping[str, Any]] = BREACHED
    allowed: str | tuple[str, ...] = CONTAINED
    language: str = "python"
    limits: Mapping[str, float] = field(default_factory=dict)
    entry_point: str | None = None
    signature: str | None = None
    checker: str | None = None
    comparison: str | None = None
    # "numpy" or "x86_64": what the machine must have.
    needs: str | None = None

    def allowed_for(self, number: int) -> frozenset[str]:
        allowed = self.allowed if isinstance(self.allowed, str) else self.allowed[number]
        return frozenset(allowed.split())

    def time_limits(self) -> dict[str, float]:
        """Short for a program that only has to be stopped, long for what must not be: the machine may be busy."""
        verdicts = frozenset[str]().union(*map(self.allowed_for, range(len(self.tests))))
        limits = SHORT_TIME if verdicts == {"TLE"} else {} if "TLE" in verdicts else {"wall_s": 30.0}
        return limits if "CE" in verdicts else {**limits, "compile_time_s": 60.0}

    def unexpected_verdicts(self, verdicts: Sequence[str]) -> list[str]:
        """Describe the verdicts that are not allowed, one line per test."""
        if len(verdicts) != len(self.tests):
            return [f"{len(self.tests)} tests, {len(verdicts)} verdicts"]
        return [
            f"test {number}: {verdict}, allowed: {' or '.join(sorted(self.allowed_for(number)))}"
            for number, verdict in enumerate(verdicts)
            if verdict not in self.allowed_for(number)
        ]


def read_cases(
    text: str,
    *,
    make: Callable[..., Case] = Case,
    wrap: Callable[[str], str] = str,
    named: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> list[Case]:
    """Read cases from a text of programs, each below a line `== name: why`.

    Lines `-- key: value, …` may follow with the case's own options, in YAML: fields of `Case`, `plain: true` for a
    program that is not wrapped, or `input` and `output` of its only test. After a line `--` come tests that are
    statements: a line each, or a paragraph each where one has several lines.

    Args:
        make: makes a case from its name, its reason, its program and its options.
        wrap: makes a program of what stands in the text.
        named: values that `tests` of a case names.
        options: of every case, unless it has others.
    """
    cases = []
    for part in re.split(r"^== ", block(text), flags=re.MULTILINE)[1:]:
        head, _, program = part.partition("\n")
        written, program = re.match(r"((?:-- [^\n]*\n)*)(.*)", program, re.DOTALL).groups()  # type: ignore[union-attr]
        own: dict[str, Any] = yaml.safe_load("{" + re.sub(r"^-- ", "", written, flags=re.MULTILINE) + "}")
        program, _, statements = program.partition("\n--\n")
        if "output" in own:
            own["tests"] = ({"input": own.pop("input", ""), "output": own.pop("output")},)
        elif statements:
            own["tests"] = asserts(*_statements(statements))
        elif isinstance(own.get("tests"), str):
            own["tests"] = named[own["tests"]]
        program = program.strip("\n") + "\n"
        name, _, why = head.partition(": ")
        cases.append(make(name, why, program if own.pop("plain", False) else wrap(program), **{**options, **own}))
    return cases


def _statements(text: str) -> Iterator[str]:
    for paragraph in text.strip("\n").split("\n\n"):
        lines = paragraph.split("\n")
        yield from lines if all(line.startswith("assert ") for line in lines) else [paragraph]


def block(text: str) -> str:
    """Dedent the text of a program."""
    return textwrap.dedent(text).lstrip("\n")


def asserts(*statements: str) -> tuple[dict[str, str], ...]:
    """Return tests that are Python statements."""
    return tuple({"assert": block(statement)} for statement in statements)


def attempt(body: str) -> str:
    """Return a Python program that prints `breached` if nothing in the body raises; `must(x)` raises unless x is true.

    It names its process "hostile", and its children inherit the name, so that the suite finds remaining ones.
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


_CPP_HEADERS = """
    arpa/inet.h cerrno csignal cstdio cstdlib cstring dirent.h fcntl.h initializer_list sys/mman.h sys/prctl.h
    sys/ptrace.h sys/resource.h sys/socket.h sys/syscall.h sys/uio.h sys/un.h sys/wait.h unistd.h
"""


def attempt_cpp(body: str) -> str:
    """Return the same in C++; the body is that of `bool attack()`."""
    return (
        "".join(f"#include <{header}>\n" for header in _CPP_HEADERS.split())
        + "static bool attack() {\n"
        + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
        + "\n}\n"
        'int main() { prctl(PR_SET_NAME, "hostile"); puts(attack() ? "breached" : "held"); }\n'
    )
