"""What a row of the data asks of a program, read from columns and options: its tests, its language, its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

from rlvr.errors import InputError
from rlvr.sandbox.languages import compiler_path
from rlvr.sandbox.languages import language as row_of_language
from rlvr.sandbox.limits import Limits
from rlvr.verifiers.code.cases import read_tests
from rlvr.verifiers.code.code_extraction import WHICH, Which
from rlvr.verifiers.code.judge import judge_many
from rlvr.verifiers.code.tolerance import TOLERANCE, check_comparison
from rlvr.verifiers.code.types import Submission

_Value = TypeVar("_Value")

Visibility = Literal["private", "public", "all"]
VISIBILITIES: tuple[Visibility, ...] = ("private", "public", "all")


@dataclass(frozen=True)
class Settings:
    """How completions are read and judged: what the code rewards take beside prompts and completions.

    Columns, one value a row; all but the first two may also be one value for all rows:
        tests: a list of tests (docs/code-rewards.md), the same as JSON, or None: the row gets no reward.
        public_tests: in the same form, those that the prompt shows.
        prefix: the beginning of the program that the prompt gives; see `extraction.with_prefix`.
        checker: of problems with several right outputs; see `rlvr.verifiers.code.judge`.
        language, entry_point, signature, comparison, tolerance: as in `rlvr.verifiers.code.judge`.
        time_s, memory_mb: limits of the problem.
    Options, one value for all rows:
        visibility: which tests count: "private" (`tests`), "public" (`public_tests`), or "all".
        time_factor: what `time_s` is multiplied by, for machines or languages that are slower than the problem thinks.
        blocks, code_tags, bare: see `extraction.extract_program`, whose `tags` the second one is.
        opened: whether the prompt has opened <think>; None to read it from a prompt that is text.
        sample, seed: see `rlvr.verifiers.code.judge`.
        stop_early: whether only passing all tests counts, so that the first failure ends it.
        allow_weak_sandbox: see `rlvr.verifiers.code.judge`.
    """

    tests: Sequence[Any]
    public_tests: Sequence[Any] | None = None
    prefix: Sequence[str | None] | str | None = None
    checker: Sequence[str | None] | str | None = None
    language: Sequence[str | None] | str = "python"
    entry_point: Sequence[str | None] | str | None = None
    signature: Sequence[str | None] | str | None = None
    comparison: Sequence[str | None] | str | None = None
    tolerance: Sequence[float | None] | float | None = None
    time_s: Sequence[float | None] | float | None = None
    memory_mb: Sequence[float | None] | float | None = None
    visibility: Visibility = "private"
    time_factor: float = 1.0
    blocks: Which = "last"
    code_tags: bool = True
    bare: bool = False
    opened: bool | None = None
    sample: int | None = None
    seed: int = 0
    stop_early: bool = False
    allow_weak_sandbox: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """The settings among the arguments of a reward function."""
        return cls(**{name: given[name] for name in cls.__dataclass_fields__ if name in given})


@dataclass(frozen=True)
class Problem:
    """A row of the data, read."""

    tests: Sequence[Mapping[str, Any]]
    language: str
    prefix: str | None
    checker: str | None
    entry_point: str | None
    signature: str | None
    comparison: str
    tolerance: float
    limits: Limits

    def submission(self, program: str, settings: Settings) -> Submission:
        return Submission(
            program, self.language, self.tests, self.limits, self.entry_point, self.signature, self.checker,
            self.comparison, self.tolerance, settings.stop_early, settings.sample, settings.seed,
            settings.allow_weak_sandbox,
        )  # fmt: skip

    def check(self) -> None:
        """Raises InputError if the tests are none, or the checker is no Python."""
        row, has_checker = row_of_language(self.language), self.checker is not None
        read_tests(self.tests, language=row, entry_point=self.entry_point, checker=has_checker, where="The row")
        if self.checker is not None:
            try:
                compile(self.checker, "checker", "exec", dont_inherit=True)
            except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
                raise InputError(f"its checker is no Python: {error}") from error


def row_faults(name: str, settings: Settings) -> list[str | None]:
    """For each row of the data, why no program can be judged by its tests, or None.

    Raises:
        InputError: an option is wrong, a compiler is missing, or programs can't be confined here.
    """
    _check_options(name, settings)
    faults: list[str | None] = []
    languages = set()
    for number in range(len(settings.tests)):
        try:
            problem = _problem(settings, number)
            if not problem.tests:
                faults.append("there is no test" if settings.visibility != "public" else "there is no public test")
                continue
            problem.check()
            languages.add(problem.language)
            faults.append(None)
        except InputError as error:
            faults.append(str(error))
    for language in sorted(languages):
        row = row_of_language(language)
        if row.compiled:
            compiler_path(row)
    # An empty batch of one: whether anything can be judged at all.
    judge_many([Submission("", "python", [], allow_weak_sandbox=settings.allow_weak_sandbox)] if languages else [])
    return faults


def read_problems(name: str, settings: Settings, rows: int) -> list[Problem]:
    _check_options(name, settings)
    columns = {key: getattr(settings, key) for key in _BY_ROW if isinstance(getattr(settings, key), list | tuple)}
    for key, values in {"tests": settings.tests, **columns}.items():
        if not isinstance(values, list | tuple) or len(values) != rows:
            there = f"{len(values)} entries" if isinstance(values, list | tuple) else f"{values!r:.60}"
            raise InputError(f"Reward {name}: {rows} completions, but {there} in the column {key}. Give one each.")
    problems = []
    for number in range(rows):
        try:
            problems.append(_problem(settings, number))
        except InputError as error:
            raise InputError(f"Reward {name}, row {number} of the batch: {error}") from error
    return problems


_BY_ROW = (
    "public_tests", "prefix", "checker", "language", "entry_point", "signature", "comparison", "tolerance", "time_s",
    "memory_mb",
)  # fmt: skip


def _check_options(name: str, settings: Settings) -> None:
    for option, value in vars(settings).items():
        if isinstance(value, list | tuple) and option not in ("tests", *_BY_ROW):
            raise InputError(
                f"Reward {name}, option {option}: it is a list. If the data has a column of that name, give the column "
                "another, since it stands for the option."
            )
    for option, known in (("visibility", VISIBILITIES), ("blocks", WHICH)):
        value = getattr(settings, option)
        if value not in known:
            raise InputError(f"Reward {name}, option {option}: {value!r:.60} is none of {', '.join(known)}.")
    if settings.visibility != "private" and settings.public_tests is None:
        raise InputError(
            f"Reward {name}, option visibility: {settings.visibility!r} needs the column public_tests, which the data "
            "doesn't have."
        )
    sample = settings.sample
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or sample < 1):
        raise InputError(f"Reward {name}, option sample: {sample!r:.60} is no number of tests from 1 on.")
    if not isinstance(settings.time_factor, int | float) or not 0.01 <= settings.time_factor <= 100:
        raise InputError(f"Reward {name}, option time_factor: {settings.time_factor!r:.60} is not from 0.01 to 100.")


def _problem(settings: Settings, number: int) -> Problem:
    def own(column: str, kind: type[_Value], default: Any) -> Any:
        value = getattr(settings, column)
        value = value[number] if isinstance(value, list | tuple) else value
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            what = "a number" if kind is float else "text"
            raise InputError(f"the column {column} is {value!r:.60}, but should be {what}.")
        return value

    tests: list[Mapping[str, Any]] = []
    if settings.visibility != "public":
        tests = _tests(settings.tests[number], "tests")
    if settings.visibility != "private" and settings.public_tests is not None:
        public = _tests(settings.public_tests[number], "public_tests")
        # Where the private ones are lacking, the public ones alone would be another reward.
        tests = [*public, *tests] if tests or settings.visibility == "public" else []
    limits = Limits()
    problem = Problem(
        tests,
        row_of_language(own("language", str, "python")).name,
        own("prefix", str, None),
        own("checker", str, None),
        own("entry_point", str, None),
        own("signature", str, None),
        own("comparison", str, "lines"),
        own("tolerance", float, TOLERANCE),
        replace(
            limits,
            time_s=own("time_s", float, limits.time_s) * settings.time_factor,
            memory_mb=own("memory_mb", float, limits.memory_mb),
        ),
    )
    check_comparison(problem.comparison, problem.tolerance)
    return problem


def _tests(value: Any, column: str) -> list[Mapping[str, Any]]:
    if isinstance(value, str):
        try:
            value = _parsed(value)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the column {column} holds text that is no JSON: {error}.") from error
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(test, Mapping) for test in value):
        raise InputError(
            f"the column {column} is {value!r:.60}, but should be a list of tests, like "
            '[{"input": "1 2", "output": "3"}], or the same as JSON.'
        )
    return value


@lru_cache(maxsize=64)  # the completions of a group have the same tests
def _parsed(text: str) -> Any:
    return json.loads(text)
