"""What is kept in a journal survives a kill at any byte, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.append_log import Journal, JournalError, read_journal

SETTINGS = {"model": "m", "sampling": None}
LINES = [{"key": "a", "text": "one\nline"}, {"key": "b", "text": "zwei ☃"}, {"key": "c", "text": "\u2028"}]


def written(path: Path) -> bytes:
    journal = Journal(path, SETTINGS)
    journal.add(LINES[:1])
    journal.add(LINES[1:])
    journal.close()
    return path.read_bytes()


def test_what_was_added_is_read_again(tmp_path: Path) -> None:
    written(tmp_path / "j.jsonl")
    assert read_journal(tmp_path / "j.jsonl") == (SETTINGS, LINES)
    assert read_journal(tmp_path / "none.jsonl") == (None, [])


def test_a_kill_at_any_byte_costs_the_line_that_was_being_written_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    whole = written(path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        complete = whole[:size].count(b"\n")
        settings, lines = read_journal(path)
        assert (settings, lines) == (SETTINGS if complete else None, LINES[: max(complete - 1, 0)])
        journal = Journal(path, SETTINGS)
        journal.add([{"key": "next"}])
        journal.close()
        assert read_journal(path) == (SETTINGS, [*lines, {"key": "next"}])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"hello\n", "no JSON"),
        (b'{"rows": 3}\n', "JSON without settings"),
        (b"[1, 2]\n", "no object"),
        (b'{"settings": {}}\n7\n', "a line that is a number"),
        (b"\xff\xfe\n", "no text"),
    ],
)
def test_a_file_that_is_no_journal_is_not_taken_for_one(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(content)
    with pytest.raises(JournalError):
        read_journal(path)
    assert path.read_bytes() == content, why


def test_two_writers_at_a_time_are_refused(tmp_path: Path) -> None:
    first = Journal(tmp_path / "j.jsonl", SETTINGS)
    with pytest.raises(BlockingIOError):
        Journal(tmp_path / "j.jsonl", SETTINGS)
    first.close()
    Journal(tmp_path / "j.jsonl", SETTINGS).close()
    assert len((tmp_path / "j.jsonl").read_text().splitlines()) == 1 and json.loads(
        (tmp_path / "j.jsonl").read_text()
    ) == {"settings": SETTINGS}
