"""Read the problem of each row (tests, language, limits) from columns and options."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlvr.errors import InputError, error_context
from rlvr.sandbox.languages import compiler_path, find_language
from rlvr.sandbox.limits import Limits
from rlvr.verifiers.code.cases import check_checker, read_tests
from rlvr.verifiers.code.code_extraction import with_prefix
from rlvr.verifiers.code.judge import judge_many
from rlvr.verifiers.code.options import COLUMNS, JudgeOptions, with_judge_options
from rlvr.verifiers.code.tolerance import TOLERANCE, check_comparison
from rlvr.verifiers.code.types import Submission

MAX_TIME_S = 60  # of a test, before time_factor; as of a reward server. Data often have milliseconds
_NUMBERS = ("tolerance", "time_s", "memory_mb")


@dataclass(frozen=True)
class CodeProblem:
    """What one row of the data asks of a program: a submission without the program, and the program's given start."""

    submission: Submission
    prefix: str | None

    def with_program(self, program: str) -> Submission:
        """Return the submission of a program, after the prefix."""
        given = self.submission
        return replace(given, program=with_prefix(program, self.prefix, given.entry_point, given.language))


def read_problem(row: Mapping[str, Any], **options: Any) -> CodeProblem:
    """Read the problem of one row of the data, for environments.

    Args:
        row: its columns; those that are not in `JudgeOptions` are ignored.
        options: of `JudgeOptions`; a column of the row goes first.

    Raises:
        InputError: the row has no tests, or a column or an option is invalid.
    """
    columns = {name: [row[name]] for name in COLUMNS if row.get(name) is not None}
    problem = read_problems(JudgeOptions(**{"tests": [None], **options, **columns}), 1)[0]
    if not problem.submission.tests:
        raise InputError("the row has no tests. Give them in the column tests.", kind="missing-column", key="tests")
    read_tests(problem.submission, find_language(problem.submission.language))
    return problem


@with_judge_options
def validate_rows(*, options: JudgeOptions, **kwargs: Any) -> list[str | None]:
    """Return for each row of the data why no program can be judged by its tests, or None.

    A companion of every reward for programs; see `rlvr.scoring.registry.companion_function`.

    Raises:
        InputError: an option is invalid, a compiler is missing, or programs can't be confined on this machine.
    """
    options.check()
    faults: list[str | None] = []
    languages = set()
    for row in range(len(options.tests)):
        try:
            submission = _read_problem(options, row).submission
            if not submission.tests:
                faults.append("there is no test")
                continue
            language = find_language(submission.language)
            read_tests(submission, language)
            if submission.checker is not None:
                check_checker(submission.checker)
            languages.add(language)
            faults.append(None)
        except InputError as error:
            faults.append(str(error))
    compiled = sorted((language for language in languages if language.compiled), key=lambda language: language.name)
    for language in compiled:
        compiler_path(language)
    if languages:  # can anything be judged here, and does each compiler work in the sandbox?
        weak = options.allow_weak_sandbox
        test = [{"input": "", "output": ""}]
        smallest = [Submission(one.smallest, one.name, test, allow_weak_sandbox=weak) for one in compiled]
        judge_many([Submission("", "python", [], allow_weak_sandbox=weak), *smallest])
    return faults


def read_problems(options: JudgeOptions, rows: int) -> list[CodeProblem]:
    """Read the problem of each completion of a batch.

    Raises:
        InputError: an option or a column is invalid. `row` is the index in the batch.
    """
    options.check()
    problems = []
    for row in range(rows):
        with error_context(f"row {row} of the batch", row=row):
            problems.append(_read_problem(options, row))
    return problems


def _read_problem(options: JudgeOptions, row: int) -> CodeProblem:
    limits, entry = Limits(), functools.partial(_entry, options, row)
    tests = _read_tests(options.tests[row])
    time_s = entry("time_s", limits.time_s)
    if time_s > MAX_TIME_S:
        raise InputError(
            f"time_s is {time_s:g}. Use at most {MAX_TIME_S} seconds per test. Is it in milliseconds?",
            kind="invalid-limit",
            key="time_s",
        )
    submission = Submission(
        program="",
        language=find_language(entry("language", "python")).name,
        tests=tests,
        limits=replace(
            limits,
            time_s=time_s * options.time_factor,
            memory_mb=entry("memory_mb", limits.memory_mb),
        ),
        entry_point=entry("entry_point"),
        signature=entry("signature"),
        checker=entry("checker"),
        comparison=entry("comparison", "lines"),
        tolerance=entry("tolerance", TOLERANCE),
        allow_weak_sandbox=options.allow_weak_sandbox,
    )
    check_comparison(submission.comparison, submission.tolerance)
    return CodeProblem(submission, entry("prefix"))


def _entry(options: JudgeOptions, row: int, column: str, default: Any = None) -> Any:
    value = getattr(options, column)
    if isinstance(value, list | tuple):
        value = value[row]
    kind, expected = (int | float, "a number") if column in _NUMBERS else (str, "text")
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        raise InputError(f"the column {column} is {value!r:.60}. Give {expected}.", kind="wrong-type", key=column)
    return default if value is None else value


def _read_tests(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, str):
        try:
            value = _parse_json(value)
        except (ValueError, RecursionError) as error:
            message = f"the column tests is text, but not valid JSON: {error}."
            raise InputError(message, kind="invalid-json", key="tests") from error
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(test, Mapping) for test in value):
        raise InputError(
            f'the column tests is {value!r:.60}. Give a list of tests, such as [{{"input": "1 2", "output": "3"}}] '
            'or [{"assert": "assert add(1, 2) == 3"}], or the same as JSON.',
            kind="wrong-type",
            key="tests",
        )
    return value


@functools.lru_cache(maxsize=64)  # the completions of a group have the same tests
def _parse_json(text: str) -> Any:
    return json.loads(text)
