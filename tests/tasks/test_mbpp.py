"""MBPP in both of its versions: splits by task_id, asserts as tests, and what the prompt shows of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr import judge
from rlvr.config.specs import TaskSpec
from rlvr.scoring.registry import load_task
from tasks.mbpp import mbpp
from tests.support.cases import cases
from tests.support.data_files import write_rows
from tests.support.input_errors import input_error


def full(number: int, **fields: Any) -> dict[str, Any]:
    """A row of the full version, whose function adds its number."""
    return {
        "task_id": number,
        "text": f"Write a function to add {number}.",
        "code": f"def add(n):\r\n  return n + {number}",
        "test_list": [f"assert add({n}) == {n + number}" for n in range(3)],
        "test_setup_code": "",
        **fields,
    }


def sanitized(number: int, **fields: Any) -> dict[str, Any]:
    """A row of the sanitized version, whose tests need an import."""
    return {
        "source_file": "x.ipynb",
        "task_id": number,
        "prompt": f"Write a function to halve {number}.",
        "code": "def halve(n):\n    return n / 2",
        "test_imports": ["import math"],
        "test_list": [f"assert math.isclose(halve({n}), {n / 2})" for n in range(3)],
        **fields,
    }


NUMBERS = (1, 10, 11, 510, 511, 600, 601, 974)


@pytest.mark.parametrize("name", ["mbpp.jsonl", "mbpp.json", "mbpp.parquet"])
@pytest.mark.parametrize("version", [full, sanitized])
def test_rows_go_to_the_papers_splits(tmp_path: Path, version: Any, name: str) -> None:
    task = mbpp(path=write_rows(tmp_path / name, [version(number) for number in NUMBERS]))
    ids = {split: list(task.split(split)["id"]) for split in ("train", "validation", "test")}
    assert ids == {
        "train": ["mbpp-601", "mbpp-974"],
        "validation": ["mbpp-511", "mbpp-600"],
        "test": ["mbpp-11", "mbpp-510"],
    }


def test_a_folder_of_the_hubs_files_is_read_as_one(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    write_rows(tmp_path / "full" / "train-00000-of-00001.parquet", [full(601)])
    write_rows(tmp_path / "full" / "test-00000-of-00001.parquet", [full(11)])
    task = mbpp(path=str(tmp_path))
    assert (len(task.train), len(task.validation), len(task.test)) == (1, 0, 1)


@pytest.mark.parametrize("version", [full, sanitized])
def test_a_row_has_the_columns_that_code_rewards_read_and_no_solution(tmp_path: Path, version: Any) -> None:
    original = version(601)
    row = mbpp(path=write_rows(tmp_path / "mbpp.jsonl", [original])).train[0]
    assert row["entry_point"] == ("add" if version is full else "halve")
    assert (row["language"], row["source"], row["id"]) == ("python", "mbpp", "mbpp-601")
    assert row["public_tests"] == row["tests"][:1] and len(row["tests"]) == 3
    assert original["code"] not in json.dumps(row)


@pytest.mark.parametrize("version", [full, sanitized])
def test_each_test_passes_for_the_solution_and_for_no_stub(tmp_path: Path, version: Any) -> None:
    row = mbpp(path=write_rows(tmp_path / "mbpp.jsonl", [version(601)])).train[0]
    for test in row["tests"]:
        names: dict[str, Any] = {}
        exec(version(601)["code"], names)
        exec(test["assert"], names)
        exec(f"def {row['entry_point']}(n):\n    return -1", names)
        with pytest.raises(AssertionError):
            exec(test["assert"], names)


@pytest.mark.parametrize(("options", "in_prompt", "scored", "why"), cases(__file__, "shown and scored asserts"))
def test_shown_and_scored_asserts_are_options(
    tmp_path: Path, options: dict, in_prompt: list[int], scored: list[int], why: str
) -> None:
    row = mbpp(path=write_rows(tmp_path / "mbpp.jsonl", [full(601)]), **options).train[0]
    content = row["prompt"][0]["content"]
    assert [n for n in (0, 1, 2) if f"assert add({n}) ==" in content] == in_prompt, why
    assert [test["assert"] for test in row["tests"]] == [f"assert add({n}) == {n + 601}" for n in scored], why
    assert [test["assert"] for test in row["public_tests"]] == [f"assert add({n}) == {n + 601}" for n in in_prompt]
    assert "add" in content  # the function's name is known even where no assert shows it


def test_statements_that_the_tests_need_run_in_front_of_each_and_are_shown(tmp_path: Path) -> None:
    setup = "root = Node(1) \r\nroot.left = Node(2)"
    row = full(601, test_setup_code=setup, test_list=["assert depth(root) == 2", "assert depth(root.left) == 1"])
    row = mbpp(path=write_rows(tmp_path / "mbpp.jsonl", [row])).train[0]
    assert [test["assert"].split("\n") for test in row["tests"]] == [
        ["root = Node(1) ", "root.left = Node(2)", "assert depth(root) == 2"],
        ["root = Node(1) ", "root.left = Node(2)", "assert depth(root.left) == 1"],
    ]
    assert "root.left = Node(2)\nassert depth(root) == 2" in row["prompt"][0]["content"]


def test_what_a_held_out_split_asks_is_not_trained_on(tmp_path: Path) -> None:
    rows = [full(601), full(602, text="Write a function  to add 11."), full(11)]
    task = mbpp(path=write_rows(tmp_path / "mbpp.jsonl", rows))
    assert list(task.train["id"]) == ["mbpp-601"]
    assert any("Dropped 1 training rows" in note for note in task.notes)


def test_tasks_without_usable_tests_are_dropped_and_named(tmp_path: Path) -> None:
    broken = {602: [], 603: ["add(1)"], 604: ["assert add(1"], 605: ["assert True"]}
    rows = [full(601), *(full(number, test_list=asserts) for number, asserts in broken.items())]
    task = mbpp(path=write_rows(tmp_path / "mbpp.jsonl", rows))
    assert list(task.train["id"]) == ["mbpp-601"]
    for number in broken:
        assert any(note.startswith("Dropped ") and str(number) in note for note in task.notes), number


@pytest.mark.parametrize(
    ("rows", "options", "kind", "key", "row", "why"),
    [
        ([full(601)], {"version": "clean"}, "invalid-option", "version", None, "an unknown version"),
        ([full(601)], {"shown": -1}, "invalid-value", "shown", None, "fewer than no asserts"),
        ([full(601)], {"tests": "private"}, "invalid-option", "tests", None, "unknown tests"),
        ([full(601)], {"path": "mbpp.jsonI"}, "file-not-found", None, None, "a misspelt file"),
        ([full(11)], {}, "empty-data", "path", None, "nothing to train on"),
        ([full(601)], {"shown": 3, "tests": "hidden"}, "empty-data", "path", None, "all are shown"),
        ([full(601), full(601)], {}, "invalid-row", "task_id", 1, "two versions in one folder"),
        ([{"text": "x"}], {}, "missing-column", "task_id", 0, "another data set"),
        ([full(601, task_id="601")], {}, "invalid-row", "task_id", 0, "a task_id that is text"),
        ([full(601, text="")], {}, "invalid-row", "text", 0, "no text"),
    ],
)
def test_invalid_input_is_refused(
    tmp_path: Path, rows: list, options: dict, kind: str, key: str | None, row: int | None, why: str
) -> None:
    file = write_rows(tmp_path / "mbpp.jsonl", rows)
    with input_error(kind, key, row, why=why) as error:
        load_task(TaskSpec("mbpp", {"path": str(tmp_path) if row else file, **options}))
    assert row is None or str(tmp_path / "mbpp.jsonl") in str(error.value), why


def test_a_faulty_program_fails_a_test_and_stays_out_of_the_prompt(tmp_path: Path) -> None:
    rows = [full(number) for number in (11, 601, 602)] + [full(603, code="def add(n):\n    return sum([n, m])")]
    options = {"path": write_rows(tmp_path / "mbpp.jsonl", rows), "answer_format": "tool", "tests": "hidden"}
    task = mbpp(**options, faulty=True)
    assert [row["id"] for row in task.train] == ["mbpp-601", "mbpp-602"], "nothing can be changed in 603"
    for row in [*task.train, *task.test]:
        for column, passes in (("faulty_program", False), ("solution", True)):
            assert (judge(row[column], language="python", tests=row["tests"]).score == 1) == passes
        assert "Submit the whole program with the tool submit." in row["prompt"][0]["content"]
        assert "return" not in row["prompt"][0]["content"]
    assert mbpp(**options, faulty=True).train.to_list() == task.train.to_list(), "the seed decides"
    assert "solution" not in mbpp(**options).train.column_names
