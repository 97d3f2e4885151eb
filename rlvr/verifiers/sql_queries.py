"""Run one SELECT on a SQLite database, on its own and on changed copies.

This file runs as a program, in the sandbox or alone, so it imports the standard library alone. The process ends if a
single call of a function exceeds the time limit by half: SQLite can't interrupt it.

A query can only read: the authorizer allows SELECT and refuses everything else, such as pragmas, ATTACH and extensions.
Time, rows, the size of values and the memory of SQLite are limited.

A changed copy tells a query from its result: `SELECT 42` is right on the database and wrong where the answer is 41. One
copy has every other row of each table, one has the other rows, one has the first row alone, and in the last one each
column is moved down by its position. In copies with fewer rows, declared foreign keys lead somewhere, as before.
"""

from __future__ import annotations

import base64
import itertools
import json
import signal
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any

MAX_SQL = 10_000  # characters of a query
MAX_VALUE = 1 << 20  # bytes of a value that a query computes
MAX_RESULT = 8 << 20  # characters and bytes of all values of a result
MAX_TIME = 1.5  # times the limit: then the process ends by SIGPROF
TOO_LONG = "the query takes longer than {:g} s"
MAX_HEAP = 256 << 20  # bytes that SQLite may use in this process
SCHEMA = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
MAX_FOREIGN_KEYS = 4  # steps from table to table
ORIGINAL, HALVES, FIRST, MOVED = "original", ("first half", "second half"), "first rows", "moved columns"
COPIES = (ORIGINAL, *HALVES, FIRST, MOVED)
_KEPT = {HALVES[0]: slice(0, None, 2), HALVES[1]: slice(1, None, 2), FIRST: slice(1)}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
# Extensions, addresses in memory, and results that differ from run to run.
_REFUSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "random", "randomblob"}
Row = tuple[Any, ...]


def execute(connection: sqlite3.Connection, sql: str, most: int, time_s: float) -> tuple[list[str], list[Row]]:
    """Return the names of the columns and at most so many rows. From now on the connection can only read.

    Args:
        time_s: seconds of CPU time.

    Raises:
        sqlite3.Error: the query is wrong, not allowed, or exceeds a limit.
    """
    if len(sql) > MAX_SQL:
        raise sqlite3.DataError(f"the query is longer than {MAX_SQL:,} characters")
    connection.set_authorizer(None)
    connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP}")
    connection.execute("PRAGMA temp_store = MEMORY")  # so that the limit holds for sorting, too
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200)
    connection.set_authorizer(authorize)
    end = time.thread_time() + time_s
    signal.setitimer(signal.ITIMER_PROF, MAX_TIME * time_s)
    connection.set_progress_handler(lambda: time.thread_time() > end, 1000)
    connection.text_factory = lambda value: value.decode(errors="replace")
    try:
        cursor = connection.execute(sql)
        rows: list[Row] = []
        size = 0
        for row in itertools.islice(cursor, most):
            rows.append(row)
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
            if size > MAX_RESULT:
                raise sqlite3.DataError(f"the result is larger than {MAX_RESULT >> 20} MB")
    except sqlite3.OperationalError as error:
        if str(error) == "interrupted":
            raise sqlite3.OperationalError(TOO_LONG.format(time_s)) from error
        raise
    except UnicodeError as error:
        raise sqlite3.DataError("the query is no UTF-8 text") from error
    except MemoryError as error:
        raise sqlite3.OperationalError(f"the query needs more than {MAX_HEAP >> 20} MB") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return [name for name, *_ in cursor.description or ()], rows


def authorize(action: int, _: str | None, name: str | None, *more: str | None) -> int:
    """Allow reading alone: an authorizer of SQLite."""
    refused = action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and str(name).lower() in _REFUSED_FUNCTIONS)
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def open_copy(content: bytes, copy: str) -> sqlite3.Connection:
    """Open a database, given as the bytes of its file, in memory: as it is, or changed.

    Raises:
        sqlite3.Error: it is no database, or it can't be changed.
    """
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(content)
        connection.execute("SELECT count(*) FROM sqlite_master")
        if copy != ORIGINAL:
            _change(connection, copy)
    except BaseException:
        connection.close()
        raise
    return connection


def _change(connection: sqlite3.Connection, copy: str) -> None:
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for kind, name in connection.execute("SELECT type, name FROM sqlite_master").fetchall():
        if kind == "trigger":
            connection.execute(f"DROP TRIGGER {_quoted(name)}")
    tables = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'sqlite_*' AND sql LIKE 'create table%'"
    )
    for (table,) in connection.execute(tables).fetchall():  # no virtual ones
        columns = [column[1] for column in connection.execute(f"PRAGMA table_info({_quoted(table)})")]
        names = ", ".join(map(_quoted, columns))
        rows = connection.execute(f"SELECT {names} FROM {_quoted(table)}").fetchall()
        if copy == MOVED:
            size = len(rows)
            kept = [tuple(rows[(row - place) % size][place] for place in range(len(columns))) for row in range(size)]
        else:
            kept = rows[_KEPT[copy]]
        connection.execute(f"DELETE FROM {_quoted(table)}")
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO {_quoted(table)} ({names}) VALUES ({marks})", kept)
    for _ in range(MAX_FOREIGN_KEYS if copy in _KEPT else 0):
        for table, row, *_ in connection.execute("PRAGMA foreign_key_check").fetchall():
            connection.execute(f"DELETE FROM {_quoted(table)} WHERE rowid = ?", (row,))
    connection.commit()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def run_job(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a query on copies of a database; return a result each: the names of its columns and its rows, or an error.

    A query that fails on the first copy is not run on the others. A database given as `uri` is opened, and not copied.
    """
    results: list[dict[str, Any]] = []
    for copy, most in job["copies"].items():
        if results and "error" in results[0]:
            results.append(results[0])
            continue
        try:
            with closing(_open(job, copy)) as connection:
                names, rows = execute(connection, job["sql"], most, job["time_s"])
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            results.append({"error": str(error)})
            continue
        results.append({"columns": names, "rows": [[_plain(value) for value in row] for row in rows]})
    return results


def _open(job: dict[str, Any], copy: str) -> sqlite3.Connection:
    if "uri" in job:
        return sqlite3.connect(job["uri"], uri=True)
    return open_copy(base64.b64decode(job["database"]), copy)


def _plain(value: Any) -> Any:
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


if __name__ == "__main__":
    print(json.dumps([run_job(job) for job in json.load(sys.stdin)]))
