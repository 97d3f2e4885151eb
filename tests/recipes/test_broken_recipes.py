"""Mistakes that people make in a recipe: each is one error, with its kind, its key, its line and no traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import run_grpo

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "demo-arithmetic.yaml"
DEMO = re.sub(r" *# .*", "", RECIPE.read_text(encoding="utf-8"))  # without comments, which name keys too
TASK = "task:\n  name: arithmetic"
OWN = """task:
  name: jsonl
  path: rows.jsonl
  columns: {question: problem, final_answer: solution}
  prompt_template: "{question}"
  style: chat"""
ONE, TWO = "{name: math_correctness, applies_to: [one]}", "{name: countdown, applies_to: [two]}"


def mixed(*rewards: str, weight: str = "weight: 1") -> list[str]:
    tasks = f"{{name: arithmetic, label: one, {weight}}}, {{name: countdown, label: two, train_rows: 96, weight: 1}}"
    return ["--task", "null", "--tasks", f"[{tasks}]", "--rewards", f"[{', '.join(rewards)}]"]


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


@pytest.mark.parametrize(
    ("right", "wrong", "kind", "key", "at", "why"),
    [
        ("learning_rate:", "learnig_rate:", "unknown-key", "learnig_rate", "learnig_rate", "a typo in a key"),
        ("type: linear", "type: linaer", "unknown-choice", "lr_scheduler_type", "linaer", "a typo in a value"),
        ("max_steps: 60", "max_steps 60", "invalid-yaml", None, "max_steps", "a colon left out"),
        ("max_steps: 60", 'max_steps: "6", "0"', "invalid-yaml", None, '"6", "0"', "a list without brackets"),
        (
            "  name: arithmetic",
            "  name: jsonl\npath: x\n  style: chat",
            "invalid-yaml",
            None,
            "path: x",
            "not indented",
        ),
        (
            "  name: arithmetic",
            "  name: jsonl\npath: rows.jsonl",
            "unknown-key",
            "path",
            "path: rows",
            "after its section",
        ),
        ("    weight: 0.2", "weight: 0.2", "unknown-key", "weight", "weight: 0.2", "no weight_decay"),
        ("  - name: answer", "  name: answer", "invalid-yaml", None, "  name: answer", "a dash left out"),
        ("max_steps: 60", "max_steps: sixty", "wrong-type", "max_steps", "sixty", "a word for a number"),
        (
            "    weight: 0.2",
            "    weight: low",
            "wrong-type",
            "rewards.answer_format.weight",
            "weight: low",
            "in a list",
        ),
        ("  batch_size", "  batchsize", "unknown-key", "evaluation.batchsize", "batchsize", "in a section"),
        (
            "seed: 0",
            "accelerator_config: {split_batchez: true}",
            "refused-by-trl",
            "accelerator_config.split_batchez",
            "accelerator_config",
            "refused by a constructor of another library",
        ),
        ("seed: 0", "max_prompt_length: 9", "removed-key", "max_prompt_length", "max_prompt", "a key of earlier TRL"),
        ("models/tiny-a", "models/tiny-aa", "model-not-found", "model_name_or_path", "tiny-aa", "no such folder"),
        ("models/tiny", "tiny", "model-not-found", "model_name_or_path", "model_name", "without its folder"),
        ("name: arithmetic", "name: aritmetic", "task-not-found", "aritmetic", "aritmetic", "a typo in the task"),
        ("  name: arithmetic", "  name: arithmetic\n  rows: 9", "unknown-option", "rows", "rows: 9", "no such option"),
        (
            "  name: arithmetic",
            "  name: arithmetic\n  operations: all",
            "invalid-option",
            "operations",
            "operations",
            "none of the choices",
        ),
        ("  name: arithmetic", f"  name: {'a' * 300}", "task-not-found", "a" * 300, "aaa", "longer than a file name"),
        ("name: answer_format", "name: answer_fromat", "reward-not-found", "answer_fromat", "fromat", "a typo"),
        ("name: answer_format", "name: rewards/x.py", "reward-not-found", "rewards/x.py", "x.py", "no such file"),
        ("name: answer_format", "name: syntax.py", "import-failed", None, None, "a file with a syntax error"),
        ("name: answer_format", "name: single.py", "not-a-reward", "single.py", "single", "without **kwargs"),
        (
            "    weight: 0.2",
            "    weight: 0.2\n    options: {patern: x}",
            "unknown-option",
            "patern",
            "patern",
            "a typo in an option",
        ),
        ("name: answer_format", "name: code_execution", "missing-column", "tests", "code_exec", "no such column"),
        ("  split: test", "  metric: math\n  split: test", "reward-not-found", "math", "metric", "no such metric"),
        ("size: 64", "size: 30", "incomplete-group", "num_generations", "num_generations", "30 by 8"),
        ("all-linear", "all_linear", "unknown-module", "lora_target_modules", "all_linear", "a typo"),
        (TASK, OWN.replace("rows.jsonl", "row.jsonl"), "file-not-found", None, None, "a typo in a file's name"),
        (TASK, OWN.replace("rows.jsonl", "empty.jsonl"), "empty-data", None, None, "no rows"),
        (TASK, OWN.replace("rows.jsonl", "broken.jsonl"), "invalid-json", None, None, "a colon left out of the data"),
        (TASK, OWN.replace("question: problem", "question: prblem"), "missing-column", "prblem", None, "a typo"),
        (TASK, OWN.replace("  path: rows.jsonl\n", ""), "missing-key", "path", "name: jsonl", "no data"),
    ],
)
def test_a_mistake_is_one_error_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, kind: str, key: str, at: str, why: str
) -> None:
    assert right in DEMO
    text = DEMO.replace(right, wrong, 1)
    [problem] = errors(folder, capsys, text)
    assert (problem["kind"], problem.get("key")) == (kind, key), why
    line = next((number for number, line in enumerate(text.splitlines(), 1) if at and at in line), None)
    if line is not None:
        assert (problem["path"], problem["line"]) == ("recipe.yaml", line), why


def test_a_missing_column_comes_with_all_columns_and_no_guess(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [problem] = errors(folder, capsys, DEMO.replace(TASK, OWN.replace("question: problem", "question: solutoin")))
    assert problem["row"] == 0 and "problem, solution" in problem["message"] and "suggestion" not in problem


@pytest.mark.parametrize(
    ("words", "kind", "key", "why"),
    [
        (["--learning_rat", "1e-4"], "unknown-key", "learning_rat", "a typo"),
        (["--max_steps"], "invalid-override", "max_steps", "no value"),
        (["--max_steps", "--seed", "3"], "invalid-override", "max_steps", "no value, and another key"),
        (["max_steps=3"], "invalid-override", None, "no dashes"),
        (["--task", "gsm8k"], "wrong-type", "task", "a section as a word"),
        (["--task.shots", "4"], "unknown-option", "shots", "an option of another task"),
        (["--rewards.math.weight", "1"], "invalid-override", "rewards.math.weight", "no such reward"),
        (["--lora_target_modules", "[q_proj"], "invalid-override", "lora_target_modules", "a bracket left open"),
        (["--report_to", "mlfow"], "unknown-tracker", "report_to", "a typo"),
        (["--optim", "adamw"], "unknown-choice", "optim", "Did you mean adamw_torch?"),
        (["--rewards", "[]"], "wrong-type", "rewards", "names no reward"),
        (["--rewards", "{answer_format: {weight: 1}}"], "wrong-type", "rewards", "is a mapping"),
        (["--spot", "true"], "unknown-key", "spot", "a key of a section"),
        (["--model_init_kwargs", "{token: hf_x}"], "removed-key", "model_init_kwargs", "a secret"),
        (["--model_init_kwargs", "{foo: 1}"], "unknown-key", "model_init_kwargs", "refused with the weights"),
        (
            ["--model_init_kwargs", "{revision: x}"],
            "conflicting-keys",
            "model_init_kwargs",
            "replaced by model_revision",
        ),
        (["--model_init_kwargs", "{attention_dropout: x}"], "wrong-type", "model_init_kwargs", "no number"),
        (["--output_dir", "/proc/x"], "unwritable", "output_dir", "a file system without files of ours"),
        (mixed(ONE, TWO, weight="weight: 0"), "out-of-range", "tasks.arithmetic.weight", "a task that is never drawn"),
        (mixed(ONE, TWO, weight="weight: null"), "missing-key", "tasks", "a weight for one of two"),
        (mixed(ONE), "task-without-reward", "rewards", "a task that nothing scores"),
        (
            mixed(TWO.replace("countdown", "answer_format"), ONE.replace("math_correctness", "answer_format")),
            "duplicate-reward",
            "rewards",
            "one verifier for each task",
        ),
        (mixed(ONE, TWO.replace("two", "tow")), "unknown-task", "rewards.countdown.applies_to", "a typo"),
        (["--evaluation.max_new_tokens", "9999"], "completion-too-long", "evaluation.max_new_tokens", "no position"),
    ],
)
def test_a_mistake_on_the_command_line_has_no_line_of_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], kind: str, key: str | None, why: str
) -> None:
    [problem] = errors(folder, capsys, DEMO, *words)
    assert (problem["kind"], problem.get("key"), problem.get("line")) == (kind, key, None), why
    assert key is None or f"--{key.split('.')[0]}" in problem["message"] or f".{key}:" in problem["message"]


def test_an_error_of_a_section_names_its_keys_of_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [problem] = errors(folder, capsys, DEMO, "--rewards.math_correctness.options.tolerance", "-1")
    assert "with --rewards.math_correctness.options.tolerance on the command line: " in problem["message"]


def test_an_error_of_the_text_is_printed_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "recipe.yaml").write_text(DEMO.replace("type: linear", "type: linaer"), encoding="utf-8")
    assert run_grpo.main(["--config", "recipe.yaml", "--check"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("lr_scheduler_type") == 1


def test_names_with_commas_are_a_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "recipe.yaml").write_text(DEMO.replace("all-linear", "q_proj, v_proj"), encoding="utf-8")
    assert run_grpo.main(["--config", "recipe.yaml", "--check"]) == 0
    capsys.readouterr()
