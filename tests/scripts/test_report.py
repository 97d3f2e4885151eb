"""scripts/report.py from the command line."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import pytest

from scripts.report import main
from tests.conftest import Run
from tests.support.locks import locked_by_another_process
from tests.support.report_runs import write_run


@pytest.fixture
def call(call_main: Run) -> Run:
    return functools.partial(call_main, main)


def test_the_page_is_written_and_its_path_printed_from_any_folder(call: Run, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps({"step": 1, "reward": 0.5}) + "\n", encoding="utf-8")
    done = call("run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "run/report.html"
    assert "<!DOCTYPE html>" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "words", "why"),
    [
        ("absent", "There is no folder absent", "a typo in the path"),
        ("file", "There is no folder file", "a file in place of the folder"),
        ("empty", "empty is not a run directory", "a folder that no run wrote to"),
    ],
)
def test_a_wrong_folder_is_one_line_and_exit_code_2(call: Run, tmp_path: Path, name: str, words: str, why: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    done = call(name, cwd=tmp_path)
    assert done.returncode == 2, why
    assert words in done.stderr, why
    assert len([line for line in done.stderr.splitlines() if " …" not in line]) == 1
    assert done.stdout == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file that can't be written to")
def test_a_report_that_cannot_be_written_is_one_line_and_exit_code_2(call: Run, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("", encoding="utf-8")
    os.symlink("/dev/full", tmp_path / "report.html")
    done = call(tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert "can't be written: No space left on device" in done.stderr
    assert len([line for line in done.stderr.splitlines() if " …" not in line]) == 1


def test_a_run_in_progress_has_its_report_elsewhere(call: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", base=[False], trained=[True])
    with locked_by_another_process(run):
        assert call("run", "--out", "elsewhere.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "elsewhere.html").stat().st_size > 0
    assert call("run", cwd=tmp_path).returncode == 0, "after the run"
