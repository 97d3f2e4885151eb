"""Load questions about small databases, for the environment sqlite or the reward sql_result.

The data is gretelai/synthetic_text_to_sql (Apache 2.0). A row has a question, SQL that creates and fills tables, and
the query that answers the question. The task writes each database to a SQLite file. Rows are kept if SQLite runs the
query, and the result has more than NULL, 0 or empty text. The data has other dialects, too.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rlvr import Task
from rlvr.data.io import Row, read_splits
from rlvr.data.splits import to_datasets
from rlvr.data.usable_rows import usable_rows
from rlvr.verifiers.sql_judge import MAX_ROWS
from rlvr.verifiers.sql_queries import COPIES, SCHEMA, authorize, open_copy
from rlvr.verifiers.sql_results import same_rows

HUB_DATASET = "gretelai/synthetic_text_to_sql"
COLUMNS = ("sql_prompt", "sql_context", "sql")
MAX_STEPS = 2000  # thousands of SQLite's instructions per row. Seconds would keep other rows on a busy machine
# While a database is made: other files, settings, code.
_REFUSED = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_CREATE_VTABLE}
INSTRUCTION = "Query the database with the tool query. Then give the answer with the tool answer: one SELECT of SQLite."
SINGLE_TURN = "Answer with one SELECT of SQLite, in a block that begins with ```sql."


def text_to_sql(
    *,
    path: str | None = None,
    folder: str = "data/text-to-sql",
    limit_train: int | None = 5000,
    limit_test: int | None = 500,
    single_turn: bool = False,
    seed: int = 42,
) -> Task:
    """Load questions, and write their databases.

    Args:
        path: a folder with train and test files, or a dataset of the hub, with the same columns. None downloads the
            dataset, or uses the cached copy.
        folder: the folder for the databases. Set the environment's option `folder` to the same folder.
        limit_train, limit_test: maximum number of usable rows of a split, drawn at random. None for all.
        single_turn: write prompts with the tables, for the reward `sql_result`. Rows are left out if a constant would
            score 1: no changed copy of the database (rlvr/verifiers/sql_judge.py) changes their answer. By default,
            prompts are for the environment's tools.
        seed: seed of the draw.

    Rows have `prompt`, `question`, `database`, `gold_query`, `source` and `id`.
    """
    name = "text_to_sql"
    raw = read_splits(name, path, HUB_DATASET)
    Path(folder).mkdir(parents=True, exist_ok=True)
    splits, notes = usable_rows(
        name,
        path or HUB_DATASET,
        raw,
        COLUMNS,
        lambda row, number, split: _convert(row, number, split, Path(folder), single_turn),
        test_fraction=0,
        seed=seed,
        limit_train=limit_train,
        limit_test=limit_test,
    )
    return Task(**to_datasets(**splits), notes=tuple(notes), gold=_gold if single_turn else None, answer="gold_query")


def _gold(row: Mapping[str, Any]) -> str:
    return f"```sql\n{row['gold_query']}\n```"


def _convert(row: Row, number: int, split: str, folder: Path, single_turn: bool) -> Row | str:
    """Write the database of a row. Return our row, or why the row can't be used."""
    if not all(isinstance(row[column], str) for column in COLUMNS):
        return "a value that is not text"
    question, context, gold = (row[column].strip() for column in COLUMNS)
    file = folder / f"{hashlib.blake2b(context.encode(), digest_size=12).hexdigest()}.db"
    try:
        tables = _prepare(file, context, gold, single_turn)
    except ValueError as reason:
        return str(reason)
    asked = f"The database:\n{tables}\n\n{SINGLE_TURN}" if single_turn else INSTRUCTION
    return {
        "prompt": [{"role": "user", "content": f"{question}\n\n{asked}"}],
        "question": question,
        "database": file.name,
        "gold_query": gold,
        "source": "text_to_sql",
        "id": f"text_to_sql-{split}-{row.get('id', number)}",
    }


def _prepare(file: Path, context: str, gold: str, single_turn: bool) -> str:
    """Create the database, try the reference query, and return the tables.

    Raises:
        ValueError: why they can't be used.
    """
    if not gold.lower().startswith(("select", "with")):
        raise ValueError("no SELECT")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action in _REFUSED else sqlite3.SQLITE_OK)
        _limit_steps(connection)
        try:
            connection.executescript(context)
            connection.commit()
            connection.set_authorizer(None)
            content = connection.serialize()
            tables = "\n".join(sql for (sql,) in connection.execute(SCHEMA))
            rows = _query(connection, gold)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise ValueError("SQL that SQLite can't run") from error
    # A wrong query often returns nothing, NULL or 0 as well.
    if all(value in (None, 0, "") for row in rows for value in row):
        raise ValueError("an empty answer")
    if single_turn and not any(_differs_on(copy, content, gold, rows) for copy in COPIES):
        raise ValueError("an answer that every copy of the database gives")
    if not file.exists():
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(content)
        part.replace(file)
    return tables


def _limit_steps(connection: sqlite3.Connection) -> None:
    steps = itertools.count()
    connection.set_progress_handler(lambda: next(steps) > MAX_STEPS, 1000)


def _query(connection: sqlite3.Connection, gold: str) -> list[Any]:
    connection.set_authorizer(authorize)
    return connection.execute(gold).fetchmany(MAX_ROWS)


def _differs_on(copy: str, content: bytes, gold: str, rows: Sequence[tuple[Any, ...]]) -> bool:
    try:
        with closing(open_copy(content, copy)) as connection:
            _limit_steps(connection)
            return not same_rows(_query(connection, gold), rows, ordered=True)
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        return False
