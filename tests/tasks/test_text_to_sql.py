"""Questions about databases: rows that SQLite can judge, each with its database, and no row in two splits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from environments.sqlite import Sqlite, play_reference
from rewards.sql_result import sql_result
from tasks.text_to_sql import text_to_sql
from tests.support.environment_data import write_questions_on_tables

TABLE = "CREATE TABLE jars (grams INT); INSERT INTO jars VALUES (7);"
GOLD = "SELECT 7"


def add(folder: Path, context: str, gold: str) -> None:
    with (folder / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"sql_prompt": "A bad row?", "sql_context": context, "sql": gold}) + "\n")


@pytest.mark.slow
def test_the_gold_query_answers_each_question_and_a_seed_gives_the_same_rows(tmp_path: Path) -> None:
    options = {"path": str(write_questions_on_tables(tmp_path)), "folder": str(tmp_path / "databases")}
    task = text_to_sql(**options)
    assert (len(task.train), len(task.test)) == (32, 8)
    assert not set(task.train["question"]) & set(task.test["question"])
    for row in (*task.train.select(range(8)), *task.test.select(range(2))):
        played = Sqlite(folder=options["folder"])
        played.reset(**row)
        assert played.get_reward() == 0.0 and row["gold_query"] not in row["prompt"][0]["content"]
        play_reference(played, **row)
        assert played.get_reward() == 1.0
    again = text_to_sql(**options, limit_train=5)
    assert again.train["id"] == task.train["id"][:5] and again.test["id"] == task.test["id"]


def test_a_question_of_one_turn_shows_the_tables_and_its_gold_earns_the_reward(tmp_path: Path) -> None:
    source = write_questions_on_tables(tmp_path)
    add(source, TABLE, GOLD)
    folder = str(tmp_path / "databases")
    task = text_to_sql(path=str(source), folder=folder, single_turn=True)
    assert len(task.train) == 32, "no changed copy tells a constant apart"
    assert task.gold is not None
    rows = task.train.select(range(2))
    columns = {name: list(rows[name]) for name in ("database", "gold_query")}
    assert all("CREATE TABLE jars (grams INT)" in prompt[-1]["content"] for prompt in rows["prompt"])
    assert sql_result(list(rows["prompt"]), [task.gold(row) for row in rows], folder=folder, **columns) == [1.0, 1.0]
    assert sql_result(list(rows["prompt"]), ["SELECT 1", "SELECT 1"], folder=folder, **columns) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("context", "gold", "why"),
    [
        (TABLE, "DELETE FROM jars", "no SELECT"),
        (TABLE, "SELECT * FROM jars WHERE grams > 9", "an empty answer"),
        (TABLE, "SELECT count(*) FROM jars WHERE grams > 9", "an answer that most wrong queries have"),
        (TABLE, "SELECT EXTRACT(YEAR FROM grams) FROM jars", "another dialect"),
        (TABLE, "SELECT 1; SELECT 2", "two statements"),
        (TABLE, "WITH one AS (SELECT 1) DELETE FROM jars RETURNING 7", "it writes"),
        (TABLE, "SELECT abs(random())", "chance"),
        ("CREATE TABLE (", "SELECT 1", "a database that can't be made"),
        (f"ATTACH '@FOLDER@/other.db' AS other; {TABLE}", GOLD, "another file"),
        (f"{TABLE} PRAGMA writable_schema = 1;", GOLD, "a setting of SQLite"),
        ("CREATE TABLE j AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n", GOLD, "loop"),
    ],
)
def test_rows_that_sqlite_cannot_judge_are_left_out(tmp_path: Path, context: str, gold: str, why: str) -> None:
    folder = write_questions_on_tables(tmp_path)
    add(folder, context.replace("@FOLDER@", str(tmp_path)), gold)
    task = text_to_sql(path=str(folder), folder=str(tmp_path / "databases"))
    assert len(task.train) == 32 and "A bad row?" not in task.train["question"], why
    assert not (tmp_path / "other.db").exists()
