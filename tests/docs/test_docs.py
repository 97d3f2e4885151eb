"""The documentation is tried as written: its links, its files and its commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import run_grpo
from rlvr.config.specs import TaskSpec
from rlvr.data.io import read_rows
from rlvr.scoring.registry import load_task
from rlvr.training.callbacks import read_metrics
from tests.support.launching import prefork_command

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "recipes/README.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "results").glob("*/README.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLDERS = re.compile(
    r"(?<![\w/-])(?:recipes|rewards|tasks|scripts|accelerate_configs|docs|rlvr|tests|models)/[\w./-]+\.\w+"
)
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    made_by_the_page = {name for name, _ in FILE.findall(page.read_text(encoding="utf-8"))}
    text = page.read_text(encoding="utf-8")
    for name in set(FOLDERS.findall(text)):
        example = re.search(r"/(?:x|my_\w+|NAME)\.\w+$", name)
        assert example or name in made_by_the_page or (REPOSITORY / name).exists(), name


@pytest.fixture
def python(prefork: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a command `python`, whose scripts are forked from a process that has imported everything."""
    folder = tmp_path_factory.mktemp("bin")
    command = shlex.join(prefork_command(prefork))
    code = f'case "$1" in -*) exec {sys.executable} "$@" ;; esac\nexec {command} "$@"\n'
    (folder / "python").write_text(f"#!/bin/sh\n{code}")
    (folder / "python").chmod(0o755)
    return folder


def enter_folder_with_files(
    text: str, folder: Path, python: Path, monkeypatch: pytest.MonkeyPatch, steps: int = 1
) -> None:
    """Make every file of a page in a folder that has links to the project's own files; recipes train so many steps."""
    for name in ("models", "run_grpo.py", "scripts"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "recipes").mkdir()
    for recipe in (REPOSITORY / "recipes").iterdir():
        (folder / "recipes" / recipe.name).symlink_to(recipe)
    for name, content in FILE.findall(text):
        assert not (REPOSITORY / name).exists(), f"{name} is new"
        (folder / name).parent.mkdir(exist_ok=True)
        content = re.sub(r"^max_steps: .*", f"max_steps: {steps}", content, flags=re.MULTILINE)
        (folder / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{python}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{REPOSITORY}")


def follow(
    page: str,
    tmp_path: Path,
    python: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    steps: int,
    section: str = "",
) -> None:
    """Make every file of a page and run every command of it, in a folder that finds the rest in the project.

    With a section, read only the text under this heading of level 2.

    A recipe trains so many steps instead of its own. `python run_grpo.py` is run in this process, which has torch and
    TRL imported already.
    """
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    enter_folder_with_files(text, tmp_path, python, monkeypatch, steps)
    trained = 0
    for language, block in BLOCK.findall(text):
        if language == "bash" and block.startswith("python run_grpo.py "):
            for line in block.splitlines():
                _, script, *words = shlex.split(line)
                assert script == "run_grpo.py" and run_grpo.main(words) == 0
                trained += "--check" not in words
        elif language == "bash":
            subprocess.run(["bash", "-euc", block], check=True)
    output = capfd.readouterr().out
    assert trained == 1
    promised = re.search(r"prints `(.*?)`", text)
    assert promised and promised.group(1) in output
    assert "No problems found." in output


@pytest.mark.slow
def test_write_a_reward_does_what_the_page_says(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    follow("rewards.md", tmp_path, python, monkeypatch, capfd, steps=6)
    evaluation = json.loads((tmp_path / "runs" / "my-first-run" / "evaluation.json").read_text())
    assert evaluation["trained"]["rewards"]["true_sums"] > 0
    assert "true_sums" in (tmp_path / "runs" / "my-first-run" / "report.html").read_text(encoding="utf-8")
    assert len(json.loads((tmp_path / "scores.json").read_text())["scores"]) == 6 * 64
    assert json.loads((tmp_path / "runs" / "my-first-run" / "red_team.json").read_text())["verdict"] == "holds"


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_write_an_environment_does_what_the_page_says(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    follow("environments.md", tmp_path, python, monkeypatch, capfd, steps=4, section="Write an environment")
    steps = [line for line in read_metrics(tmp_path / "runs" / "my-first-tools" / "metrics.jsonl") if "reward" in line]
    # Too few steps to learn; tests/recipes/test_demo_tools.py trains until the model has learnt to call a tool.
    assert all(line["tools/call_frequency"] > 0.1 for line in steps)
    assert any(line["rewards/environment/mean"] > 0 for line in steps)


@pytest.mark.slow
def test_the_commands_on_data_do_what_the_page_says(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "data.md").read_text(encoding="utf-8")
    enter_folder_with_files(page, tmp_path, python, monkeypatch)
    for language, block in BLOCK.findall(page):
        if language == "bash":
            subprocess.run(["bash", "-euc", block], check=True)
    overlaps = {row["train_id"] for row in read_rows(tmp_path / "data" / "compared" / "overlaps.jsonl")}
    assert f"as {len(overlaps)} rows do here" in page
    assert [row["final_answer"] for row in read_rows(tmp_path / "data" / "capitals" / "test.jsonl")] == [
        "Lima",
        "Nairobi",
    ]


def test_the_pages_task_loads(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "data.md").read_text(encoding="utf-8")
    (code,) = (block for language, block in BLOCK.findall(page) if language == "python" and "def my_capitals" in block)
    (tmp_path / "my_capitals.py").write_text(code)
    task = load_task(TaskSpec(str(tmp_path / "my_capitals.py"), {"held_out": 2}))
    assert (len(task.train), len(task.validation), len(task.test)) == (3, 0, 2)
    assert task.gold is not None and task.gold(task.test[0]) == "Lima"
