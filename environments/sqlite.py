"""Answer a question from a SQLite database: query it, then answer with a query.

    environment: {name: sqlite, options: {folder: data/databases}}

The reward is 1 if the answer has the rows of `gold_query`, else 0. Names of columns don't count. Numbers with decimals
are compared after rounding to ten significant digits. Without an answer, the reward is 0.

Queries can only read. The file is opened read-only. The authorizer refuses everything except SELECT, such as pragmas,
ATTACH and extensions. Time, rows, the size of values and the memory of SQLite are limited. Each query runs in a process
of its own, since SQLite can't interrupt a single call of a function.

Known weaknesses: an answer may be correct on this database by chance. Prefer questions with many rows in the answer.
"""

from __future__ import annotations

import functools
import json
import math
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr import InputError
from rlvr.verifiers import sql_queries
from rlvr.verifiers.sql_queries import ORIGINAL, SCHEMA, TOO_LONG
from rlvr.verifiers.sql_results import Row, is_ordered, read_rows, same_rows

MAX_COMPARED = 100_000  # rows of an answer


class Sqlite:
    """One question about one database."""

    def __init__(self, folder: str = ".", time_s: float = 2.0, rows: int = 20, answers: int = 1) -> None:
        """
        Args:
            folder: the folder of the files in the column `database`.
            time_s: CPU seconds per query.
            rows: maximum number of rows that `query` returns.
            answers: maximum number of answers. The last answer counts.
        """
        for name, value in (("rows", rows), ("answers", answers)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"option {name} is {value!r}. Use a number from 1 on.", kind="invalid-value", key=name)
        if not 0 < time_s < math.inf:
            message = f"option time_s is {time_s!r}. Use a number above 0."
            raise InputError(message, kind="invalid-value", key="time_s")
        self._folder, self._time_s, self._rows, self._most_answers = Path(folder), time_s, rows, answers

    def reset(self, database: str, gold_query: str, ordered: bool | None = None, **row: Any) -> str:
        """Begin a rollout. Return the tables of the database, for the prompt.

        Args:
            database: the SQLite file, relative to `folder`.
            gold_query: the reference query.
            ordered: whether the order of the rows counts. By default, an ORDER BY outside of all brackets decides.
        """
        self._path = (self._folder / database).resolve()
        if not self._path.is_relative_to(self._folder.resolve()) or not self._path.is_file():
            raise InputError(
                f"the database {database} is no file in {self._folder}. Set the option folder, or correct the column.",
                kind="file-not-found",
                key="database",
            )
        self._ordered = is_ordered(gold_query) if ordered is None else ordered
        try:
            self._gold, tables = _reference(self._path, self._path.stat().st_mtime_ns, gold_query, self._time_s)
        except ValueError as error:
            message = f"the column gold_query fails on {database}: {error}. Correct it."
            raise InputError(message, kind="invalid-row", key="gold_query") from error
        self._answered, self._reward = 0, 0.0
        return "\n\nThe database:\n" + "\n".join(sql for (sql,) in tables)

    def query(self, sql: str) -> str:
        """
        Run a query and return its first rows.

        Args:
            sql: One SELECT statement of SQLite.

        Returns:
            The names of the columns, then a row a line.
        """
        [(names, rows)] = _execute(self._path, [(sql, self._rows + 1)], self._time_s)
        lines = [" | ".join(names), *(" | ".join(_quote(value) for value in row) for row in rows[: self._rows])]
        return "\n".join([*lines, *(["[more rows]"] if len(rows) > self._rows else [])])

    def answer(self, sql: str) -> str:
        """
        Give the final answer: a query whose rows answer the question.

        Args:
            sql: One SELECT statement of SQLite.

        Returns:
            How many rows the answer has.
        """
        if self._answered >= self._most_answers:
            raise ValueError("no answer is left.")
        self._answered += 1
        self._reward = 0.0
        [(_, rows)] = _execute(self._path, [(sql, MAX_COMPARED)], self._time_s)
        self._reward = float(same_rows(rows, self._gold, ordered=self._ordered))
        return f"The answer has {len(rows)} rows."

    def get_reward(self) -> float:
        """Return 1 if the rows of the last answer are correct, else 0."""
        return self._reward


@functools.lru_cache(maxsize=256)
def _reference(path: Path, changed: int, gold_query: str, time_s: float) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the reference rows and the tables, once for all rollouts of a row. `changed` renews the cache."""
    (_, gold), (_, tables) = _execute(path, [(gold_query, MAX_COMPARED), (SCHEMA, 200)], time_s)
    return gold, tables


def _execute(path: Path, queries: Sequence[tuple[str, int]], time_s: float) -> list[tuple[list[str], tuple[Row, ...]]]:
    """Return the names of the columns and the rows of each query, up to the number next to it.

    Raises:
        ValueError: a query is wrong, not allowed, or exceeds a limit.
    """
    if not all(isinstance(sql, str) for sql, _ in queries):
        raise ValueError("sql must be a text")
    uri = f"{path.as_uri()}?mode=ro"
    jobs = [{"uri": uri, "sql": sql, "copies": {ORIGINAL: most}, "time_s": time_s} for sql, most in queries]
    program = [sys.executable, "-I", "-S", sql_queries.__file__]
    run = subprocess.run(program, input=json.dumps(jobs), capture_output=True, text=True)
    if run.returncode == -signal.SIGPROF:
        raise ValueError(TOO_LONG.format(time_s))
    if run.returncode:
        raise ValueError(f"the query ends SQLite (status {run.returncode})")
    results = [result for [result] in json.loads(run.stdout)]
    for result in results:
        if "error" in result:
            raise ValueError(result["error"])
    return [(result["columns"], read_rows(result)) for result in results]


def play_reference(environment: Sqlite, *, gold_query: str, **row: Any) -> None:
    """Answer with the reference query."""
    environment.answer(gold_query)


def count_killed_call(environment: Sqlite, tool: str) -> None:
    """Count an answer that was killed, with reward 0."""
    if tool == "answer":
        environment._answered += 1
        environment._reward = 0.0


def _quote(value: Any) -> str:
    if value is None:
        return "NULL"
    text = f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
