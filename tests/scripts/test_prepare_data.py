"""scripts/prepare_data.py from the command line."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from rlvr.config.specs import TaskSpec
from rlvr.scoring.registry import load_task
from scripts.prepare_data import main
from tasks.jsonl import jsonl
from tests.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """\
model_name_or_path: models/tiny-arithmetic
task:
  name: gsm8k
  path: {data}
  shots: 2
  style: {style}
  shot_pool: 5
rewards:
  - name: math_correctness
"""


@pytest.fixture
def prepare(call_main: Run) -> Run:
    return functools.partial(call_main, main)


@pytest.fixture(params=["text", "chat"])
def recipe(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    data = tmp_path / "gsm8k"
    data.mkdir()
    for split, numbers in (("train", range(60)), ("test", range(60, 70))):
        rows = [{"question": f"What is {n} + 1?\u2028", "answer": f"{n} + 1 = {n + 1}\n#### {n + 1}"} for n in numbers]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (data / f"{split}.jsonl").write_text(text, encoding="utf-8")
    file = tmp_path / "sums.yaml"
    file.write_text(RECIPE.format(data=data, style=request.param), encoding="utf-8")
    return file


def test_writes_a_folder_that_trains_the_same_rows_with_the_same_prompts(
    prepare: Run, recipe: Path, tmp_path: Path
) -> None:
    result = prepare("--config", "sums.yaml", "--output", "out", "--task.limit_train", "20", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("── train row") == 1

    style = "chat" if "style: chat" in recipe.read_text() else "text"
    options = {"path": str(tmp_path / "gsm8k"), "shots": 2, "style": style, "shot_pool": 5, "limit_train": 20}
    wanted = load_task(TaskSpec("gsm8k", options))
    back = jsonl(path=str(tmp_path / "out"))
    for split in ("train", "validation", "test"):
        assert list(back.split(split)) == list(wanted.split(split))

    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["rows"] == {"train": 20, "validation": 6, "test": 10}
    assert summary["options"]["limit_train"] == 20
    assert summary["notes"] == list(wanted.notes)
    assert "name: jsonl" in result.stdout


def test_leaves_a_folder_with_files_alone_unless_forced(prepare: Run, recipe: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    refused = prepare("--config", "sums.yaml", "--output", "out", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert [file.name for file in output.iterdir()] == ["notes.txt"]

    forced = prepare("--config", "sums.yaml", "--output", "out", "--force", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr
    assert (output / "notes.txt").read_text() == "mine"
    assert (output / "train.jsonl").is_file()


def test_a_wrong_recipe_exits_with_2_one_message_and_no_files(prepare: Run, recipe: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (("--config", "nowhere.yaml"), "nowhere.yaml"),
        (("--config", "sums.yaml", "--task.shot", "3"), "shots"),
        (("--config", "sums.yaml", "--task.path", "nowhere"), "nowhere"),
        (("--config", "sums.yaml", "--s3", "bucket/data"), "s3://BUCKET"),
    ):
        result = prepare(*arguments, "--output", "out", cwd=tmp_path)
        assert result.returncode == 2
        assert words in result.stderr
        assert "Traceback" not in result.stderr
        assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_named(prepare: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = prepare("--config", str(ROOT / "recipes/demo-arithmetic.yaml"), "--output", "file/x", cwd=tmp_path)
    assert result.returncode == 2
    assert "file/x" in result.stderr and "Traceback" not in result.stderr
