"""Mistakes in an environment or its data: each is one error before a weight is loaded, with exit code 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlvr.data.io import write_rows
from tests.recipes.test_broken_recipes import errors
from tests.support import counting
from tests.support.tool_model import write_tool_model

CLASS = Path(counting.__file__).read_text(encoding="utf-8")
RECIPE = """
model_name_or_path: model
task: {name: jsonl, path: rows.jsonl, prompt_template: "{question}", style: chat}
environment: {name: counting.py}
rewards:
  - name: environment
use_cpu: true
dtype: float32
bf16: false
report_to: none
max_completion_length: 64
per_device_train_batch_size: 8
num_generations: 4
max_steps: 2
"""
MODEL = "model_name_or_path: model"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tool_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("model", "silent", "base"):
        target = tmp_path / name
        target.mkdir()
        for file in model.iterdir():
            if file.name != "chat_template.jinja" or name == "model":
                (target / file.name).symlink_to(file)
    (tmp_path / "silent" / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    rows = [{"question": f"Count to {number}.", "target": number + 3, "final_answer": "1"} for number in range(16)]
    write_rows(tmp_path / "rows.jsonl", rows)
    write_rows(
        tmp_path / "named.jsonl", [{**row, "environment": "countng" if row["target"] > 9 else None} for row in rows]
    )
    write_rows(tmp_path / "bad.jsonl", [{**row, "target": -row["target"]} for row in rows])
    write_rows(tmp_path / "zero.jsonl", [{**row, "target": 0} for row in rows])
    variants = {
        "counting": CLASS,
        "no_reset": "class NoReset:\n    def add(self) -> str:\n        '''Add.'''\n",
        "untyped": CLASS.replace("number: int", "number"),
        "silent_tool": CLASS.replace('"""Add to the count.', 'x = """Add.'),
        "asking": CLASS.replace("target: int = 3", "goal: int"),
        "no_argument": CLASS.replace("            number: what to add.\n", "            other: what.\n"),
        "lacking": CLASS.replace("import sys", "import no_such_package"),
        "hanging": CLASS.replace("time.sleep(self.slow_s)", "time.sleep(600)"),
        "unplayed": CLASS.replace("time.sleep(self.slow_s)", "time.sleep(600)").replace("play_reference", "_play"),
        "wrong_reference": CLASS.replace("target - environment.count", "target + 1"),
        "two": "class A:\n    pass\nclass B:\n    pass\n",
        "unpaid": CLASS.replace("def get_reward", "def _reward"),
        "toolless": re.sub(r"    def (?!_|reset|get_reward)", "    def _", CLASS),
        "worded": CLASS.replace("return 1.0 if", "return '1' if"),
    }
    for name, text in variants.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "kind", "why"),
    [
        ("counting.py", "conting.py", "environment-not-found", "no such file"),
        ("counting.py", "python_sandbx", "environment-not-found", "no such environment"),
        ("counting.py", "no_reset.py", "not-an-environment", "without reset"),
        ("counting.py", "two.py", "environment-not-found", "which of the classes?"),
        ("counting.py", "untyped.py", "invalid-tool", "a tool without type hints"),
        ("counting.py", "silent_tool.py", "invalid-tool", "a tool without a docstring"),
        ("counting.py", "no_argument.py", "invalid-tool", "an argument that the docstring leaves out"),
        ("counting.py", "lacking.py", "package-not-installed", "a package is missing"),
        ("counting.py}", "counting.py, options: {start: many}}", "invalid-option", "an option of the wrong type"),
        ("counting.py}", "counting.py, options: {strat: 1}}", "unknown-option", "a typo in an option"),
        ("counting.py}", "counting.py, start: 1}", "unknown-key", "an option outside of options"),
        ("{name: counting.py}", "counting.py", "wrong-type", "a word for a section"),
        ("{name: counting.py}", "[{name: counting.py}, {name: counting.py}]", "duplicate-environment", "twice"),
        (MODEL, "model_name_or_path: silent", "no-tool-template", "a chat template that can't render tools"),
        (MODEL, "model_name_or_path: base", "missing-chat-template", "a base model without a chat template"),
        ("rows.jsonl", "named.jsonl", "unknown-environment", "a column with an unknown name"),
        ("rows.jsonl", "bad.jsonl", "environment-failed", "reset fails on the rows"),
        ("rows.jsonl", "zero.jsonl", "accepted-noise", "a rollout without a call is paid"),
        ("counting.py", "wrong_reference.py", "refused-gold", "the reference does not solve it"),
        ("counting.py}", "hanging.py}\ntool_timeout_s: 0.5", "environment-failed", "a tool that hangs"),
        ("counting.py", "unpaid.py", "missing-reward", "nothing to train for"),
        ("counting.py", "toolless.py", "invalid-tool", "all tools have a name that begins with _"),
        ("counting.py", "worded.py", "environment-failed", "a reward that is text"),
        ("environment: {name: counting.py}", "", "missing-environment", "the reward of no environment"),
        (", style: chat", "", "not-chat", "plain text"),
    ],
)
def test_a_mistake_is_one_error(
    folder: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, kind: str, why: str
) -> None:
    assert right in RECIPE
    problems = errors(folder, capsys, RECIPE.replace(right, wrong, 1))
    assert kind in [problem["kind"] for problem in problems], (why, problems)
    assert len(problems) == 1, (why, problems)
    assert kind != "invalid-tool" or problems[0]["line"] == 4, (why, problems)


@pytest.mark.slow
def test_a_reset_that_asks_for_another_column_is_answered_with_those_that_there_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [problem] = errors(folder, capsys, RECIPE.replace("counting.py", "asking.py"))
    assert problem["kind"] == "environment-failed" and "goal" in problem["message"]
    assert "has the columns" in problem["message"] and "target" in problem["message"]


@pytest.mark.slow
def test_a_tool_that_hangs_is_found_beside_a_reward_for_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = RECIPE.replace("rows.jsonl", "zero.jsonl").replace("counting.py}", "unplayed.py}\ntool_timeout_s: 0.5")
    problems = errors(folder, capsys, recipe)
    assert [problem["kind"] for problem in problems] == ["accepted-noise", "environment-failed"], problems
