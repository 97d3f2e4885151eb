"""Judge queries by the results of reference queries, each run in the sandbox.

    (judgement,) = judge_queries([Question(Path("shop.db"), "SELECT count(*) FROM sales", "SELECT 40")])
    judgement.is_right
    False

A query is right if its rows are those of the reference query, on the database and on the changed copies
(sql_queries.py) on which the reference has another result than on the database. These are the halves if one of them
changes the result, and the other copies if not: empty tables and broken relations may tell equal queries apart.
"""

from __future__ import annotations

import base64
import json
import signal
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.errors import InputError, row_faults
from rlvr.sandbox.limits import Limits
from rlvr.verifiers import sql_queries
from rlvr.verifiers.code.program_run import run_program_on
from rlvr.verifiers.code.types import AC, SE, VERDICT_NAMES
from rlvr.verifiers.sql_queries import COPIES, HALVES, ORIGINAL, TOO_LONG
from rlvr.verifiers.sql_results import Row, is_ordered, read_rows, same_rows

MAX_DATABASE = 16 << 20  # bytes: each query gets a copy of its own
MAX_ROWS = 10_000  # of a reference query
MAX_CACHED = 1024  # results of reference queries
_PROGRAM = Path(sql_queries.__file__).read_text(encoding="utf-8")
_HEADER = b"SQLite format 3\x00"


@dataclass(frozen=True)
class Question:
    """A query to judge."""

    database: Path
    gold: str
    query: str | None  # None: the completion has none
    ordered: bool | None = None  # None: if the gold query ends in ORDER BY


def read_question(query: str | None, database: Any, gold: Any, ordered: Any, folder: str) -> Question:
    """Read a row of the data.

    Raises:
        InputError: a column is no text, or the database is not in the folder.
    """
    for column, value in (("database", database), ("gold_query", gold)):
        if not isinstance(value, str) or not value.strip():
            message = f"The column {column} has {value!r:.60}. Give a text, or leave the row out."
            raise InputError(message, kind="invalid-row", key=column)
    path = (Path(folder) / database).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        message = f"The database {database} is not in {folder}. Set the option folder."
        raise InputError(message, kind="invalid-row", key="database")
    return Question(path, gold, query, None if ordered is None else bool(ordered))


@dataclass(frozen=True)
class QueryJudgement:
    """Whether a query is right; None if the sandbox failed."""

    is_right: bool | None
    why: str


@dataclass(frozen=True)
class _Result:
    columns: int = 0
    rows: tuple[Row, ...] = ()
    error: str = ""  # why there is no result
    sandbox_failed: bool = False


Results = Mapping[str, _Result]  # of a query, by the copy
_cache: OrderedDict[tuple[Any, ...], Results] = OrderedDict()


def judge_queries(
    questions: Sequence[Question], *, time_s: float = 2.0, allow_weak_sandbox: bool = False
) -> list[QueryJudgement]:
    """Judge a batch of queries.

    Args:
        time_s: seconds of CPU time of a query on a copy.

    Raises:
        InputError: a database is none, or a reference query fails; `row` is the question's.
        SandboxUnavailable: queries can't be confined on this machine.
    """
    options: dict[str, Any] = {"time_s": time_s, "allow_weak_sandbox": allow_weak_sandbox}
    golds = _gold_results(questions, options)
    wanted = [_copies_that_tell(gold) for gold in golds]
    jobs = [
        (one.database, one.query, {copy: len(gold[copy].rows) + 1 for copy in names})
        for one, gold, names in zip(questions, golds, wanted, strict=True)
        if one.query is not None
    ]
    results = iter(_run(jobs, **options))
    return [
        QueryJudgement(False, "there is no query") if one.query is None else _judge(one, gold, next(results))
        for one, gold in zip(questions, golds, strict=True)
    ]


def find_faults(databases: Sequence[Any], golds: Sequence[Any], folder: str, **options: Any) -> list[str | None]:
    """Return for each row of the data why its reference query can't judge another one, or None.

    What begins with "warning: " is no error: every changed copy has the result of the database. Options as for
    `judge_queries`.
    """

    def read(database: Any, gold: Any) -> None:
        _read_database(read_question(None, database, gold, None, folder).database)

    faults = row_faults(read, databases, golds)
    readable = [row for row, fault in enumerate(faults) if fault is None]
    most = dict.fromkeys(COPIES, MAX_ROWS + 1)
    jobs = [(Path(folder) / databases[row], golds[row], most) for row in readable]
    results = _run(jobs, together=32, **options)
    for row, result in zip(readable, results, strict=True):
        if problem := _problem(result[ORIGINAL]):
            faults[row] = f"the column gold_query {problem}. Correct it, or leave the row out."
        elif len(_copies_that_tell(result)) == 1:
            faults[row] = (
                "warning: gold_query has one result on all copies of the database, which a constant has as well."
            )
    return faults


def _judge(question: Question, gold: Results, results: Results) -> QueryJudgement:
    ordered = is_ordered(question.gold) if question.ordered is None else question.ordered
    for copy, result in results.items():
        where = "" if copy == ORIGINAL else f" on a changed copy ({copy})"
        expected = gold[copy]
        if result.sandbox_failed or expected.sandbox_failed:
            return QueryJudgement(None, f"the sandbox failed: {result.error or expected.error}")
        if result.error:
            return QueryJudgement(False, f"the query fails{where}: {result.error}")
        if result.columns != expected.columns:
            return QueryJudgement(False, f"it has {result.columns} columns instead of {expected.columns}")
        if not same_rows(result.rows, expected.rows, ordered=ordered):
            order = ", or their order," if ordered else ""
            return QueryJudgement(False, f"its rows{order} differ from those of the reference query{where}")
    return QueryJudgement(True, f"its rows are right on {len(results)} copies of the database")


def _gold_results(questions: Sequence[Question], options: Mapping[str, Any]) -> list[Results]:
    keys = []
    for row, one in enumerate(questions):
        _read_database(one.database, row)
        state = one.database.stat()
        keys.append((one.database, state.st_mtime_ns, state.st_size, one.gold, options["time_s"]))
    missing = {key: None for key in keys if key not in _cache}
    jobs = [(key[0], key[3], dict.fromkeys(COPIES, MAX_ROWS + 1)) for key in missing]
    fresh = dict(zip(missing, _run(jobs, **options), strict=True))
    for row, key in enumerate(keys):
        result = (fresh.get(key) or _cache[key])[ORIGINAL]
        if (problem := _problem(result)) and not result.sandbox_failed:
            message = f"Row {row}: the column gold_query {problem}. Correct it, or leave the row out."
            raise InputError(message, kind="invalid-row", key="gold_query", row=row)
    found = [fresh.get(key) or _cache[key] for key in keys]
    _cache.update((key, result) for key, result in fresh.items() if not result[ORIGINAL].sandbox_failed)
    while len(_cache) > MAX_CACHED:
        _cache.popitem(last=False)
    return found


def _problem(result: _Result) -> str:
    if result.error or not result.columns:
        return f"fails: {result.error or 'it returns no table'}"
    return f"returns more than {MAX_ROWS:,} rows" if len(result.rows) > MAX_ROWS else ""


def _copies_that_tell(gold: Results) -> list[str]:
    """Return the database and the copies on which the reference query has another result."""
    original = gold[ORIGINAL]
    changed = [
        copy
        for copy, result in gold.items()
        if not _problem(result) and not same_rows(result.rows, original.rows, ordered=True)
    ]
    halves = [copy for copy in changed if copy in HALVES]
    return [ORIGINAL, *(halves or changed)]


def _read_database(path: Path, row: int | None = None) -> bytes:
    problem = "is no SQLite database"
    try:
        content = path.read_bytes()
    except OSError as error:
        content, problem = b"", f"can't be read ({error.strerror})"
    if len(content) > MAX_DATABASE:
        content, problem = b"", f"is larger than {MAX_DATABASE >> 20} MB"
    if not content.startswith(_HEADER):
        message = f"The column database: {path} {problem}. Correct the column, or the folder that it is relative to."
        raise InputError(message, kind="invalid-row", key="database", row=row)
    return content[:18] + b"\x01\x01" + content[20:]  # a database in memory has no write-ahead log


def _run(
    jobs: Sequence[tuple[Path, str, Mapping[str, int]]], *, time_s: float, allow_weak_sandbox: bool, together: int = 1
) -> list[Results]:
    """Run queries in the sandbox.

    Args:
        jobs: database, query, and the most rows to return from each copy.
        together: number of jobs of a program. If it fails, each is run alone.
    """
    inputs = []
    for start in range(0, len(jobs), together):
        encoded = [
            {
                "database": base64.b64encode(_read_database(database)).decode(),
                "sql": sql,
                "copies": dict(copies),
                "time_s": time_s,
            }
            for database, sql, copies in jobs[start : start + together]
        ]
        inputs.append(json.dumps(encoded))
    most = max((len(copies) for _, _, copies in jobs), default=1) * together
    limits = Limits(time_s=time_s * most + 1, memory_mb=512 + 8 * (MAX_DATABASE >> 20))
    results: list[Results] = []
    for number, run in enumerate(
        run_program_on(_PROGRAM, inputs, limits=limits, allow_weak_sandbox=allow_weak_sandbox)
    ):
        part = jobs[number * together : (number + 1) * together]
        if run.verdict == AC:
            results += [
                {copy: _decode(result) for copy, result in zip(job[2], answers, strict=True)}
                for job, answers in zip(part, json.loads(run.stdout), strict=True)
            ]
        elif together > 1:
            results += _run(part, time_s=time_s, allow_weak_sandbox=allow_weak_sandbox)
        else:
            too_long = run.reason == signal.SIGPROF.name
            error = TOO_LONG.format(time_s) if too_long else f"{VERDICT_NAMES[run.verdict]} ({run.reason})"
            failed = _Result(error=error, sandbox_failed=run.verdict == SE)
            results.append(dict.fromkeys(part[0][2], failed))
    return results


def _decode(result: Mapping[str, Any]) -> _Result:
    if "error" in result:
        return _Result(error=result["error"])
    return _Result(len(result["columns"]), read_rows(result))
