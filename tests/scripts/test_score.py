"""scripts/score.py from the command line, and its commands in docs/rewards.md."""

from __future__ import annotations

import functools
import json
import re
import shlex
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.score import main
from tests.conftest import Command, Run
from tests.support.report_runs import CONVERSATION, TOOL_COLUMNS

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "score.py"
DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"
PAGE = REPOSITORY / "docs" / "rewards.md"

ROWS = [
    {"prompt": "p", "completion": "#### The final answer is 85", "final_answer": "85"},
    {"prompt": "p", "completion": "The answer is 85.", "final_answer": 85},
    {"prompt": "q", "completion": "#### 7\nQuestion: what?\n#### 8", "final_answer": "7", "answer_format": 1.0},
    {"prompt": "q", "completion": None, "final_answer": "7"},
]


@pytest.fixture
def call(call_main: Run) -> Run:
    """Calls the script with the demonstration's recipe."""
    return functools.partial(call_main, main, "--config", DEMO)


def table(page: str) -> dict[str, list[str]]:
    """The cells of the first table, by reward."""
    lines = page.split("\n\n")[1].splitlines()[2:]
    return {line.split()[0]: line.split() for line in lines}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")
    return path


def test_the_summary_has_the_statistics_of_every_reward(call: Run, rows: Path) -> None:
    done = call("rows.jsonl", cwd=rows.parent)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout, "coloured only on a terminal"
    cells = table(done.stdout)
    assert cells["math_correctness"][1:8] == ["1", "–", "0.750", "0.500", "0", "1", "75.0"]
    assert cells["total"][1:5] == ["0.800", "0.542", "0", "1.2"]
    assert "the scores differ from answer_format in the file: 1 of 1 rows (row 2)" in done.stdout
    assert "2 groups of 2 completions; 0 (0 %) with equal totals" in done.stdout
    assert re.search(r"math_correctness yes, answer_format no: 2 rows\n +row 1 +The answer is 85\.", done.stdout)


def test_json_has_the_summary_and_each_row(call: Run, rows: Path) -> None:
    assert call(rows, "--json", "out.json", cwd=rows.parent).returncode == 0
    content = json.loads((rows.parent / "out.json").read_text(encoding="utf-8"))
    assert [(one["label"], one["mean"]) for one in content["rewards"]] == [
        ("math_correctness", 0.75),
        ("answer_format", 0.25),
    ]
    assert content["scores"][2] == {"row": 2, "total": 1.0, "rewards": {"math_correctness": 1.0, "answer_format": 0.0}}


def test_overrides_follow_the_file(call: Run, rows: Path) -> None:
    override = ["--rewards.math_correctness.options.prose", "false", "--rewards.answer_format.weight=3"]
    done = call(str(rows), *override, cwd=rows.parent)
    figures = table(done.stdout)
    assert figures["math_correctness"][3] == "0.500" and figures["answer_format"][1] == "3"


def test_why_shows_the_turn_the_columns_each_reward_and_the_total(call: Run, rows: Path) -> None:
    done = call(rows, "--why", "2", "--rewards.math_correctness.gate", "answer_format", cwd=rows.parent)
    assert done.returncode == 0, done.stderr
    for words in (
        "row 2 of",
        "│ q",
        "cut after 7 characters, 22 before the end, at: Question: what? ⏎ #### 8",
        "final_answer   7",
        "gate answer_format closed: counts as 0",
        "differs: the file has answer_format = 1.0",
        "total              0 = 1 x 0 + 0.2 x 0",
    ):
        assert words in done.stdout


@pytest.mark.parametrize("name", ["completions_00004.parquet", "first.parquet"], ids=["of a run", "joined"])
def test_a_conversation_is_explained_from_its_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "completions").mkdir()
    rows = [{"step": 4, "prompt": "p", "completion": CONVERSATION, "environment": 0.5, **TOOL_COLUMNS}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "completions" / "completions_00004.parquet")
    monkeypatch.chdir(tmp_path)
    page = (REPOSITORY / "docs" / "evaluation.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(block.replace("runs/demo-arithmetic/", "").replace("first.parquet", "completions/first.parquet"), {})
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "model_name_or_path: m\ntask: {name: arithmetic}\nmax_steps: 1\noutput_dir: runs/x\n"
        "environment: {name: calculator}\nrewards: [{name: environment}]\n"
    )
    for words in ([], ["--why", "0"]):
        assert main(["--config", str(recipe), f"completions/{name}", *words]) == 0
        shown = capsys.readouterr().out
        assert "Read from the file: environment" in shown and "0.5" in shown
    assert "completion, 4 messages, cut off by max_tool_calling_iterations" in shown
    assert "│ [result of run]" in shown and '│ [turn 2, call] run(code="1")' in shown


def test_model_text_neither_controls_the_terminal_nor_looks_like_our_output(call: Run, tmp_path: Path) -> None:
    text = "\x1b[2J\x1b]0;owned\x07\u202e\r\ntotal   99 = everything\ud800"
    line = json.dumps({"prompt": text, "completion": text, "final_answer": text})
    for words in ([], ["--why", "0"]):
        done = call("-", *words, cwd=tmp_path, text=line)
        assert not set("\x1b\x07\u202e\r") & set(done.stdout + done.stderr)
        assert not re.search(r"^ *total   99", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_a_reward_that_raises_is_named_after_the_summary(call: Run, rows: Path) -> None:
    (rows.parent / "fussy.py").write_text(
        "def fussy(completions, **kwargs):\n    return [float(len(text)) for text in completions]\n"
    )
    for words in ([], ["--why", "3"]):
        done = call(rows, *words, "--rewards", "[{name: ./fussy.py}]", cwd=rows.parent)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert "The reward ./fussy.py failed on row 3: TypeError: object of type 'NoneType' has no len()" in done.stderr
        assert "total" in done.stdout


@pytest.mark.parametrize(
    ("words", "hint", "why"),
    [
        (["nothing.jsonl"], "nothing.jsonl does not exist", "a typo"),
        (["rows.jsonl", "b.jsonl"], "'b.jsonl' on the command line belongs to no key", "two files"),
        (["rows.jsonl", "--completion_column", "complete"], "completion", "no such column"),
        (["rows.jsonl", "--why", "4"], "rows are 0 to 3", "a row beyond the last"),
        (["rows.jsonl", "--why", "-1"], "rows are 0 to 3", "a row before the first"),
        (["rows.jsonl", "--json", "nowhere/x.json"], "can't be written", "an output that can't be"),
        (["rows.jsonl", "--json", "rows.jsonl"], "would overwrite the completions", "the file itself"),
        (["rows.jsonl", "--rewards.math_correctness.options.prosa", "1"], "did you mean prose?", "an option"),
        (["rows.jsonl", "--rewards.answer_format.options.pattern", "("], "not a regular expression", "its value"),
    ],
)
def test_an_input_error_is_one_line_and_exit_code_2(
    rows: Path,
    words: list[str],
    hint: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(rows.parent)
    code, error = main(["--config", str(DEMO), *words]), capsys.readouterr().err
    assert code == 2 and hint in error, why
    said = [line for line in error.splitlines() if " …" not in line]  # without progress of a slow step
    assert "Traceback" not in error and len(said) == 1
    assert [json.loads(line) for line in rows.read_text(encoding="utf-8").split("\n")] == ROWS, "nothing was lost"


def test_output_is_coloured_on_a_terminal_unless_no_color_is_set(
    call: Run, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlvr.console.columns", lambda stream: 80)
    for value, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        assert ("\x1b[1mrewards\x1b[0m" in call(rows, "--why", "0", cwd=rows.parent).stdout) == coloured


def imported(stderr: str) -> set[str]:
    return {line.split("|")[-1].strip() for line in stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.slow
def test_scoring_loads_no_torch_even_with_the_task(run_script: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "unknown", "completion": "x"}))
    done = run_script("-X", "importtime", SCRIPT, "--config", DEMO, tmp_path / "rows.jsonl")
    assert done.returncode == 2 and "datasets" in imported(done.stderr)
    assert not imported(done.stderr) & {"torch", "transformers", "trl"}


@pytest.mark.slow
def test_the_commands_of_the_page_print_what_it_shows(command: Command, tmp_path: Path) -> None:
    """Score and explain the examples of docs/rewards.md, and compare all lines but for the times."""
    page = PAGE.read_text(encoding="utf-8").partition("\n## Score completions")[2].partition("\n## ")[0]
    ((name, content),) = re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for link in ("models", "recipes", "scripts"):
        (tmp_path / link).symlink_to(REPOSITORY / link)
    (tmp_path / name).write_text(content, encoding="utf-8")
    python = f'python() {{ {shlex.join(command())} "$@"; }}\n'
    pairs = re.findall(r"^```bash\n(.*?)^```\n\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(pairs) == 2
    for block, shown in pairs:
        words = ["bash", "-euc", python + block]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert _without_times(done.stdout) == _without_times(shown)


def _without_times(text: str) -> list[str]:
    """The lines that are not empty; of a line of the table, without its last column."""
    return [re.sub(r"(?<= )\d+\.\d\d$", "", line).rstrip() for line in text.splitlines() if line.strip()]
