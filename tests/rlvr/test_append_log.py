"""An append log survives a kill at any byte and refuses files of any other form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.append_log import AppendLog, read_append_log

SETTINGS = {"model": "m", "sampling": None}
ENTRIES = [{"key": "a", "text": "one\nline"}, {"key": "b", "text": "zwei ☃"}, {"key": "c", "text": "\u2028"}]


def write_log(path: Path) -> bytes:
    log = AppendLog(path, SETTINGS)
    log.append(ENTRIES[:1])
    log.append(ENTRIES[1:])
    log.close()
    return path.read_bytes()


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_log(tmp_path / "log.jsonl")
    assert read_append_log(tmp_path / "log.jsonl") == ENTRIES


@pytest.mark.slow
def test_a_kill_at_any_byte_loses_only_the_line_being_written(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = write_log(path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        complete = whole[:size].count(b"\n")
        entries = read_append_log(path)
        assert entries == ENTRIES[: max(complete - 1, 0)]
        log = AppendLog(path, SETTINGS)
        log.append([{"key": "next"}])
        log.close()
        assert read_append_log(path) == [*entries, {"key": "next"}]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"settings": {}}\nhello\n', "no JSON"),
        (b"\xff\xfe\n", "no text"),
    ],
)
def test_a_file_of_another_form_is_refused_and_left_unchanged(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        read_append_log(path)
    assert path.read_bytes() == content, why


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    first = AppendLog(tmp_path / "log.jsonl", SETTINGS)
    with pytest.raises(BlockingIOError):
        AppendLog(tmp_path / "log.jsonl", SETTINGS)
    first.close()
    AppendLog(tmp_path / "log.jsonl", SETTINGS).close()
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    assert json.loads(line) == {"settings": SETTINGS}
