"""Rows are read as they stand, faults are named with their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.data.io import find_split_files, pack, read_rows, unpack
from rlvr.data.splits import to_datasets
from rlvr.errors import InputError
from tests.support.input_errors import input_error


@pytest.mark.parametrize(
    ("name", "content", "rows", "why"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}], "one object a line"),
        ("a.jsonl", '\n{"a": 1}\n\n', [{"a": 1}], "blank lines"),
        ("a.jsonl", '{"a": "x\u2028y"}', [{"a": "x\u2028y"}], "a line separator within a string is no line end"),
        ("a.jsonl", '\ufeff{"a": 1}', [{"a": 1}], "a byte order mark"),
        ("a.json", '[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}], "a list"),
        ("a.json", '{"a": 1}\n{"a": 2}', [{"a": 1}, {"a": 2}], "JSONL by another name"),
        ("a.jsonl", '{"a": "2024-01-01"}\n{"a": "007"}', [{"a": "2024-01-01"}, {"a": "007"}], "text stays text"),
    ],
)
def test_reads(tmp_path: Path, name: str, content: str, rows: list[dict], why: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read_rows(tmp_path / name) == rows, why


@pytest.mark.parametrize(
    ("name", "content", "kind", "line", "row", "why"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', "invalid-json", 2, None, "broken JSON"),
        ("a.json", '[{"a": 1},\n{"a" 2}]', "invalid-json", 2, None, "broken JSON in a list"),
        ("a.jsonl", '{"a": 1}\n[1]\n', "invalid-row", 2, 1, "a line that is no object"),
        ("a.json", "[1]", "invalid-row", None, 0, "an entry that is no object"),
        ("a.jsonl", "", "empty-data", None, None, "an empty file"),
        ("a.jsonl", "\n\n", "empty-data", None, None, "blank lines only"),
        ("a.csv", "a,b", "unreadable-file", None, None, "another format"),
        ("a.parquet", "PAR", "unreadable-file", None, None, "broken parquet"),
        ("a.jsonl", '{"a": ' + "[" * 100_000, "invalid-json", 1, None, "nesting without end"),
    ],
)
def test_errors_name_the_file_line_and_row(
    tmp_path: Path, name: str, content: str, kind: str, line: int | None, row: int | None, why: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_rows(tmp_path / name)
    (problem,) = error.value.problems
    assert (problem.kind, problem.path, problem.line, problem.row) == (kind, str(tmp_path / name), line, row), why


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}")
    for name, hint in (("trian.jsonl", "Did you mean train.jsonl"), ("nowhere/a.jsonl", f"folder {tmp_path}/nowhere")):
        with input_error("file-not-found") as error:
            read_rows(tmp_path / name)
        assert hint in str(error.value)


def test_reads_parquet(tmp_path: Path) -> None:
    to_datasets(train=[{"a": "x"}, {"a": "y"}])["train"].to_parquet(tmp_path / "a.parquet")
    assert read_rows(tmp_path / "a.parquet") == [{"a": "x"}, {"a": "y"}]


def test_finds_the_file_of_a_split_by_its_name(tmp_path: Path) -> None:
    for name in ("gsm8k_train.jsonl", "test-00000-of-00002.parquet", "test-00001-of-00002.parquet", "notes.txt"):
        (tmp_path / name).write_text("")
    assert [file.name for file in find_split_files(tmp_path, "train")] == ["gsm8k_train.jsonl"]
    assert len(find_split_files(tmp_path, "test")) == 2
    assert find_split_files(tmp_path, "validation") == []
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / "rows.jsonl").touch()
    assert [file.name for file in find_split_files(tmp_path, "validation")] == ["rows.jsonl"], "a channel of a job"
    (tmp_path / "train.jsonl").write_text("")
    with input_error("ambiguous-split"):
        find_split_files(tmp_path, "train")


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(max_size=3) | st.integers() | st.tuples(st.integers(), st.integers()), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(JSON_LIKE)
def test_what_is_packed_comes_out_the_same(value: object) -> None:
    assert unpack(pack(value)) == value
    json.loads(pack(value))


def test_narrow_floats_of_a_parquet_file_are_the_decimals_that_they_stand_for(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    written = [49.1, 0.1, None, 1e-5, 16777216.0]
    table = pyarrow.table(
        {"single": pyarrow.array(written, pyarrow.float32()), "double": pyarrow.array(written, pyarrow.float64())}
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    rows = read_rows(tmp_path / "a.parquet")
    assert [row["single"] for row in rows] == [row["double"] for row in rows] == written
