"""Tasks whose references are letters, JSON or calls: what is left out, and no held-out row is trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr.data.task import Task
from tasks.function_calls import function_calls
from tasks.json_extraction import json_extraction
from tasks.multiple_choice import multiple_choice
from tests.support.data_files import write_rows
from tests.support.environment_data import write_calls, write_choices, write_extractions
from tests.support.input_errors import input_error

TABLE = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
# The task, and what writes data in its form.
TASKS: dict[str, tuple[Callable[..., Task], Callable[[Path], Path]]] = {
    "multiple_choice": (multiple_choice, write_choices),
    "json_extraction": (json_extraction, write_extractions),
    "function_calls": (function_calls, write_calls),
}


def add(folder: Path, *rows: dict[str, Any]) -> None:
    file = next(iter(sorted(folder.glob("*.jsonl"), reverse=True)))
    with file.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("name", TASKS)
def test_a_seed_gives_the_same_rows_and_splits_share_no_question(name: str, tmp_path: Path) -> None:
    load, write, *_ = TASKS[name]
    path = str(write(tmp_path))
    whole, again, other = (load(path=path, **options) for options in ({}, {}, {"seed": 7}))
    assert whole.train["id"] == again.train["id"] != other.train["id"]
    assert not {*whole.train["question"]} & {*whole.test["question"]}


def test_a_limit_takes_the_first_calls(tmp_path: Path) -> None:
    path = str(write_calls(tmp_path))
    whole, few = function_calls(path=path), function_calls(path=path, limit_train=5, limit_test=1)
    assert few.train["id"] == whole.train["id"][:5] and few.test["id"] == whole.test["id"][:1]


def test_held_out_schemas_are_new(tmp_path: Path) -> None:
    task = json_extraction(path=str(write_extractions(tmp_path)))
    assert len({*task.train["schema"]}) == 6 and len({*task.test["schema"]}) == 2
    assert not {*task.train["schema"]} & {*task.test["schema"]}


CALL = {"query": "Weigh it?", "tools": '[{"name": "weigh", "parameters": {"grams": {"type": "int"}}}]'}


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        ("multiple_choice", {"choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"}, "no such label"),
        ("multiple_choice", {"choices": ["a b", "a  b"], "answer": 0}, "equal choices"),
        ("multiple_choice", {"choices": ["a", ""], "answer": 0}, "an empty choice"),
        ("multiple_choice", {"choices": ["a", "b"], "answer": -1}, "not published"),
        ("multiple_choice", {"choices": ["a"], "answer": "A"}, "one choice"),
        ("multiple_choice", {"choices": None, "answer": "A"}, "no choices"),
        ("multiple_choice", {"question": " ", "choices": ["a", "b"], "answer": 0}, "an empty question"),
        ("multiple_choice", {"question": None, "choices": ["a", "b"], "answer": 0}, "no question"),
        ("function_calls", {**CALL, "query": "", "answers": '[{"name": "weigh", "arguments": {"grams": 1}}]'}, "empty"),
        ("json_extraction", {"text": "A new text", "schema": TABLE, "item": "{}"}, "not valid"),
        ("json_extraction", {"text": "A new text", "schema": '{"type": 7}', "item": "{}"}, "no schema"),
        ("json_extraction", {"text": "A new text", "schema": '{"$ref": "http://127.0.0.1:9/"}', "item": "{}"}, "apart"),
        ("json_extraction", {"text": "A new text", "schema": TABLE, "item": "{'a': 1}"}, "Python, not JSON"),
        ("function_calls", {**CALL, "answers": "[]"}, "no call"),
        ("function_calls", {**CALL, "answers": '[{"name": "stop", "arguments": {}}]'}, "an unknown function"),
        ("function_calls", {**CALL, "answers": '[{"name": "weigh", "arguments": {"g": 1}}]'}, "an unknown argument"),
        ("function_calls", {**CALL, "answers": '[{"name": "weigh", "arguments": {"grams": "one"}}]'}, "another type"),
        ("function_calls", {**CALL, "answers": '[{"name": "weigh", "arguments": {}}]'}, "a required one is missing"),
        ("function_calls", {**CALL, "tools": "{", "answers": "[]"}, "no JSON"),
    ],
)
def test_rows_without_a_usable_reference_are_left_out_and_counted(
    name: str, row: dict[str, Any], why: str, tmp_path: Path
) -> None:
    load, write, *_ = TASKS[name]
    folder = write(tmp_path)
    add(folder, {"question": "Which one?", **row})
    task = load(path=str(folder), test_fraction=0)
    assert len(task.train) == (40 if name == "json_extraction" else 32), why
    assert any("; left out: 1 with " in note for note in task.notes), why


def test_letters_may_be_small_and_numbers_count_from_0(tmp_path: Path) -> None:
    def load(*answers: object) -> Task:
        rows = [
            {"question": f"Which is it, {n}?", "choices": ["w", "x", "y", "z"], "answer": answer}
            for n, answer in enumerate(answers)
        ]
        write_rows(tmp_path / "rows.jsonl", rows)
        return multiple_choice(path=str(tmp_path / "rows.jsonl"), test_fraction=0)

    assert load("a", "D").train["final_answer"] == ["A", "D"]
    assert load(0, 3).train["final_answer"] == ["A", "D"]
    assert len(load(1, 2).train) == 2, "nothing says where they begin"
    with input_error("invalid-row"):
        load(1, 4)


@pytest.mark.parametrize(("name", "column"), [("multiple_choice", "question"), ("function_calls", "query")])
def test_a_training_row_that_repeats_a_held_out_one_is_left_out(name: str, column: str, tmp_path: Path) -> None:
    load, write, *_ = TASKS[name]
    folder = write(tmp_path)
    held_out = load(path=str(folder)).test[0]
    (folder / "train.jsonl").rename(folder / "rows.jsonl")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    rows[0][column] = f"Now then: {held_out['question'].upper()}"
    test = [{**rows[1], column: held_out["question"]}]
    (folder / "rows.jsonl").unlink()
    for split, content in (("train", rows), ("test", test)):
        write_rows(folder / f"{split}.jsonl", content)
    task = load(path=str(folder))
    assert held_out["question"].upper() not in " ".join(task.train["question"]) and len(task.test) == 1
    assert len(task.train) >= len(rows) - 2


def test_choices_are_shuffled_by_the_seed_but_not_those_that_name_others(tmp_path: Path) -> None:
    folder = write_choices(tmp_path)
    add(folder, *({"question": f"Free {n}?", "choices": ["a", "b", "c", "d"], "answer": 0} for n in range(40)))
    orders = [multiple_choice(path=str(folder), shuffle_choices=True, seed=seed) for seed in (1, 1, 2)]
    kept = multiple_choice(path=str(folder), seed=1)
    columns = [{row["id"]: (row["choices"], row["final_answer"]) for row in task.train} for task in (*orders, kept)]
    assert columns[0] == columns[1] != columns[2]
    free = [row for row in orders[0].train if row["question"].startswith("Free")]
    assert {row["final_answer"] for row in free} == {*"ABCD"}
    assert all(row["choices"]["ABCD".index(row["final_answer"])] == "a" for row in free)
    bound = {id for id, (choices, _) in columns[3].items() if "none of the above" in choices}
    assert bound and all(columns[0][id] == columns[3][id] for id in bound & columns[0].keys())


@pytest.mark.parametrize(
    ("load", "options", "kind", "key"),
    [
        (multiple_choice, {"path": "none.jsonl"}, "file-not-found", None),
        (function_calls, {"test_fraction": 1}, "invalid-value", "test_fraction"),
        (function_calls, {"limit_test": 0}, "invalid-value", "limit_test"),
    ],
)
def test_options_and_files_that_are_wrong_are_named(
    load: Callable[..., Task], options: dict[str, Any], kind: str, key: str | None, tmp_path: Path
) -> None:
    write = {multiple_choice: write_choices, json_extraction: write_extractions, function_calls: write_calls}[load]
    with input_error(kind, key):
        load(**{"path": str(write(tmp_path)), **options})


@pytest.mark.parametrize(
    ("name", "row", "key"),
    [
        ("function_calls", {"query": "Weigh it?", "answers": "[]"}, "tools"),
        ("multiple_choice", {"question": "Which one?", "choices": ["a", "b"]}, "answerKey"),
    ],
)
def test_a_missing_column_is_named_with_its_row(name: str, row: dict[str, Any], key: str, tmp_path: Path) -> None:
    load, write, *_ = TASKS[name]
    add(write(tmp_path), row)
    with input_error("missing-column", key, 32):
        load(path=str(tmp_path), test_fraction=0)
