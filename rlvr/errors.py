"""Errors that the user can fix: the recipe, the data or the machine is not what the run needs.

Raise `InputError` with a message that stands alone: what failed, where (file, key, row), the fix. Scripts print the
message without a traceback and exit with 2. Any other exception is a bug of this project: it keeps its traceback and
exits with 1.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Problem:
    """One problem, for people (`message`) and for programs (everything else).

    Attributes:
        message: what failed, where, and the fix, in sentences that stand alone.
        kind: short stable slug, such as "unknown-key". Tests and `--check --json` rely on it; the message may change.
        key: recipe key, option or column that the problem is about.
        row: index of a row of the data, from 0.
        path: file that the problem is in.
        line: line of that file, from 1.
        level: an "error" stops the run. A "warning" or a "note" does not.
        suggestion: the key or name that was most likely meant.
    """

    message: str
    kind: str = "invalid-input"
    key: str | None = None
    row: int | None = None
    path: str | None = None
    line: int | None = None
    level: Level = "error"
    suggestion: str | None = None

    def __str__(self) -> str:
        return f"warning: {self.message}" if self.level == "warning" else self.message

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are set, for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class InputError(Exception):
    """A problem that the user can fix, or several of one pass.

    Args:
        message: as `Problem.message`. By default the messages of `problems`, a line each.
        kind, key, row, path, line: as in `Problem`.
        problems: the problems, if one error reports several. By default one problem, made of the arguments.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        kind: str = "invalid-input",
        key: str | None = None,
        row: int | None = None,
        path: str | Path | None = None,
        line: int | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__("\n".join(problem.message for problem in problems) if message is None else message)
        where = str(path) if path is not None else None
        self.problems = tuple(problems) or (Problem(message or "", kind, key, row, where, line),)

    @property
    def kind(self) -> str:
        return self.problems[0].kind

    @property
    def key(self) -> str | None:
        return self.problems[0].key

    @property
    def row(self) -> int | None:
        return self.problems[0].row

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled as their class and args, which would lose the problems between processes.
        return (_rebuild, (type(self), self.args, self.__dict__))


class FailedRun(Exception):
    """A run failed through a reward, the recipe or the data. The message says which; our stack frames don't help.

    Args:
        kind: slug, as in `Problem`.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


def problems_as_json(problems: Sequence[Problem], plan: Mapping[str, Any] | None = None) -> str:
    """Write the result of a check as one JSON object."""
    levels: dict[str, list[Any]] = {"error": [], "warning": [], "note": []}
    for problem in problems:
        levels[problem.level].append(problem.message if problem.level == "note" else problem.as_dict())
    names = {"error": "problems", "warning": "warnings", "note": "notes"}
    result = {**{names[level]: found for level, found in levels.items()}, "plan": plan}
    return json.dumps(result, indent=2, ensure_ascii=False)


@contextlib.contextmanager
def error_context(where: str, *, row: int | None = None) -> Iterator[None]:
    """Put `where` before the message of an InputError, and fill in its row if it has none."""
    try:
        yield
    except InputError as error:
        problem = error.problems[0]
        raise type(error)(
            f"{where}: {error}",
            problems=[
                replace(
                    problem,
                    message=f"{where}: {problem.message}",
                    row=problem.row if problem.row is not None else row,
                )
            ],
        ) from error


@contextlib.contextmanager
def writing(path: Path, fix: str, *, key: str | None = None) -> Iterator[None]:
    """Turn an OSError of what writes to `path` into an InputError of kind "unwritable", with the fix."""
    try:
        yield
    except OSError as error:
        message = f"{path} can't be written: {error.strerror}. {fix}"
        raise InputError(message, kind="unwritable", key=key, path=path) from error


def row_faults(read: Callable[..., object], *columns: Iterable[Any]) -> list[str | None]:
    """Call `read` with each row of the columns, and return the message of its InputError, or None."""
    faults: list[str | None] = []
    for row in zip(*columns, strict=True):
        try:
            read(*row)
            faults.append(None)
        except InputError as error:
            faults.append(str(error))
    return faults


def _rebuild(cls: type[InputError], args: tuple[Any, ...], state: dict[str, Any]) -> InputError:
    error = cls.__new__(cls)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


def disk_full(error: Exception) -> str:
    """The message if a disk or a quota is full, else ""; errors of libraries written in Rust have no errno."""
    if getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT) and "(os error 28)" not in str(error):
        return ""
    file = f" ({name})" if (name := getattr(error, "filename", None)) else ""
    return f"The disk is full{file}. Make room; the same command continues from what was saved."
