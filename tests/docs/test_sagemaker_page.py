"""docs/sagemaker.md: its commands, keys and defaults, as far as they work without an account."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rlvr.config.sagemaker import SageMakerSettings
from scripts import sagemaker

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "sagemaker.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^ *```bash\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
PLACEHOLDERS = ("111122223333", "us-east-1", "amzn-s3-demo-bucket")


def bash(lines: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-euc", lines], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_its_plan_command_works_without_an_account(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variable = re.search(r'^R=".*?"$', BLOCKS[0], re.MULTILINE | re.DOTALL)
    plan = re.search(r"^python scripts/sagemaker.py plan \$R", BLOCKS[0], re.MULTILINE)
    assert variable and plan
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.chdir(REPOSITORY)
    words = bash(f"{variable[0]}\nprintf '%s\\n' {plan[0]}", REPOSITORY).stdout.splitlines()
    assert sagemaker.main(words[2:]) == 0
    printed = capsys.readouterr().out
    for expected in (
        "ml.g6e.xlarge for training job usage: 1",
        "dollars an hour, at most",
        "s3://my-bucket/grpo-recipes/",
    ):
        assert expected in printed


def test_it_names_all_commands() -> None:
    parser = sagemaker._parser()
    (commands,) = (set(action.choices) for action in parser._actions if isinstance(action.choices, dict))
    assert set(re.findall(r"sagemaker\.py (\w+)", "".join(BLOCKS))) == commands


def test_its_keys_exist_and_have_the_written_defaults() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(SageMakerSettings)}
    table = PAGE.split("## Settings of a job")[1].split("\n### ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    for keys, default, _ in rows:
        for key, value in zip(re.findall(r"`(\w+)`", keys), default.split(", "), strict=True):
            if value != "by the hosts":
                assert value == {None: "none"}.get(fields[key], str(fields[key]).lower()), key
    assert set(re.findall(r"--sagemaker\.(\w+)", PAGE)) <= fields.keys()
    assert f"arn:aws:s3:::amzn-s3-demo-bucket/{fields['prefix']}/*" in (
        REPOSITORY / "docs" / "sagemaker" / "execution-role-policy.json"
    ).read_text(encoding="utf-8")


def test_its_command_replaces_the_placeholders_of_all_policies(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "docs" / "sagemaker", tmp_path / "docs" / "sagemaker")
    (block,) = (block for block in BLOCKS if "sed -e" in block)
    done = bash(block, tmp_path)
    assert done.returncode == 0, done.stderr
    written = {file.name: file.read_text(encoding="utf-8") for file in (tmp_path / "policies").iterdir()}
    assert set(written) == {file.name for file in (REPOSITORY / "docs" / "sagemaker").glob("*.json")}
    for text in written.values():
        assert not [placeholder for placeholder in PLACEHOLDERS if placeholder in text]
    assert "arn:aws:s3:::my-bucket/grpo-recipes/*" in written["execution-role-policy.json"]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0][:40])
def test_every_block_is_valid_bash(block: str) -> None:
    assert subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True, check=False).returncode == 0
