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
    """How programs are read from completions and judged."""

    # Columns of the data, one value per row. `tests` apart, they may also be one value for all rows, set in the
    # recipe; an empty entry of a column means the default.
    tests: list[Any]  # lists of tests (docs/code-rewards.md), or the same as JSON. None: the row can't be scored
    prefix: list[Any] | str | None = None  # start of the program, given by the prompt (HumanEval)
    checker: list[Any] | str | None = None  # Python source of check(input, output, expected)
    language: list[Any] | str = "python"  # or "cpp", or another name in rlvr/sandbox/languages.py
    entry_point: list[Any] | str | None = None  # the function that tests call
    signature: list[Any] | str | None = None  # of that function, in C++: "int add(int, int)"
    comparison: list[Any] | str | None = None  # of outputs: one of OUTPUT_COMPARISONS in tolerance.py
    tolerance: list[Any] | float | None = None  # of "float"
    time_s: list[Any] | float | None = None  # CPU seconds per test; 2 by default, at most 60
    memory_mb: list[Any] | float | None = None  # memory per test; 256 by default

    # Options, one value for all rows.
    time_factor: float = 1.0  # multiplies every `time_s`, for slow machines or languages
    bare: bool = False  # whether a completion without any block is a program as it stands
    # Whether the prompt has opened <think>. By default read from a prompt that is text. Training and evaluation add the
    # tag that a chat template opens, unless this option is set.
    opened: bool | None = None
    max_timeouts: int | None = None  # after so many timeouts, a program's other tests are not run
    allow_weak_sandbox: bool = False  # run programs where they can't be confined: they can do whatever you can

    def check(self) -> None:
        """Raise InputError if an option is invalid, whatever the rows hold."""
        for name, value in vars(self).items():
            if isinstance(value, list | tuple) and name not in COLUMNS:
                raise InputError(
                    f"option {name} is a list. If the data has a column {name}, rename it: it replaces the option.",
                    kind="column-hides-option",
                    key=name,
                )
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
