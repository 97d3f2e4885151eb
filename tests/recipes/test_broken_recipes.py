"""Mistakes that people make in a recipe: each is one error, with its kind, its key, its line and no traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import run_grpo
from tests.support.cases import cases

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "demo-arithmetic.yaml"
DEMO = re.sub(r" *# .*", "", RECIPE.read_text(encoding="utf-8"))  # without comments, which name keys too
TASK = "task:\n  name: arithmetic"
# A check reads each row several times.
SMALL = DEMO.replace(TASK, f"{TASK}\n  train_rows: 96\n  test_rows: 16")
FEW_ROWS = ["--task.train_rows", "96", "--task.test_rows", "16"]
OWN = """task:
  name: jsonl
  path: rows.jsonl
  columns: {question: problem, final_answer: solution}
  prompt_template: "{question}"
  style: chat"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"What is {number}+1?", "solution": str(number + 1)} for number in range(64)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken.jsonl").write_text('{"problem": "1+1?"}\n{"problem" "2"}\n', encoding="utf-8")
    (tmp_path / "syntax.py").write_text("def syntax(completions, **kwargs)\n", encoding="utf-8")
    (tmp_path / "single.py").write_text("def single(completions):\n    return [0.0]\n", encoding="utf-8")
    return tmp_path


def errors(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *words: str) -> list[dict[str, Any]]:
    """The errors of a check, as a program reads them."""
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    assert run_grpo.main(["--config", "recipe.yaml", "--check", "--json", *words]) == 2
    output = capsys.readouterr()
    assert [line for line in output.err.splitlines() if " …" not in line] == []
    problems: list[dict[str, Any]] = json.loads(output.out)["problems"]
    return problems


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong", "kind", "key", "at", "why"), cases(__file__, "files"))
def test_a_mistake_is_one_error_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, kind: str, key: str, at: str, why: str
) -> None:
    assert right in DEMO
    text = DEMO.replace(right, wrong, 1)
    [problem] = errors(folder, capsys, text, *(FEW_ROWS if TASK in text else ()))
    assert (problem["kind"], problem.get("key")) == (kind, key), why
    line = next((number for number, line in enumerate(text.splitlines(), 1) if at and at in line), None)
    if line is not None:
        assert (problem["path"], problem["line"]) == ("recipe.yaml", line), why


def test_a_missing_column_comes_with_all_columns_and_no_guess(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [problem] = errors(folder, capsys, DEMO.replace(TASK, OWN.replace("question: problem", "question: solutoin")))
    assert problem["row"] == 0 and "problem, solution" in problem["message"] and "suggestion" not in problem


@pytest.mark.slow
@pytest.mark.parametrize(("words", "kind", "key", "why"), cases(__file__, "command line"))
def test_a_mistake_on_the_command_line_has_no_line_of_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], kind: str, key: str | None, why: str
) -> None:
    [problem] = errors(folder, capsys, SMALL, *words)
    assert (problem["kind"], problem.get("key"), problem.get("line")) == (kind, key, None), why
    assert key is None or f"--{key.split('.')[0]}" in problem["message"] or f".{key}:" in problem["message"]


def test_an_error_of_a_section_names_its_keys_of_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [problem] = errors(folder, capsys, SMALL, "--rewards.math_correctness.options.tolerance", "-1")
    assert "with --rewards.math_correctness.options.tolerance on the command line: " in problem["message"]


def test_an_error_of_the_text_is_printed_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "recipe.yaml").write_text(SMALL.replace("type: linear", "type: linaer"), encoding="utf-8")
    assert run_grpo.main(["--config", "recipe.yaml", "--check"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("lr_scheduler_type") == 1


def test_names_with_commas_are_a_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "recipe.yaml").write_text(SMALL.replace("all-linear", "q_proj, v_proj"), encoding="utf-8")
    assert run_grpo.main(["--config", "recipe.yaml", "--check"]) == 0
    capsys.readouterr()
