"""The reward for text-to-SQL in one turn: right rows, hard-coded rows, and queries that attack the machine."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rewards.sql_result import sql_result, validate_rows
from rlvr.preflight.data_checks import WARNING
from rlvr.sandbox.zygote_client import ZygoteError
from rlvr.verifiers.code.executor import Executor
from rlvr.verifiers.sql_judge import MAX_DATABASE
from rlvr.verifiers.sql_queries import COPIES, HALVES, MOVED, open_copy
from tests.support.cases import cases
from tests.support.input_errors import input_error

SHOP = """
CREATE TABLE towns (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, region TEXT, people INT);
CREATE TABLE shops (id INTEGER PRIMARY KEY, town_id INT REFERENCES towns (id), label TEXT, opened TEXT);
CREATE TABLE sales (shop_id INT REFERENCES shops (id), item TEXT, price REAL CHECK (price > 0), pieces INT, note TEXT);
CREATE TRIGGER no_change BEFORE DELETE ON sales BEGIN SELECT RAISE(ABORT, 'kept'); END;
"""
TOWNS = [
    ("Varn", "north", 1200),
    ("Ost", "north", 800),
    ("Kell", "south", 4100),
    ("Brim", "south", 300),
    ("Dale", "west", 950),
    ("Fenn", "west", 2750),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("databases")
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        connection.executescript(SHOP)
        connection.executemany("INSERT INTO towns (name, region, people) VALUES (?, ?, ?)", TOWNS)
        shops = [(n % 6 + 1, f"shop {n}", f"20{n + 10}-0{n % 3 + 1}-15") for n in range(9)]
        connection.executemany("INSERT INTO shops (town_id, label, opened) VALUES (?, ?, ?)", shops)
        sales = [
            (
                n * 5 % 9 + 1,
                ("jar", "lamp", "rope", "oar")[n * 3 % 4],
                1.5 + n * 7 % 23,
                n % 5 + 1,
                None if n % 3 else "x",
            )
            for n in range(36)
        ]
        connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?)", sales)
    (folder / "text.db").write_text("no database")
    (folder / "large.db").write_bytes(b"SQLite format 3\x00" + bytes(MAX_DATABASE))
    return folder


# A right query, and another one that means the same.
EQUAL = cases(__file__, "equal")


def score(folder: Path, gold: str, *queries: str, **options: Any) -> list[float | None]:
    completions = [f"So:\n```sql\n{query}\n```" for query in queries]
    rows = {"database": ["shop.db"] * len(queries), "gold_query": [gold] * len(queries)}
    return sql_result([""] * len(queries), completions, folder=str(folder), **rows, **options)


def literal(value: Any) -> str:
    return "NULL" if value is None else repr(value)


def hard_coded(folder: Path, gold: str) -> str:
    """The cheat: the rows of the right answer, written down."""
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        rows = connection.execute(gold).fetchall()
    return "VALUES " + ", ".join(f"({', '.join(map(literal, row))})" for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(("gold", "equal"), EQUAL)
def test_equal_queries_earn_1_and_hard_coded_rows_nothing(folder: Path, gold: str, equal: str) -> None:
    assert score(folder, gold, gold, equal, hard_coded(folder, gold)) == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(("gold", "query", "reward", "why"), cases(__file__, "types"))
def test_rows_are_compared_with_their_types(folder: Path, gold: str, query: str, reward: float, why: str) -> None:
    assert score(folder, gold, query) == [reward], why


BLOCK = "```sql\nSELECT count(*) FROM towns\n```"


@pytest.mark.parametrize(
    ("completion", "reward", "why"),
    [
        (f"Here it is:\n{BLOCK}\nIt counts them.", 1.0, "a block"),
        (BLOCK.replace("sql", "sqlite"), 1.0, "another label"),
        (BLOCK.replace("sql", ""), 1.0, "no label"),
        ("SELECT count(*) FROM towns;", 1.0, "the whole turn"),
        (f"{BLOCK}\n```sql\nSELECT 1\n```", 0.0, "the last block is wrong"),
        (f"<think>{BLOCK}</think>SELECT 1", 0.0, "only in thoughts"),
        ("```python\nSELECT count(*) FROM towns\n```", 0.0, "another language"),
        ("The answer is 6.", 0.0, "no query"),
        ("", 0.0, "nothing"),
    ],
)
def test_the_query_is_the_last_block_or_the_whole_turn(folder: Path, completion: str, reward: float, why: str) -> None:
    columns = {"database": ["shop.db"] * 2, "gold_query": ["SELECT count(*) FROM towns"] * 2, "folder": str(folder)}
    chat = [{"role": "assistant", "content": completion}]
    assert sql_result(["", []], [completion, chat], **columns) == [reward, reward], why


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
SLOW = "instr(zeroblob(1000000), zeroblob(500000) || x'01')"
ATTACKS = [
    ("ATTACH '@FOLDER@/stolen.db' AS other", "another file"),
    ("VACUUM INTO '@FOLDER@/stolen.db'", "a copy of the database"),
    ("PRAGMA writable_schema = 1", "a setting"),
    ("SELECT * FROM pragma_database_list", "a pragma as a table"),
    ("SELECT load_extension('/tmp/x.so')", "code"),
    ("SELECT writefile('@FOLDER@/stolen.db', 'x')", "a function of the shell"),
    ("SELECT readfile('/etc/passwd')", "a function of the shell"),
    ("SELECT fts3_tokenizer('simple')", "an address in memory"),
    ("DELETE FROM towns", "a change"),
    ("WITH t AS (SELECT 1) DELETE FROM towns RETURNING 6", "a change that returns"),
    ("CREATE TEMP TABLE towns AS SELECT 1", "a table in front of another"),
    ("SELECT 6; DELETE FROM towns", "two statements"),
    ("SELECT abs(random()) % 12", "chance"),
    (f"{ENDLESS} SELECT count(*) FROM n", "a recursion without end"),
    (f"{ENDLESS} SELECT group_concat(i) FROM n", "a text without end"),
    ("SELECT count(*) FROM sales a, sales b, sales c, sales d, sales e, sales f", "a cross join"),
    ("SELECT a.* FROM sales a, sales b, sales c, sales d ORDER BY a.price * b.price", "a sort of 1.7 million rows"),
    ("SELECT zeroblob(2000000000)", "2 GB at once"),
    (f"SELECT {' + '.join([SLOW] * 40)}", "functions that no handler interrupts"),
    ("SELECT printf('%.*c', 2147483647, 'x')", "one such function"),
    (f"SELECT {'(' * 3000}1{')' * 3000}", "nested brackets"),
    (f"SELECT {'1 + ' * 20_000}1", "a query of 80,000 characters"),
    (f"SELECT {', '.join(['hex(zeroblob(400000))'] * 100)}", "a result of 80 MB"),
]


@pytest.mark.slow
def test_attacks_earn_nothing_change_nothing_and_end(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    queries = [query.replace("@FOLDER@", str(folder)) for query, _ in ATTACKS]
    gold = "SELECT count(*) FROM towns"
    rewards = score(folder, gold, gold, *queries, gold, time_s=0.2)
    assert rewards == [1.0, *[0.0] * len(queries), 1.0]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_the_copies_of_a_database_keep_its_rules(folder: Path) -> None:
    content = (folder / "shop.db").read_bytes()
    towns: dict[str, list[tuple[Any, ...]]] = {}
    for copy in COPIES:
        with closing(open_copy(content, copy)) as connection:
            towns[copy] = connection.execute("SELECT name, region, people FROM towns").fetchall()
            if copy != MOVED:
                assert not connection.execute("PRAGMA foreign_key_check").fetchall(), "each key leads somewhere"
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert sorted(towns[HALVES[0]] + towns[HALVES[1]]) == sorted(TOWNS)
    assert not set(towns[MOVED]) & set(TOWNS)
    for moved, original in zip(zip(*towns[MOVED], strict=True), zip(*TOWNS, strict=True), strict=True):
        assert sorted(moved) == sorted(original), "each column has its values"


GOLD = "SELECT count(*) FROM towns"


@pytest.mark.parametrize(
    ("database", "gold", "key", "why"),
    [
        ("none.db", GOLD, "database", "no file"),
        ("text.db", GOLD, "database", "no database"),
        ("large.db", GOLD, "database", "larger than a copy may be"),
        ("../shop.db", GOLD, "database", "outside of the folder"),
        (None, GOLD, "database", "empty"),
        ("shop.db", "SELECT count(*) FROM cities", "gold_query", "no such table"),
        ("shop.db", "DELETE FROM towns", "gold_query", "a change"),
        ("shop.db", "-- nothing", "gold_query", "no table"),
        ("shop.db", f"{ENDLESS} SELECT i FROM n", "gold_query", "too many rows"),
        ("shop.db", " ", "gold_query", "empty"),
    ],
)
def test_a_row_that_cannot_judge_is_named_before_training(
    folder: Path, database: Any, gold: str, key: str, why: str
) -> None:
    columns = {"database": ["shop.db", database], "gold_query": [GOLD, gold], "folder": str(folder)}
    faults = validate_rows(**columns)
    assert faults[0] is None and faults[1] and key in faults[1], why
    with input_error("invalid-row", key, why=why):
        sql_result(["", ""], ["SELECT 6", "no query"], **columns)


def test_a_row_on_which_a_constant_is_right_has_a_warning(folder: Path) -> None:
    columns = {"database": ["shop.db"] * 2, "gold_query": [GOLD, "SELECT count(*) > 0 FROM towns"]}
    faults = validate_rows(**columns, folder=str(folder))
    assert faults[0] is None and str(faults[1]).startswith(WARNING)


def test_a_column_says_whether_the_order_counts(folder: Path) -> None:
    queries = ("SELECT name FROM towns ORDER BY 1", "SELECT name FROM towns ORDER BY 1 DESC")
    assert score(folder, queries[0], *queries, ordered=[False, False]) == [1.0, 1.0]
    assert score(folder, queries[0], *queries, ordered=[None, None]) == [1.0, 0.0]


def test_a_sandbox_that_fails_gives_no_reward(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZygoteError("no memory", kind="no-answer")

    monkeypatch.setattr(Executor, "run", fail)
    assert score(folder, "SELECT 1 + 0", "SELECT 1") == [None]
