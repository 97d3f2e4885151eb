"""Read the problem of each row (tests, language, limits) from columns and options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from rlvr.errors import InputError, error_context
from rlvr.sandbox.languages import compiler_path, find_language
from rlvr.sandbox.limits import Limits
from rlvr.verifiers.code.cases import check_checker, read_tests
from rlvr.verifiers.code.judge import judge_many
from rlvr.verifiers.code.options import COLUMNS, JudgeOptions
from rlvr.verifiers.code.tolerance import TOLERANCE, check_comparison
from rlvr.verifiers.code.types import Submission


@dataclass(frozen=True)
class CodeProblem:
    """What one row of the data asks of a program: a submission without the program, and the program's given start."""

    submission: Submission
    prefix: str | None


def row_faults(options: JudgeOptions) -> list[str | None]:
    """Return for each row of the data why no program can be judged by its tests, or None.

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
                faults.append("there is no test" if options.visibility != "public" else "there is no public test")
                continue
            language = find_language(submission.language)
            read_tests(submission, language)
            if submission.checker is not None:
                check_checker(submission.checker)
            languages.add(language)
            faults.append(None)
        except InputError as error:
            faults.append(str(error))
    for language in sorted(languages, key=lambda language: language.name):
        if language.compiled:
            compiler_path(language)
    if languages:  # a submission without tests starts the sandbox: can anything be judged here?
        judge_many([Submission("", "python", [], allow_weak_sandbox=options.allow_weak_sandbox)])
    return faults


def read_problems(options: JudgeOptions, rows: int) -> list[CodeProblem]:
    """Read the problem of each completion of a batch.

    Raises:
        InputError: an option or a column is invalid. `row` is the index in the batch.
    """
    options.check()
    for column in COLUMNS:
        value = getattr(options, column)
        is_column = isinstance(value, list | tuple)
        if (is_column and len(value) != rows) or (column == "tests" and not is_column):
            entries = f"{len(value)} entries" if is_column else f"{value!r:.60}"
            raise InputError(
                f"{rows} completions, but {entries} in the column {column}. Give one entry per completion.",
                kind="wrong-length",
                key=column,
            )
    problems = []
    for row in range(rows):
        with error_context(f"row {row} of the batch", row=row):
            problems.append(_read_problem(options, row))
    return problems


def _read_problem(options: JudgeOptions, row: int) -> CodeProblem:
    limits = Limits()
    submission = Submission(
        program="",
        language=find_language(_text(options, "language", row, "python")).name,
        tests=_select_tests(options, row),
        limits=replace(
            limits,
            time_s=_number(options, "time_s", row, limits.time_s) * options.time_factor,
            memory_mb=_number(options, "memory_mb", row, limits.memory_mb),
        ),
        entry_point=_text(options, "entry_point", row, None),
        signature=_text(options, "signature", row, None),
        checker=_text(options, "checker", row, None),
        comparison=_text(options, "comparison", row, "lines"),
        tolerance=_number(options, "tolerance", row, TOLERANCE),
        sample=options.sample,
        seed=options.seed,
        allow_weak_sandbox=options.allow_weak_sandbox,
    )
    check_comparison(submission.comparison, submission.tolerance)
    return CodeProblem(submission, _text(options, "prefix", row, None))


def _select_tests(options: JudgeOptions, row: int) -> list[Mapping[str, Any]]:
    tests: list[Mapping[str, Any]] = []
    if options.visibility != "public":
        tests = _read_test_column(options.tests[row], "tests")
    if options.visibility != "private" and options.public_tests is not None:
        public = _read_test_column(options.public_tests[row], "public_tests")
        # Without private tests, the public ones alone would be a different reward.
        tests = [*public, *tests] if tests or options.visibility == "public" else []
    return tests


def _text(options: JudgeOptions, column: str, row: int, default: Any) -> Any:
    return _entry(options, column, row, default, str, "text")


def _number(options: JudgeOptions, column: str, row: int, default: float) -> float:
    return _entry(options, column, row, default, int | float, "a number")


def _entry(options: JudgeOptions, column: str, row: int, default: Any, kind: Any, expected: str) -> Any:
    value = getattr(options, column)
    if isinstance(value, list | tuple):
        value = value[row]
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        raise InputError(f"the column {column} is {value!r:.60}. Give {expected}.", kind="wrong-type", key=column)
    return default if value is None else value


def _read_test_column(value: Any, column: str) -> list[Mapping[str, Any]]:
    if isinstance(value, str):
        try:
            value = _parse_json(value)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"the column {column} is text, but not valid JSON: {error}.", kind="invalid-json", key=column
            ) from error
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(test, Mapping) for test in value):
        raise InputError(
            f'the column {column} is {value!r:.60}. Give a list of tests, such as [{{"input": "1 2", "output": "3"}}], '
            "or the same as JSON.",
            kind="wrong-type",
            key=column,
        )
    return value


@lru_cache(maxsize=64)  # the completions of a group have the same tests
def _parse_json(text: str) -> Any:
    return json.loads(text)
