"""Launches that silently train alone are found, and what can't be trained so is refused with what to use instead."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlvr.config.recipe import Recipe
from rlvr.config.specs import RewardSpec, TaskSpec
from rlvr.training.launch import as_launched, check_environment, launch_problems, launcher, requested_processes
from tests.support.input_errors import input_error

# What `accelerate launch` puts into a process's environment for a file of accelerate_configs/.
DDP = {"WORLD_SIZE": "2", "ACCELERATE_MIXED_PRECISION": "no"}
ZERO2 = {**DDP, "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}
OFFLOAD = {**ZERO2, "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu"}
ZERO3 = {**ZERO2, "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true"}
FSDP2 = {**DDP, "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"}
FSDP1 = {**DDP, "ACCELERATE_USE_FSDP": "true"}


def recipe(**settings: Any) -> Recipe:
    settings = {"model_name_or_path": "m", "output_dir": "no-such-run", "use_peft": True, **settings}
    return Recipe(Path("r.yaml"), (TaskSpec("t"),), (RewardSpec("r"),), None, settings)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this process's environment that of a launch."""

    def launched(environment: Mapping[str, str]) -> None:
        for name in [*os.environ]:
            if name.startswith(("ACCELERATE_", "FSDP_")) or name in ("WORLD_SIZE", "RANK"):
                monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return launched


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({}, "python"),
        ({"WORLD_SIZE": "1"}, "python"),
        (DDP, "ddp"),
        (ZERO2, "zero2"),
        (OFFLOAD, "zero2_offload"),
        (ZERO3, "zero3"),
        (FSDP1, "fsdp1"),
        (FSDP2, "fsdp2"),
    ],
)
def test_the_launcher_is_read_from_the_environment(launched: Any, environment: dict[str, str], kind: str) -> None:
    launched(environment)
    assert launcher() == kind


def test_a_file_of_deepspeeds_own_decides(launched: Any, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text('{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}')
    launched({**ZERO2, "ACCELERATE_DEEPSPEED_CONFIG_FILE": str(own)})
    assert launcher() == "zero3_offload"


QLORA = {"load_in_4bit": True}


@pytest.mark.parametrize(
    ("environment", "settings", "key", "instead"),
    [
        (DDP, {"deepspeed": "ds.json"}, "deepspeed", "accelerate_configs/zero3.yaml"),
        (DDP, {"fsdp": "full_shard"}, "fsdp", "accelerate_configs/zero3.yaml"),
        ({**DDP, "ACCELERATE_MIXED_PRECISION": "bf16"}, {"bf16": False}, "bf16", 'mixed_precision: "no"'),
        ({**ZERO3, "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "false"}, {}, None, "accelerate_configs/zero3.yaml"),
        (OFFLOAD, {"optim": "adamw_8bit"}, "optim", "accelerate_configs/zero2.yaml"),
        (FSDP2, {"use_cpu": True}, "use_cpu", "zero3.yaml with --num_processes 2"),
        ({**FSDP1, "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"}, {}, None, "accelerate_configs/fsdp2.yaml"),
        ({**FSDP2, "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT"}, {}, None, "FULL_STATE_DICT"),
        (FSDP2, {**QLORA, "dtype": "bfloat16"}, "bnb_4bit_quant_storage", "bnb_4bit_quant_storage: bfloat16"),
    ],
)
def test_a_recipe_that_the_launcher_cannot_train_is_refused_with_the_alternative(
    launched: Any, environment: dict[str, str], settings: dict[str, Any], key: str | None, instead: str
) -> None:
    launched(environment)
    problems = [problem for problem in launch_problems(recipe(**settings)) if problem.kind == "launcher-conflict"]
    assert [problem.key for problem in problems] == [key] and instead in problems[0].message


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({}, QLORA),
        (DDP, QLORA),
        (ZERO2, QLORA),
        (ZERO3, {**QLORA, "use_cpu": True}),
        (FSDP2, {}),
        (FSDP2, {**QLORA, "bnb_4bit_quant_storage": "bfloat16"}),
    ],
)
def test_a_recipe_that_can_be_launched_is_not_refused(
    launched: Any, environment: dict[str, str], settings: dict[str, Any]
) -> None:
    launched(environment)
    assert launch_problems(recipe(**settings)) == []


def test_a_launch_with_deepspeed_where_it_is_not_installed_is_refused(
    launched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(ZERO3)
    monkeypatch.setitem(sys.modules, "deepspeed", None)  # as Python itself notes what can't be imported
    with input_error("package-not-installed", match="accelerate_configs/fsdp2.yaml"):
        check_environment(recipe())


@pytest.fixture
def extensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PyTorch's folder of what DeepSpeed compiles for the CPU."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folder = tmp_path / "cpu_adam"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("age_s", "is_open", "refused", "why"),
    [
        (3600, False, True, "a build that was killed"),
        (3600, True, False, "somebody builds, if slowly"),
        (10, False, False, "another machine may be building in a shared folder"),
    ],
)
def test_a_stale_lock_is_refused_with_its_path(
    launched: Any, extensions: Path, age_s: float, is_open: bool, refused: bool, why: str
) -> None:
    launched(OFFLOAD)
    lock = extensions / "lock"
    with lock.open("w") as file:
        os.utime(lock, (time.time() - age_s,) * 2)
        if not is_open:
            file.close()
        problems = launch_problems(recipe(use_cpu=True))
    assert [(problem.kind, problem.path) for problem in problems] == [("stale-lock", str(lock))] * refused, why
    assert all(f"rm {lock}" in problem.message for problem in problems)


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
def test_the_number_of_processes_is_read_from_the_command_line_of_accelerate(
    command: list[str], asked: int | None, why: str
) -> None:
    assert requested_processes(command) == asked, why


def test_the_number_of_processes_is_read_from_a_config_file(tmp_path: Path) -> None:
    config = tmp_path / "two.yaml"
    config.write_text("num_processes: 2\n")
    assert requested_processes(["accelerate", "launch", "--config_file", str(config), "x.py"]) == 2


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


def test_the_launcher_of_another_machine_can_be_assumed_for_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"):
        monkeypatch.delenv(name, raising=False)
    for kind in ("zero2", "zero2_offload", "zero3", "fsdp2"):
        with as_launched(kind):
            assert launcher() == kind
    with as_launched(None):
        assert launcher() == "python"
    assert launcher() == "python", "and nothing of it stays"
