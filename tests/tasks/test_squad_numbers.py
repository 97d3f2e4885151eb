"""Questions with a number as the answer, and the articles that answer them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from environments.retrieval import Retrieval
from rlvr.data.task import Task
from tasks.squad_numbers import squad_numbers
from tasks.text_to_sql import text_to_sql
from tests.support.environment_data import write_questions_on_articles
from tests.support.input_errors import input_error


def test_articles_are_found_and_splits_share_no_question(tmp_path: Path) -> None:
    options = {"path": str(write_questions_on_articles(tmp_path)), "folder": str(tmp_path / "texts")}
    task = squad_numbers(**options)
    assert (len(task.train), len(task.test)) == (32, 8)
    assert not set(task.train["question"]) & set(task.test["question"])
    search = Retrieval(folder=options["folder"], results=1)
    for row in (*task.train, *task.test):
        assert row["final_answer"] in search.search(row["question"])
        assert row["final_answer"] not in row["prompt"][0]["content"]
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "texts").iterdir()}
    assert squad_numbers(**options).train["id"] == task.train["id"]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "texts").iterdir()} == files, "written once"


@pytest.mark.parametrize(
    ("answers", "kept"),
    [(["42"], True), (["1,042.5", " 1,042.5 "], True), (["42 feet"], False), (["42", "43"], False), ([], False)],
)
def test_only_questions_with_one_number_are_kept(tmp_path: Path, answers: list[str], kept: bool) -> None:
    folder = write_questions_on_articles(tmp_path)
    row = {"title": "../A/B", "context": "Forty-two.", "question": "Which?", "answers": {"text": answers}}
    with (folder / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    task = squad_numbers(path=str(folder), folder=str(tmp_path / "texts"))
    assert ("Which?" in task.train["question"]) == kept
    assert (tmp_path / "texts" / ".._A_B.txt").read_text() == "Forty-two.\n"


@pytest.mark.parametrize("load", [squad_numbers, text_to_sql])
def test_a_missing_folder_or_column_is_an_error(load: Callable[..., Task], tmp_path: Path) -> None:
    with input_error("file-not-found"):
        load(path=str(tmp_path / "none"), folder=str(tmp_path / "data"))
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"title": "A", "question": "Which?", "sql_prompt": "Which?"}\n')
    with input_error("missing-column", row=0):
        load(path=str(tmp_path), folder=str(tmp_path / "texts"))
