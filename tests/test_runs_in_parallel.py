"""A run in the directory of a living run is refused on all ranks. The lock: tests/rlvr/artifacts/test_run_lock.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import run_grpo
from tests.support.launching import SHORT, Start, accelerated
from tests.support.locks import locked_by_another_process


@pytest.mark.slow
def test_all_ranks_of_a_launch_end_with_exit_2_and_write_nothing(start: Start, tmp_path: Path) -> None:
    with locked_by_another_process(tmp_path / "run") as holder:
        launch = start(accelerated("cpu", *SHORT), tmp_path / "run").wait()
    assert launch.codes() == [2, 2], launch.output()
    assert launch.output().count(f"process {holder} on ") == 1, "the main process prints"
    assert "InputError" not in launch.output()
    assert not (tmp_path / "run").exists()


def test_a_check_is_not_refused(tmp_path: Path) -> None:
    with locked_by_another_process(tmp_path / "run"):
        assert run_grpo.main([*SHORT, "--output_dir", str(tmp_path / "run"), "--check"]) == 0
