"""A command answers at once: --help without a slow package, anything else with a line before it imports one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.artifacts.run_lock import lock_run
from tests.conftest import REPOSITORY, Command
from tests.support.report_runs import write_run

RECIPE = ("--config", str(REPOSITORY / "recipes" / "demo-arithmetic.yaml"))
SCRIPTS = ["run_grpo.py", *sorted(f"scripts/{path.name}" for path in (REPOSITORY / "scripts").glob("*.py"))]
SLOW = ("torch", "transformers", "trl", "datasets", "numpy")


def start(
    script: str, words: tuple[str, ...], without: tuple[str, ...], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a script in which the import of some packages fails."""
    program = f"import runpy, sys; sys.modules.update(dict.fromkeys({without})); sys.argv = {[script, *words]}; "
    program += f"runpy.run_path({str(REPOSITORY / script)!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_python_without_the_packages_is_told_how_to_install_them(script: str, tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-E", str(REPOSITORY / script)]  # without site-packages
    command += ["--config", "recipe.yaml"] if script == "run_grpo.py" else []
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode != 0 and "make install" in done.stderr, done.stderr
    assert script != "run_grpo.py" or (done.returncode, done.stderr.count("\n")) == (2, 1), "one line"


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_help_imports_nothing_slow(script: str, tmp_path: Path) -> None:
    done = start(script, ("--help",), SLOW, tmp_path)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr
    assert all(len(line) <= 80 or line.startswith("    ") for line in done.stdout.splitlines()), "commands are whole"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("run_grpo.py", RECIPE),
        ("run_grpo.py", (*RECIPE, "--check")),
        ("scripts/evaluate.py", (*RECIPE, "--output", ".")),
        ("scripts/prepare_data.py", (*RECIPE, "--output", "data")),
        ("scripts/sagemaker.py", ("plan", *RECIPE, "--instance_type", "ml.m5.2xlarge")),
        ("scripts/make_tiny_model.py", ()),
    ],
)
def test_the_first_line_comes_before_slow_imports(script: str, words: tuple[str, ...], tmp_path: Path) -> None:
    # torch itself is found: run_grpo.py looks whether it is installed.
    first, *others = start(script, words, ("torch._C", "datasets", "accelerate"), tmp_path).stderr.splitlines()
    assert first.endswith(" …") and "Error: " in others[-1], "an import fails after the first line"


def test_a_typo_in_a_recipe_is_answered_without_slow_imports(tmp_path: Path) -> None:
    done = start("run_grpo.py", (*RECIPE, "--learnig_rate", "1"), ("torch._C", "datasets", "accelerate"), tmp_path)
    assert done.returncode == 2 and "Did you mean learning_rate?" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_second_run_in_a_directory_is_refused_before_slow_imports(tmp_path: Path) -> None:
    with lock_run(tmp_path / "run"):
        done = start("run_grpo.py", (*RECIPE, "--output_dir", "run"), ("torch._C", "datasets", "accelerate"), tmp_path)
    assert done.returncode == 2 and f"process {os.getpid()}" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words", "option"),
    [
        ("score.py", (*RECIPE, "rows.jsonl", "--json", "run/scores.json"), "--json"),
        ("report.py", ("run",), "--out"),
        ("evaluate.py", (*RECIPE, "--limit", "2", "--output", "run"), "--output"),
        ("export.py", ("run", "--to", "merged", "--out", "new"), "another run"),
    ],
)
def test_no_script_writes_into_a_run_in_progress(
    command: Command, script: str, words: tuple[str, ...], option: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", base=[False], trained=[True])
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p", "completion": "85", "final_answer": "85"}', encoding="utf-8")
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path != run}
    with lock_run(run):  # as run_grpo.py holds it
        whole = command(REPOSITORY / "scripts" / script, *words)
        done = subprocess.run(whole, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and f"process {os.getpid()}" in done.stderr and option in done.stderr, done.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path != run} == files
