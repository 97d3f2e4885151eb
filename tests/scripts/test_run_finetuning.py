"""scripts/run_finetuning.sh: its failure reasons, and the choice of the CUDA driver library."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.sagemaker_emulator import containers
from tests.support.sagemaker_emulator.containers import Host

SCRIPT = containers.REPOSITORY / "scripts" / "run_finetuning.sh"


@pytest.mark.slow
@pytest.mark.skipif(containers.why_not() is not None, reason=str(containers.why_not()))
@pytest.mark.parametrize(("groups", "environment", "words", "why"), cases(__file__, "refused"))
def test_a_hosts_failure_reason_is_one_line(
    tmp_path: Path, groups: dict[str, list[str]], environment: dict[str, str], words: str, why: str
) -> None:
    code = tmp_path / "ml" / "input" / "data" / "code"
    package = (
        "rlvr/__init__.py",
        "rlvr/errors.py",
        "rlvr/public_names.py",
        "rlvr/sagemaker/__init__.py",
        "rlvr/sagemaker/container/topology.py",
    )
    for part in (*package, "scripts/run_finetuning.sh"):
        (code / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(containers.REPOSITORY / part, code / part)
    shutil.copytree(containers.REPOSITORY / "accelerate_configs", code / "accelerate_configs")
    (code / "recipe.yaml").touch()
    (code / "requirements.txt").write_text("no-such-package==1\n")
    if "PIP_CONSTRAINT" in environment:
        (code / "vllm-requirements.txt").touch()
    (tmp_path / "ml" / "output").mkdir()
    (tmp_path / "ml" / "input" / "config").mkdir()
    resources = {
        "current_host": "algo-1",
        "hosts": [host for hosts in groups.values() for host in hosts],
        "instance_groups": [{"instance_group_name": name, "hosts": hosts} for name, hosts in groups.items()],
    }
    (tmp_path / "ml" / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources))
    variables = {**containers.environment_of_the_image(), "PIP_NO_INDEX": "1", **environment}
    command = ["/bin/bash", "/opt/ml/input/data/code/scripts/run_finetuning.sh"]
    attempt = containers.start([Host("algo-1", tmp_path / "ml", command, variables, tmp_path / "log")], tmp_path)
    attempt.wait(30)
    attempt.end()
    reason = (tmp_path / "ml" / "output" / "failure").read_text()
    assert words in reason and "\n" not in reason, why
    assert attempt.codes == {"algo-1": 1 if words.startswith("pip") else 2}


@pytest.mark.parametrize(
    ("host", "chosen", "why"),
    [
        ("550.163.01", True, "the host's driver is older than the image's library"),
        ("580.65.06", False, "they are the same"),
        ("590.44.01", False, "the host's is newer"),
        ("9.1", True, "numbers are compared as numbers"),
        (None, False, "there is no GPU"),
    ],
)
def test_the_images_cuda_library_is_used_if_the_hosts_driver_is_older(
    tmp_path: Path, host: str | None, chosen: bool, why: str
) -> None:
    compat = tmp_path / "compat"
    compat.mkdir()
    (compat / "libcuda.so.580.65.06").touch()
    (compat / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    (tmp_path / "bin").mkdir()
    if host is not None:
        (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\necho {host}\n")
        (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    text = SCRIPT.read_text()
    assert "/usr/local/cuda/compat" in text and "\nerrors=" in text
    begin = text.partition("\nerrors=")[0].replace("/usr/local/cuda/compat", str(compat))
    run = subprocess.run(
        ["bash", "-c", f'{begin}\necho "[${{LD_LIBRARY_PATH:-}}]"'],
        env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (str(compat) in run.stdout) == chosen, why
