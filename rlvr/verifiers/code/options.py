"""Columns and options that all rewards for programs share, in one table."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from rlvr.errors import InputError

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """How programs are read from completions and judged.

    The first ten are columns of the data with one value per row. All but `tests` may also be options of the recipe. An
    empty entry of a column means the default.

    Attributes:
        tests: Lists of tests (docs/verifiers.md), or the same as JSON. A row with None can't be scored.
        prefix: Start of the program that the prompt gives (HumanEval).
        checker: Python source of check(input, output, expected).
        language: python, cpp, or another name in rlvr/sandbox/languages.py.
        entry_point: The function that tests call.
        signature: Signature of the function in C++: "int add(int, int)".
        comparison: How outputs are compared: lines, tokens, exact, float, unordered or yes_no.
        tolerance: Tolerance of the comparison float.
        time_s: CPU seconds per test, at most 60. Default: 2.
        memory_mb: Megabytes of memory per test. Default: 256.
        time_factor: Factor of every `time_s`, for slow machines or languages.
        bare: Accept a completion without any code block as a program.
        opened: Whether the prompt has opened <think>. By default read from the prompt or the chat template.
        max_timeouts: Number of timeouts after which the other tests of a program are not run.
        allow_weak_sandbox: Run programs where they can't be confined. They can do whatever you can.
    """

    tests: list[Any]
    prefix: list[Any] | str | None = None
    checker: list[Any] | str | None = None
    language: list[Any] | str = "python"
    entry_point: list[Any] | str | None = None
    signature: list[Any] | str | None = None
    comparison: list[Any] | str | None = None
    tolerance: list[Any] | float | None = None
    time_s: list[Any] | float | None = None
    memory_mb: list[Any] | float | None = None

    time_factor: float = 1.0
    bare: bool = False
    opened: bool | None = None
    max_timeouts: int | None = None
    allow_weak_sandbox: bool = False

    def check(self) -> None:
        """Raise InputError if an option is invalid, whatever the rows hold."""
        factor = self.time_factor
        for name, valid, fix in (
            ("max_timeouts", self.max_timeouts is None or is_count(self.max_timeouts), "a number of tests from 1 on"),
            ("time_factor", isinstance(factor, int | float) and 0.01 <= factor <= 100, "a number from 0.01 to 100"),
        ):
            if not valid:
                message = f"option {name} is {getattr(self, name)!r:.60}. Use {fix}."
                raise InputError(message, kind="invalid-limit", key=name)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


COLUMNS = tuple(field.name for field in fields(JudgeOptions) if str(field.type).startswith("list"))


def with_judge_options(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give a function the fields of JudgeOptions as keyword arguments; it receives them as one argument, `options`.

    The signature shows the fields one by one: a recipe's columns and options are checked against it.
    """
    own = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> _Result:
        names = [field.name for field in fields(JudgeOptions) if field.name in kwargs]
        options = JudgeOptions(**{name: kwargs.pop(name) for name in names})
        return function(*args, options=options, **kwargs)

    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(JudgeOptions)
    ]
    merged = [*(parameter for name, parameter in own.parameters.items() if name != "options"), *shared]
    # A stable sort: **kwargs last, the own options first.
    merged.sort(key=lambda parameter: parameter.kind)
    wrapper.__signature__ = own.replace(parameters=merged)  # type: ignore[attr-defined]
    return wrapper
