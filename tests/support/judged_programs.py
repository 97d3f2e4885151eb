"""A program that adds two numbers, its tests, and shorthands for completions and the judge's verdicts."""

from __future__ import annotations

from rlvr.verifiers.code import judge

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
ADD_CPP = "#include <bits/stdc++.h>\nint main() { long long a, b; std::cin >> a >> b; std::cout << a + b << '\\n'; }\n"
SUMS = [{"input": "1 2\n", "output": "3\n"}, {"input": "-4 9\n", "output": "5\n"}]
ONE = [{"input": "", "output": "1"}]


def fenced(code: str, label: str = "python") -> str:
    """A completion with this code."""
    return f"Here it is:\n```{label}\n{code}\n```\n"


def verdicts(program: str, *, language: str = "python", tests: list | None = None, **options: object) -> list[str]:
    """Judge a program by tests, by default that it prints 1."""
    return judge(program, language=language, tests=ONE if tests is None else tests, **options).verdicts
