"""scripts/rollouts.py from the command line; scripts/score.py computes the same from its files as from the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlvr.reward_audit.completions import read_completions
from scripts.rollouts import main
from scripts.score import main as score
from tests.support.report_runs import CONVERSATION, TOOL_COLUMNS

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = REPOSITORY / "recipes" / "demo-arithmetic.yaml"


def call(script: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "scripts" / script, *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Three steps; the last one has another column, as if a reward logged it now and then."""
    folder = tmp_path / "run"
    (folder / "completions").mkdir(parents=True)
    for step in (1, 2, 3):
        rows: list[dict[str, Any]] = [
            {
                "step": step,
                "prompt": [{"role": "user", "content": f"What is {step} + {number}?  \n"}],
                "completion": [{"role": "assistant", "content": f"#### The final answer is {number * step} </s> 汉"}],
                "math_correctness": float(number * step == step + number),
                "final_answer": str(step + number),
                "advantage": 0.5,
                **({"note": "seen"} if step == 3 else {}),
            }
            for number in range(4)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / "completions" / f"completions_{step:05d}.parquet")
    pq.write_table(
        pa.Table.from_pylist([{"row": 0, "prompt": "p", "completion": "c", "correct": True}]),
        folder / "completions" / "evaluation_trained.parquet",
    )
    return folder


def test_every_completion_is_exported_unchanged(run_dir: Path) -> None:
    done = call("rollouts.py", run_dir)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{run_dir / 'rollouts.jsonl'}: 12 completions\n"
    rows = [json.loads(line) for line in (run_dir / "rollouts.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [row["step"] for row in rows] == [1] * 4 + [2] * 4 + [3] * 4
    assert rows[5]["prompt"] == [{"role": "user", "content": "What is 2 + 1?  \n"}]
    assert rows[5]["completion"] == [{"role": "assistant", "content": "#### The final answer is 2 </s> 汉"}]


@pytest.mark.parametrize(
    ("steps", "found"),
    [("2:3", [2, 3]), ("2:", [2, 3]), (":2", [1, 2]), ("2", [2]), ("0:99", [1, 2, 3])],
)
def test_a_range_of_steps_includes_both_ends(run_dir: Path, steps: str, found: list[int]) -> None:
    assert main([str(run_dir), "--steps", steps, "--out", str(run_dir / "x.jsonl")]) == 0
    rows = [json.loads(line) for line in (run_dir / "x.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted({row["step"] for row in rows}) == found


@pytest.mark.slow
def test_scores_of_the_files_equal_scores_of_the_run(run_dir: Path, tmp_path: Path) -> None:
    contents = []
    for source in (run_dir, tmp_path / "x.jsonl", tmp_path / "x.parquet"):
        assert source == run_dir or main([str(run_dir), "--out", str(source)]) == 0
        done = call("score.py", "--config", DEMO, source, "--json", tmp_path / "scores.json")
        assert done.returncode == 0, done.stderr
        content = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
        for reward in content["rewards"]:
            del reward["seconds_per_1000"]
        contents.append({key: value for key, value in content.items() if key != "file"})
    assert contents[0] == contents[1] == contents[2]
    assert contents[0]["rows"] == 12


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_conversation_is_exported_with_its_calls_and_explained(
    run_dir: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run_dir / "completions" / "completions_00004.parquet"
    rows = [{"step": 4, "prompt": "p", "completion": CONVERSATION, "environment": 0.5, **TOOL_COLUMNS}]
    pq.write_table(pa.Table.from_pylist(rows), file)
    assert main([str(run_dir), "--steps", "4", "--out", str(run_dir / name)]) == 0
    (row,) = read_completions(str(run_dir / name)).rows
    assert row == rows[0]
    recipe = run_dir / "recipe.yaml"
    recipe.write_text(
        "model_name_or_path: m\ntask: {name: arithmetic}\nmax_steps: 1\noutput_dir: runs/x\n"
        "environment: {name: calculator}\nrewards: [{name: environment}]\n"
    )
    for words in ([], ["--why", "0"]):
        assert score(["--config", str(recipe), str(run_dir / name), *words]) == 0
        shown = capsys.readouterr().out
        assert "Read from the file: environment" in shown and "0.5" in shown
    assert "completion, 4 messages, cut off by max_tool_calling_iterations" in shown
    assert "│ [result of run, 0.25 s]" in shown and '│ [turn 2, call without a result] run(code="1")' in shown


def test_held_out_answers_are_exported_by_name(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run_dir), "--of", "trained", "--out", str(run_dir / "x.parquet")]) == 0
    assert capsys.readouterr().out.endswith("x.parquet: 1 completion\n")


@pytest.mark.parametrize(
    ("words", "hint", "why"),
    [
        (["absent"], "absent. Give the output_dir", "a typo in the path"),
        (["empty"], "empty holds no completions of training", "no step yet"),
        (["run", "--steps", "4:9"], "The run has 3 steps from 1 to 3", "no such steps"),
        (["run", "--steps", "first"], "Write FIRST:LAST", "no numbers"),
        (["run", "--of", "base"], "the base model was not evaluated", "no such evaluation"),
        (["run", "--of", "trained", "--steps", "1"], "belong to no step", "held-out rows have none"),
        (["run", "--out", "x.csv"], "must end in .jsonl or .parquet", "an unknown format"),
        (["run", "--out", "no/x.jsonl"], "can't be written: No such file", "no such folder"),
    ],
)
def test_an_input_error_is_one_line_and_exit_code_2(
    run_dir: Path,
    words: list[str],
    hint: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (run_dir.parent / "empty").mkdir()
    monkeypatch.chdir(run_dir.parent)
    assert main(words) == 2, why
    error = capsys.readouterr().err
    assert hint in error and len(error.splitlines()) == 1, why


def test_a_file_that_cannot_be_read_is_named_and_the_others_exported(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "completions" / "completions_00002.parquet").write_bytes(b"PAR1 half")
    assert main([str(run_dir)]) == 0
    output = capsys.readouterr()
    assert "completions_00002.parquet, which can't be read" in output.err
    assert "8 completions" in output.out
