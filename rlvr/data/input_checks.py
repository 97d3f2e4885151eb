"""Check the options of a task and the columns of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rlvr.errors import InputError


def missing_column_error(
    where: str, column: str, columns: Iterable[str], how: str = "", *, row: int | None = None
) -> InputError:
    """Return the error for a missing column, with the existing ones: a guess could name the answer."""
    message = (
        f"{where} has no column {column!r}. Its columns are: {', '.join(columns) or 'none'}.{' ' + how if how else ''}"
    )
    return InputError(message, kind="missing-column", key=column, row=row)


def require_columns(row: Mapping[str, Any], columns: Iterable[str], where: str, number: int, how: str = "") -> None:
    """Raise InputError of kind "missing-column" unless a row has these columns."""
    for column in columns:
        if column not in row:
            raise missing_column_error(where, column, row, how, row=number)


def require_text(row: Mapping[str, Any], columns: Iterable[str], where: str, number: int) -> None:
    """Check that a row has text in these columns.

    Raises:
        InputError: of kind "missing-column" or "invalid-row".
    """
    for column in columns:
        require_columns(row, (column,), where, number)
        if not isinstance(row[column], str) or not row[column].strip():
            raise row_error(where, column, number, f"{row[column]!r:.60} is no text")


def row_error(where: str, column: str, row: int, problem: str) -> InputError:
    """Return the error for a value of a row."""
    message = f"{where}, column {column}: {problem}. Correct or remove the row."
    return InputError(message, kind="invalid-row", key=column, row=row)


def missing(value: Any) -> str:
    """Say what is wrong with a value that stands for none, or "". Data frames write NaN for a missing number."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"it is {'no number (NaN)' if math.isnan(value) else 'infinite'}"
    return "it is empty" if value is None else ""


def option_error(task: str, option: str, problem: str) -> InputError:
    """Return the error for an option of a task."""
    return InputError(f"Task {task}, option {option}: {problem}", kind="invalid-value", key=option)


def check_limits(task: str, **limits: int | None) -> None:
    """Check options that are None or a whole number from 1."""
    for option, limit in limits.items():
        if limit is not None:
            check_integer(task, option, limit, 1)


def check_integer(task: str, option: str, value: object, least: int, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limits = f"from {least} to {most}" if most is not None else f"of {least} or more"
        raise option_error(task, option, f"{value!r} is not a whole number {limits}.")


def check_fraction(task: str, option: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise option_error(
            task, option, f"{value!r} is not a fraction of the rows. Write a number from 0 to below 1, like 0.1."
        )
