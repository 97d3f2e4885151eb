"""docs/migrate.md names the programs that readers come from, and its commands do what the page says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import run_grpo
from rewards.code_execution import code_execution
from rlvr.config.specs import TaskSpec
from rlvr.scoring.registry import load_task
from scripts import convert_recipe, sagemaker
from tests.docs.test_docs import BLOCK, FILE, REPOSITORY

PAGE = (REPOSITORY / "docs" / "migrate.md").read_text(encoding="utf-8")
SCRIPTS = {
    "run_grpo.py": run_grpo.main,
    "scripts/convert_recipe.py": convert_recipe.main,
    "scripts/sagemaker.py": sagemaker.main,
}


@pytest.mark.slow
def test_every_command_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python SCRIPT` is run in this process, which has torch and TRL imported already."""
    for name, content in FILE.findall(PAGE):
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "models").symlink_to(REPOSITORY / "models")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    blocks = [block for language, block in BLOCK.findall(PAGE) if language == "bash"]
    assert len(blocks) == 4
    for block in blocks:
        _, script, *words = shlex.split(block.replace("\\\n", ""))
        if script in SCRIPTS:
            assert SCRIPTS[script](words) == 0
        else:
            subprocess.run(["bash", "-euc", block], check=True)
    options = {"path": "code.jsonl", "columns": {"prompt": "problem_statement", "tests": "tests"}, "test_fraction": 0.0}
    rows = load_task(TaskSpec("jsonl", options)).train
    completion = "```python\nprint(3)\n```"
    assert code_execution(list(rows["prompt"]), [completion], tests=list(rows["tests"])) == [1.0]
