"""The start of a run: a command without secrets and folders, a commit, and whether the recipe has changed since."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rlvr.artifacts.origin import command, commit, find_origin, recipe_file_digest, was_changed
from rlvr.artifacts.result_record import read_record
from rlvr.config.recipe import load_recipe
from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
RECORD = REPOSITORY / "results" / "demo-arithmetic-seed0.json"


@pytest.mark.parametrize(
    ("words", "shown", "why"),
    [
        (["--seed", "1", "--output_dir", "runs/x"], "--seed 1 --output_dir runs/x", "relative to the project"),
        (["--model_name_or_path", "/home/me/models/m"], "--model_name_or_path m", "a folder of this machine"),
        (["--model_name_or_path=~/m/"], "--model_name_or_path=m", "one word, and a slash at the end"),
        (["--task", "{path: ../data/x.jsonl}"], "--task '{path: x.jsonl}'", "inside a section"),
        (["--model_name_or_path", "Qwen/Qwen3-4B"], "--model_name_or_path Qwen/Qwen3-4B", "an id on the hub"),
        (["--hub_token", "hf_abc"], "--hub_token (hidden)", "a secret"),
        (["--rewards", "[{options: {api_key: abc}}]"], "--rewards '[{options: {api_key: (hidden)}}]'", "in a section"),
        (["--vllm_server_base_url", "http://me:x@host:80/v1"], "--vllm_server_base_url ADDRESS", "names a host"),
    ],
)
def test_a_command_names_no_folder_host_or_secret(words: list[str], shown: str, why: str) -> None:
    assert command(Path("/home/me/r.yaml"), words) == f"python run_grpo.py --config r.yaml {shown}", why


def test_the_commit_says_whether_tracked_files_differ(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", "-C", str(tmp_path), *names, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert commit(tmp_path) is None
    git("init")
    assert commit(tmp_path) is None, "there is no commit yet"
    (tmp_path / "file").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    git("tag", "v1")
    (tmp_path / "untracked").write_text("1")
    head = git("rev-parse", "HEAD")
    assert commit(tmp_path) == head
    (tmp_path / "file").write_text("2")
    assert commit(tmp_path) == f"{head}-dirty"
    (tmp_path / "folder").mkdir()
    assert commit(tmp_path / "folder") is None, "the repository around a folder is another project"


@pytest.mark.parametrize(
    ("line", "changed", "why"),
    [
        ("learning_rate: 0.5", True, "numbers depend on it"),
        ("seed: 77", False, "a field of its own"),
        ("output_dir: runs/elsewhere", False, "a path"),
        ("# a comment", False, "no key"),
    ],
)
def test_a_recipe_has_changed_if_a_key_has_that_numbers_depend_on(
    tmp_path: Path, line: str, changed: bool, why: str
) -> None:
    record = replace(read_record(RECORD), recipe_file_digest=recipe_file_digest(DEMO))
    key = line.partition(":")[0]
    kept = [each for each in DEMO.read_text().splitlines() if not each.startswith(f"{key}:")]
    (tmp_path / "demo-arithmetic.yaml").write_text("\n".join([*kept, line, ""]))
    assert was_changed(record, tmp_path / "demo-arithmetic.yaml") == changed, why


def test_the_command_line_changes_no_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(DEMO, ["--learning_rate", "0.5", "--model_name_or_path", str(tmp_path)])
    digest = find_origin(recipe)["recipe_file_digest"]
    assert digest is not None and not was_changed(replace(read_record(RECORD), recipe_file_digest=digest), DEMO)


def test_a_record_without_a_digest_cannot_be_compared_and_a_removed_recipe_has_changed(tmp_path: Path) -> None:
    record = read_record(RECORD)
    assert not was_changed(replace(record, recipe_file_digest=None), DEMO)
    assert was_changed(record, tmp_path / "removed.yaml")


def test_a_run_from_a_run_directory_has_no_digest_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(DEMO.read_text())
    assert find_origin(load_recipe(tmp_path / "recipe.yaml"))["recipe_file_digest"] is None
