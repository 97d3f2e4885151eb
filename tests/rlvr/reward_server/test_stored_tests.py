"""Stored tests: rows of a file by their id."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.errors import InputError
from rlvr.reward_server.request_limits import RequestError
from rlvr.reward_server.stored_tests import StoredTests


@pytest.mark.parametrize(
    ("lines", "kind", "line", "why"),
    [
        (['{"id": 1}', "{"], "invalid-json", 2, "a truncated line"),
        (['{"tests": []}'], "invalid-json", 1, "a row that no request can name"),
        (['{"id": 1}', '{"id": "1"}'], "duplicate-id", 2, "one of the two would never be found"),
    ],
)
def test_an_invalid_file_of_tests_is_refused(tmp_path: Path, lines: list[str], kind: str, line: int, why: str) -> None:
    file = tmp_path / "tests.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError) as error:
        StoredTests(file)
    assert (error.value.kind, error.value.problems[0].line) == (kind, line), why


def test_a_changed_file_never_answers_with_another_row(tmp_path: Path) -> None:
    file = tmp_path / "tests.jsonl"
    file.write_text('{"id": "a", "tests": [1]}\n{"id": "b", "tests": [2]}\n', encoding="utf-8")
    stored = StoredTests(file)
    assert len(stored) == 2 and stored.row("b")["tests"] == [2]
    file.write_text('{"id": "x", "tests": [9]}\n{"id": "y", "tests": [9]}\n', encoding="utf-8")
    with pytest.raises(RequestError) as error:
        stored.row("b")
    assert error.value.kind == "tests-changed"
