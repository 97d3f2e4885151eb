"""A command that takes seconds prints at once what it does, before it imports a slow package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

RECIPE = ("--config", str(REPOSITORY / "recipes" / "demo-arithmetic.yaml"))


@pytest.mark.parametrize(
    ("script", "words", "package"),
    [
        ("run_grpo.py", RECIPE, "datasets"),
        ("run_grpo.py", (*RECIPE, "--check"), "datasets"),
        ("scripts/evaluate.py", (*RECIPE, "base", "--output", "."), "torch"),
        ("scripts/filter_by_pass_rate.py", RECIPE, "datasets"),
        ("scripts/prepare_data.py", (*RECIPE, "--output", "data"), "datasets"),
        ("scripts/sagemaker.py", ("plan", *RECIPE, "--instance_type", "ml.m5.2xlarge"), "datasets"),
        ("scripts/make_tiny_model.py", (), "torch"),
    ],
)
def test_the_first_line_comes_before_slow_imports(
    script: str, words: tuple[str, ...], package: str, tmp_path: Path
) -> None:
    program = f"import runpy, sys; sys.modules[{package!r}] = None; sys.argv = {[script, *words]}; "
    program += f"runpy.run_path({str(REPOSITORY / script)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    first, *others = done.stderr.splitlines()
    assert first.endswith(" …") and package in others[-1], "the import fails after the first line"
