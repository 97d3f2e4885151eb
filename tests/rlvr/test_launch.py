"""Launches that silently train alone are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlvr.launch import _asked_of_accelerate


@pytest.mark.parametrize(
    ("command", "asked", "why"),
    [
        (["python", "run_grpo.py"], None, "no accelerate"),
        (["/x/python", "/x/bin/accelerate", "launch", "--num_processes", "2", "run_grpo.py"], 2, "two words"),
        (["/x/bin/accelerate", "launch", "--num-processes=4", "run_grpo.py"], 4, "one word, hyphens"),
        (["accelerate-launch", "--num_processes", "3", "x.py"], 3, "the other entry point"),
        (["accelerate", "launch", "x.py"], None, "nothing asked"),
    ],
)
def test_what_accelerate_was_asked_for_is_read_from_its_command_line(
    command: list[str], asked: int | None, why: str
) -> None:
    assert _asked_of_accelerate(command) == asked, why


def test_the_number_of_processes_is_read_from_a_config_file(tmp_path: Path) -> None:
    config = tmp_path / "two.yaml"
    config.write_text("num_processes: 2\n")
    assert _asked_of_accelerate(["accelerate", "launch", "--config_file", str(config), "x.py"]) == 2


@pytest.mark.slow
def test_a_launch_that_starts_one_process_for_two_is_refused(run_script: object, tmp_path: Path) -> None:
    """accelerate's MULTI_CPU ignores num_processes unless it is given an MPI host file."""
    config = tmp_path / "multi_cpu.yaml"
    config.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 2\n"
    )
    result = run_script(  # type: ignore[operator]
        str(Path(sys.executable).with_name("accelerate")),
        *("launch", "--config_file", config, "run_grpo.py", "--config", "recipes/demo-arithmetic.yaml", "--check"),
    )
    assert "accelerate was asked for 2 processes but started one" in result.stderr
    assert result.returncode != 0


@pytest.mark.slow
def test_processes_that_do_not_join_are_refused(run_script: object, tmp_path: Path) -> None:
    result = run_script(  # type: ignore[operator]
        str(Path(sys.executable).with_name("accelerate")),
        *("launch", "--config_file", "accelerate_configs/cpu.yaml", "--main_process_port", "29611", "run_grpo.py"),
        *("--config", "recipes/demo-arithmetic.yaml", "--check", "--use_cpu", "false"),
    )
    assert "they don't train together" in result.stderr
    assert result.returncode != 0
